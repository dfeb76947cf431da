# args: --base 0x7f0000000000 --abs near=0x7f0070000000
# R_X86_64_PC32: S + A - P, 32 bits, signed. If S is P, the value is the addend.

# jitlink-check: *{4}highest = 0x7fffffff
# jitlink-check: *{4}lowest = 0x80000000
# jitlink-check: *{4}minus_one = 0xffffffff
# jitlink-check: *{4}across = (main - across + 0x10)[31:0]

        .data
        .globl  highest, lowest, minus_one, across, named
highest:
        .reloc  ., R_X86_64_PC32, highest + 0x7fffffff
        .long   0
lowest:
        .reloc  ., R_X86_64_PC32, lowest - 0x80000000
        .long   0
minus_one:
        .reloc  ., R_X86_64_PC32, minus_one - 1
        .long   0
across:         .long main + 0x10 - .
named:          .quad 0

# jitlink-check: decode_operand(load, 4) = named - next_pc(load)
# jitlink-check: decode_operand(load_within, 4) = named - next_pc(load_within) + 4
# jitlink-check: decode_operand(load_absolute, 4) = near - next_pc(load_absolute)
# jitlink-check: decode_operand(compare, 3) = named - next_pc(compare)
# jitlink-check: decode_operand(compare, 5) = 0x12345678
# jitlink-check: decode_operand(test_memory, 3) = named - next_pc(test_memory)
# jitlink-check: decode_operand(address, 4) = named - next_pc(address)

        .text
        .globl  load, load_within, load_absolute, compare, test_memory, address
load:           movl named(%rip), %eax
        .size   load, . - load
load_within:    movl named + 4(%rip), %eax
        .size   load_within, . - load_within
load_absolute:  movl near(%rip), %eax
        .size   load_absolute, . - load_absolute
compare:        cmpl $0x12345678, named(%rip)
        .size   compare, . - compare
test_memory:    testb $1, named(%rip)
        .size   test_memory, . - test_memory
address:        leaq named(%rip), %rax
        .size   address, . - address

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
