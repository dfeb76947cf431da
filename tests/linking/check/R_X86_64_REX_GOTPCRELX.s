# args: --base 0x7f0000000000 --abs near=0x7f0070000000
# R_X86_64_REX_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# The target is in reach: loads become lea.

        .text

# jitlink-check: *{1}load_near + 1 = 0x8d
# jitlink-check: decode_operand(load_near, 4) = near - next_pc(load_near)
        .globl  load_near
load_near:
        movq near@GOTPCREL(%rip), %rax
        .size   load_near, . - load_near

# jitlink-check: *{1}load_r8_near + 1 = 0x8d
# jitlink-check: decode_operand(load_r8_near, 4) = near - next_pc(load_r8_near)
        .globl  load_r8_near
load_r8_near:
        movq near@GOTPCREL(%rip), %r8
        .size   load_r8_near, . - load_r8_near

# jitlink-check: *{1}load_r8d_near + 1 = 0x8d
# jitlink-check: decode_operand(load_r8d_near, 4) = near - next_pc(load_r8d_near)
        .globl  load_r8d_near
load_r8d_near:
        movl near@GOTPCREL(%rip), %r8d
        .size   load_r8d_near, . - load_r8d_near

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
