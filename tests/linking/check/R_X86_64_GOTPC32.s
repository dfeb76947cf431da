# args: --base 0x7f0000000000
# R_X86_64_GOTPC32: GOT + A - P, 32 bits, signed.

# jitlink-check: decode_operand(address, 4) = _GLOBAL_OFFSET_TABLE_ - next_pc(address)
# jitlink-check: decode_operand(within, 4) = _GLOBAL_OFFSET_TABLE_ - next_pc(within) + 0x18

        .text
        .globl  address, within
address:        leaq _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   address, . - address
within:         leaq _GLOBAL_OFFSET_TABLE_ + 0x18(%rip), %rbx
        .size   within, . - within

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
