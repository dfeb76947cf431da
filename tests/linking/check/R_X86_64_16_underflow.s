# args: --base 0x7f0000000000 --abs zero=0
# error: relocation R_X86_64_16 out of range
# One below the smallest signed value.

        .data
        .globl  field
field:
        .word   zero - 0x8000 - 1

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
