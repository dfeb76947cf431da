# args: --base 0x7f0000000000 --abs zero=0
# error: relocation R_X86_64_32 out of range
# The field has no negative values.

        .data
        .globl  field
field:
        .long   zero - 1

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
