# args: --base 0x7f0000000000 --abs zero=0
# R_X86_64_8 of negative values, which assemblers store, too.

# jitlink-check: *{1}lowest = 0x80
# jitlink-check: *{1}minus_one = 0xff

        .data
        .globl  lowest, minus_one
lowest:         .byte zero - 0x80
minus_one:      .byte zero - 1

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
