# args: --base 0x7f0000000000
# error: relocation R_X86_64_PC8 out of range
# One above the largest value.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_PC8, field + 0x80
        .byte   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
