# args: --base 0x7f0000000000
# R_X86_64_PC16: S + A - P, 16 bits, signed.

# jitlink-check: *{2}highest = 0x7fff
# jitlink-check: *{2}lowest = 0x8000
# jitlink-check: *{2}itself = 0
# jitlink-check: *{2}onwards = behind_it - onwards & 0xffff

        .data
        .globl  highest, lowest, itself, onwards, behind_it
highest:
        .reloc  ., R_X86_64_PC16, highest + 0x7fff
        .word   0
lowest:
        .reloc  ., R_X86_64_PC16, lowest - 0x8000
        .word   0
itself:
        .reloc  ., R_X86_64_PC16, itself
        .word   0
onwards:        .word behind_it - .
        .skip   100
behind_it:      .byte 0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
