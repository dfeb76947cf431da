# args: --base 0x7f0000000000 --abs top=0x7fffffff
# error: relocation R_X86_64_32S out of range
# One above the largest value.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_32S, top + 1
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
