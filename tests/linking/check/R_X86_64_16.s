# args: --base 0x7f0000000000 --abs zero=0 --abs value=0x1234 --abs top=0xffff
# R_X86_64_16: S + A, 16 bits.

# jitlink-check: *{2}lowest = 0
# jitlink-check: *{2}highest = 0xffff
# jitlink-check: *{2}plain = value
# jitlink-check: *{2}forwards = value + 3
# jitlink-check: *{1}behind = 0x77

        .data
        .globl  lowest, highest, plain, forwards, behind
lowest:         .word zero
highest:        .word top
plain:          .word value
forwards:       .word value + 3
behind:         .byte 0x77

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
