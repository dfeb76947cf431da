# args: --base 0x7f0000000000
# error: relocation R_X86_64_PLT32 out of range
# A symbol of the object has no stub. One above the largest value.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_PLT32, field + 0x80000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
