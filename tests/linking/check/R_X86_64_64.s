# args: --base 0x7f0000000000 --abs zero=0 --abs value=0x123456789abcdef0 --abs top=0xffffffffffffffff
# R_X86_64_64: S + A, 64 bits. Any value fits, and sums wrap around.

# jitlink-check: *{8}lowest = 0
# jitlink-check: *{8}highest = 0xffffffffffffffff
# jitlink-check: *{8}plain = value
# jitlink-check: *{8}forwards = 0x123456789abcdf00
# jitlink-check: *{8}backwards = value - 0x10
# jitlink-check: *{8}wrapped = 0xf
# jitlink-check: *{8}itself = itself + 0x20

        .data
        .globl  lowest, highest, plain, forwards, backwards, wrapped, itself
lowest:         .quad zero
highest:        .quad top
plain:          .quad value
forwards:       .quad value + 0x10
backwards:      .quad value - 0x10
wrapped:        .quad top + 0x10
itself:         .quad itself + 0x20

# jitlink-check: decode_operand(load, 1) = value

        .text
        .globl  load
load:   movabs  $value, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
