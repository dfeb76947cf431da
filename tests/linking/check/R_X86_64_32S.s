# args: --base 0x7f0000000000 --abs zero=0 --abs value=0x12345678 --abs top=0x7fffffff --abs bottom=0xffffffff80000000
# R_X86_64_32S: S + A, 32 bits, signed: an address in the lowest or highest 2 GiB of the 64-bit space.

# jitlink-check: decode_operand(highest, 1) = 0x7fffffff
# jitlink-check: decode_operand(lowest, 1) = 0xffffffff80000000
# jitlink-check: decode_operand(plain, 1) = value
# jitlink-check: decode_operand(backwards, 1) = 0xfffffffffffffff0
# jitlink-check: decode_operand(indexed, 4) = value + 4
# jitlink-check: *{4}lowest + 3 = 0x80000000

        .text
        .globl  highest, lowest, plain, backwards, indexed
highest:        movq $top, %rax
        .size   highest, . - highest
lowest:         movq $bottom, %rax
        .size   lowest, . - lowest
plain:          movq $value, %rax
        .size   plain, . - plain
backwards:      movq $zero - 0x10, %rax
        .size   backwards, . - backwards
indexed:        movl value + 4(,%rax,8), %eax
        .size   indexed, . - indexed

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
