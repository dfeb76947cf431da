# args: --base 0x7f0000000000 --abs near=0x7f0070000000 --abs far=0x401000
# R_X86_64_GOTPCREL: G + A - P, 32 bits, signed. Never rewritten, because the type does not permit it.

# jitlink-check: decode_operand(push_near, 3) = got_addr(R_X86_64_GOTPCREL.o, near) - next_pc(push_near)
# jitlink-check: decode_operand(push_far, 3) = got_addr(R_X86_64_GOTPCREL.o, far) - next_pc(push_far)
# jitlink-check: decode_operand(float, 4) = got_addr(R_X86_64_GOTPCREL.o, far) - next_pc(float)
# jitlink-check: decode_operand(address, 4) = got_addr(R_X86_64_GOTPCREL.o, main) - next_pc(address)
# jitlink-check: decode_operand(plain_load, 4) = got_addr(R_X86_64_GOTPCREL.o, near) - next_pc(plain_load)
# jitlink-check: *{1}plain_load + 1 = 0x8b
# jitlink-check: *{4}within = (got_addr(R_X86_64_GOTPCREL.o, far) - within + 6)[31:0]
# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCREL.o, near)) = near
# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCREL.o, far)) = far
# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCREL.o, main)) = main

        .text
        .globl  push_near, push_far, float, address, plain_load, within
push_near:      pushq near@GOTPCREL(%rip)
        .size   push_near, . - push_near
push_far:       pushq far@GOTPCREL(%rip)
        .size   push_far, . - push_far
float:          movq far@GOTPCREL(%rip), %xmm0
        .size   float, . - float
address:        leaq main@GOTPCREL(%rip), %rax
        .size   address, . - address
plain_load:
        .reloc  . + 3, R_X86_64_GOTPCREL, near - 4
        movq    0(%rip), %rax
        .size   plain_load, . - plain_load
within:
        .reloc  ., R_X86_64_GOTPCREL, far + 6
        .long   0

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
