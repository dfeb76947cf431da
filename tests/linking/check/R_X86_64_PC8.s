# args: --base 0x7f0000000000
# R_X86_64_PC8: S + A - P, 8 bits, signed.

# jitlink-check: *{1}highest = 0x7f
# jitlink-check: *{1}lowest = 0x80
# jitlink-check: *{1}itself = 0
# jitlink-check: *{1}onwards = behind_it - onwards & 0xff

        .data
        .globl  highest, lowest, itself, onwards, behind_it
highest:
        .reloc  ., R_X86_64_PC8, highest + 0x7f
        .byte   0
lowest:
        .reloc  ., R_X86_64_PC8, lowest - 0x80
        .byte   0
itself:
        .reloc  ., R_X86_64_PC8, itself
        .byte   0
onwards:        .byte behind_it - .
        .skip   100
behind_it:      .byte 0

# jitlink-check: decode_operand(jump, 0) = behind - next_pc(jump)

        .text
        .globl  jump, behind
jump:   jrcxz   behind
        .size   jump, . - jump
        nop
behind: ret

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
