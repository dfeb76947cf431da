# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_GOT32: G + A - GOT, 32 bits, signed.

# jitlink-check: decode_operand(load, 4) = got_addr(R_X86_64_GOT32.o, far) - _GLOBAL_OFFSET_TABLE_
# jitlink-check: *{4}backwards = (got_addr(R_X86_64_GOT32.o, far) - _GLOBAL_OFFSET_TABLE_ - 0x70000000)[31:0]
# jitlink-check: *{8}(got_addr(R_X86_64_GOT32.o, far)) = far

        .text
        .globl  load, anchor, backwards
anchor: leaq    _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   anchor, . - anchor
load:   movq    far@GOT(%rbx), %rax
        .size   load, . - load
backwards:
        .reloc  ., R_X86_64_GOT32, far - 0x70000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
