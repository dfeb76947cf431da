# args: --base 0x7f0000000000 --abs low=0x401000
# R_X86_64_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# The target is low and the code is high: the instruction is not rewritten, although the address fits into 32 bits.

# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCRELX_unreachable.o, low)) = low

        .text

# jitlink-check: *{1}load_low = 0x8b
# jitlink-check: decode_operand(load_low, 4) = got_addr(R_X86_64_GOTPCRELX_unreachable.o, low) - next_pc(load_low)
        .globl  load_low
load_low:
        movl low@GOTPCREL(%rip), %eax
        .size   load_low, . - load_low

# jitlink-check: *{2}call_low = 0x15ff
# jitlink-check: decode_operand(call_low, 3) = got_addr(R_X86_64_GOTPCRELX_unreachable.o, low) - next_pc(call_low)
        .globl  call_low
call_low:
        call *low@GOTPCREL(%rip)
        .size   call_low, . - call_low

# jitlink-check: *{2}jump_low = 0x25ff
# jitlink-check: decode_operand(jump_low, 3) = got_addr(R_X86_64_GOTPCRELX_unreachable.o, low) - next_pc(jump_low)
        .globl  jump_low
jump_low:
        jmp *low@GOTPCREL(%rip)
        .size   jump_low, . - jump_low

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
