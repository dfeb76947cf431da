# args: --base 0x7f0000000000 --abs value=0x123456789abcdef0
# R_X86_64_NONE changes nothing.

# jitlink-check: *{4}field = 0x55aa55aa

        .data
        .globl  field
field:
        .reloc  ., R_X86_64_NONE, value
        .long   0x55aa55aa

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
