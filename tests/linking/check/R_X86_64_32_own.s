# args: --base 0x10000000
# R_X86_64_32 of a symbol of the object, which is placed low.

# jitlink-check: *{4}(field) = target + 8
# jitlink-check: decode_operand(load, 1) = target
# jitlink-check: target[63:31] = 0

        .data
        .globl  field, target
field:  .long   target + 8
target: .quad   0

        .text
        .globl  load
load:   movl    $target, %eax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
