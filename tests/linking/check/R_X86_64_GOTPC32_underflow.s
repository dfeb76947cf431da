# args: --base 0x7f0000000000
# error: relocation R_X86_64_GOTPC32 out of range
# Out of range for every possible address of the GOT.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_GOTPC32, _GLOBAL_OFFSET_TABLE_ - 0xf0000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
