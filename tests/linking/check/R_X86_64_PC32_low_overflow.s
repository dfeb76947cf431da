# args: --base 0x7f0000000000 --abs low=0x401000
# error: relocation R_X86_64_PC32 out of range
# The target is low and far below the code.

        .data
        .globl  field
field:
        .long   low - .

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
