# args: --base 0x7f0000000000
# R_X86_64_SIZE32: Z + A, 32 bits, not signed.

# jitlink-check: decode_operand(load, 1) = 12
# jitlink-check: *{4}plain = 12
# jitlink-check: *{4}backwards = 2
# jitlink-check: *{4}lowest = 0
# jitlink-check: *{4}highest = 0xffffffff

        .data
        .globl  sized, plain, backwards, lowest, highest
sized:          .skip 12
        .size   sized, 12
plain:          .long sized@SIZE
backwards:      .long sized@SIZE - 10
lowest:         .long sized@SIZE - 12
highest:
        .reloc  ., R_X86_64_SIZE32, sized + 0xfffffff3
        .long   0

        .text
        .globl  load
load:   movl    $sized@SIZE, %eax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
