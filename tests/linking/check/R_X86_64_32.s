# args: --base 0x7f0000000000 --abs zero=0 --abs value=0x12345678 --abs top=0xffffffff
# R_X86_64_32: S + A, 32 bits, not signed.

# jitlink-check: *{4}lowest = 0
# jitlink-check: *{4}highest = 0xffffffff
# jitlink-check: *{4}plain = value
# jitlink-check: *{4}forwards = 0x12345688
# jitlink-check: *{4}backwards = value - 0x10

        .data
        .globl  lowest, highest, plain, forwards, backwards
lowest:         .long zero
highest:        .long top
plain:          .long value
forwards:       .long value + 0x10
backwards:      .long value - 0x10

# jitlink-check: decode_operand(load, 1) = 0xffffffff

        .text
        .globl  load
load:   movl    $top, %eax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
