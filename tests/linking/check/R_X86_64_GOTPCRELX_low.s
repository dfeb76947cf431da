# args: --base 0x10000000 --abs low=0x401000
# R_X86_64_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# Code and target are low and in reach: loads become lea, and calls and jumps become direct.

        .text

# jitlink-check: *{1}load_low = 0x8d
# jitlink-check: decode_operand(load_low, 4) = low - next_pc(load_low)
        .globl  load_low
load_low:
        movl low@GOTPCREL(%rip), %eax
        .size   load_low, . - load_low

# jitlink-check: *{2}call_low = 0xe867
# jitlink-check: decode_operand(call_low, 0) = low - next_pc(call_low)
        .globl  call_low
call_low:
        call *low@GOTPCREL(%rip)
        .size   call_low, . - call_low

# jitlink-check: *{1}jump_low = 0xe9
# jitlink-check: *{1}jump_low + 5 = 0x90
# jitlink-check: decode_operand(jump_low, 0) = low - next_pc(jump_low)
        .globl  jump_low
jump_low:
        jmp *low@GOTPCREL(%rip)
        .size   jump_low, . - jump_low

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
