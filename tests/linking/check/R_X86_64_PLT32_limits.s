# args: --base 0x7f0000000000
# R_X86_64_PLT32 of a symbol of the object: the largest and the smallest displacement.

# jitlink-check: *{4}highest = 0x7fffffff
# jitlink-check: *{4}lowest = 0x80000000

        .text
        .globl  highest, lowest
highest:
        .reloc  ., R_X86_64_PLT32, highest + 0x7fffffff
        .long   0
lowest:
        .reloc  ., R_X86_64_PLT32, lowest - 0x80000000
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
