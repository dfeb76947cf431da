# args: --base 0x7f0000000000 --abs low=0x401000
# error: relocation R_X86_64_GOTPCRELX out of range
# Out of range for every possible address of the slot.

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_GOTPCRELX, low + 0xf0000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
