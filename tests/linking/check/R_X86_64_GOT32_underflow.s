# args: --base 0x7f0000000000 --abs far=0x401000
# error: relocation R_X86_64_GOT32 out of range
# Out of range for every possible slot in the GOT.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_GOT32, far - 0xf0000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
