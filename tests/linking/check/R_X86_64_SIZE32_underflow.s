# args: --base 0x7f0000000000
# error: relocation R_X86_64_SIZE32 out of range
# The field has no negative sizes.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_SIZE32, sized - 13
        .long   0
        .globl  sized
sized:  .skip   12
        .size   sized, 12

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
