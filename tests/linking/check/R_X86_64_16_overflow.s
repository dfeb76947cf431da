# args: --base 0x7f0000000000 --abs top=0xffff
# error: relocation R_X86_64_16 out of range
# One above the largest value.

        .data
        .globl  field
field:
        .word   top + 1

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
