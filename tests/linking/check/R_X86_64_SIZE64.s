# args: --base 0x7f0000000000
# R_X86_64_SIZE64: Z + A, 64 bits. Any value fits.

# jitlink-check: decode_operand(load, 1) = 12
# jitlink-check: *{8}plain = 12
# jitlink-check: *{8}forwards = 22
# jitlink-check: *{8}wrapped = 0xffffffffffffffff

        .data
        .globl  sized, plain, forwards, wrapped
sized:          .skip 12
        .size   sized, 12
plain:          .quad sized@SIZE
forwards:       .quad sized@SIZE + 10
wrapped:        .quad sized@SIZE - 13

        .text
        .globl  load
load:   movabs  $sized@SIZE, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
