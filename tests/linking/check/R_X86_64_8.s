# args: --base 0x7f0000000000 --abs zero=0 --abs value=0x12 --abs top=0xff
# R_X86_64_8: S + A, 8 bits.

# jitlink-check: *{1}lowest = 0
# jitlink-check: *{1}highest = 0xff
# jitlink-check: *{1}plain = value
# jitlink-check: *{1}forwards = value + 3
# jitlink-check: *{1}behind = 0x77

        .data
        .globl  lowest, highest, plain, forwards, behind
lowest:         .byte zero
highest:        .byte top
plain:          .byte value
forwards:       .byte value + 3
behind:         .byte 0x77

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
