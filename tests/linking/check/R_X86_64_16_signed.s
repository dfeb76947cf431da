# args: --base 0x7f0000000000 --abs zero=0
# R_X86_64_16 of negative values, which assemblers store, too.

# jitlink-check: *{2}lowest = 0x8000
# jitlink-check: *{2}minus_one = 0xffff

        .data
        .globl  lowest, minus_one
lowest:         .word zero - 0x8000
minus_one:      .word zero - 1

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
