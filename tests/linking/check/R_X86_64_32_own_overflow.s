# args: --base 0x7f0000000000
# error: relocation R_X86_64_32 out of range
# The symbol is in the object, and the object is not placed low.

        .data
        .globl  field
field:
        .long   field

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
