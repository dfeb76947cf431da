# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_GOTPLT64: G + A - GOT, 64 bits. Any value fits.

# jitlink-check: decode_operand(load, 1) = got_addr(R_X86_64_GOTPLT64.o, far) - _GLOBAL_OFFSET_TABLE_
# jitlink-check: *{8}(got_addr(R_X86_64_GOTPLT64.o, far)) = far

        .text
        .globl  load, anchor
anchor: leaq    _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   anchor, . - anchor
load:   movabs  $far@GOTPLT, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
