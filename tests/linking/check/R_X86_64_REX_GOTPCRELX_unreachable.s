# args: --base 0x7f0000000000 --abs low=0x401000
# R_X86_64_REX_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# The target is low and the code is high: the instruction is not rewritten, although the address fits into 32 bits.

# jitlink-check: *{8}(got_addr(R_X86_64_REX_GOTPCRELX_unreachable.o, low)) = low

        .text

# jitlink-check: *{1}load_low + 1 = 0x8b
# jitlink-check: decode_operand(load_low, 4) = got_addr(R_X86_64_REX_GOTPCRELX_unreachable.o, low) - next_pc(load_low)
        .globl  load_low
load_low:
        movq low@GOTPCREL(%rip), %rax
        .size   load_low, . - load_low

# jitlink-check: *{1}load_r8_low + 1 = 0x8b
# jitlink-check: decode_operand(load_r8_low, 4) = got_addr(R_X86_64_REX_GOTPCRELX_unreachable.o, low) - next_pc(load_r8_low)
        .globl  load_r8_low
load_r8_low:
        movq low@GOTPCREL(%rip), %r8
        .size   load_r8_low, . - load_r8_low

# jitlink-check: *{1}load_r8d_low + 1 = 0x8b
# jitlink-check: decode_operand(load_r8d_low, 4) = got_addr(R_X86_64_REX_GOTPCRELX_unreachable.o, low) - next_pc(load_r8d_low)
        .globl  load_r8d_low
load_r8d_low:
        movl low@GOTPCREL(%rip), %r8d
        .size   load_r8d_low, . - load_r8d_low

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
