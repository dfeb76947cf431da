# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_GOTPC64: GOT + A - P, 64 bits. Any value fits.

# jitlink-check: decode_operand(load, 1) = _GLOBAL_OFFSET_TABLE_ - anchor

        .text
        .globl  load, anchor
anchor: leaq    _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   anchor, . - anchor
load:   movabs  $_GLOBAL_OFFSET_TABLE_ - anchor, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
