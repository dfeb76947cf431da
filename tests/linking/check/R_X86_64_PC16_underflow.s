# args: --base 0x7f0000000000
# error: relocation R_X86_64_PC16 out of range
# One below the smallest value.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_PC16, field - 0x8001
        .word   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
