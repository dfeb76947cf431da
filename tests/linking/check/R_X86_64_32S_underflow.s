# args: --base 0x7f0000000000 --abs bottom=0xffffffff80000000
# error: relocation R_X86_64_32S out of range
# One below the smallest value.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_32S, bottom - 1
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
