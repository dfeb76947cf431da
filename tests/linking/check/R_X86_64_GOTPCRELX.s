# args: --base 0x7f0000000000 --abs near=0x7f0070000000
# R_X86_64_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# The target is in reach: loads become lea, and calls and jumps become direct.

        .text

# jitlink-check: *{1}load_near = 0x8d
# jitlink-check: decode_operand(load_near, 4) = near - next_pc(load_near)
        .globl  load_near
load_near:
        movl near@GOTPCREL(%rip), %eax
        .size   load_near, . - load_near

# jitlink-check: *{2}call_near = 0xe867
# jitlink-check: decode_operand(call_near, 0) = near - next_pc(call_near)
        .globl  call_near
call_near:
        call *near@GOTPCREL(%rip)
        .size   call_near, . - call_near

# jitlink-check: *{1}jump_near = 0xe9
# jitlink-check: *{1}jump_near + 5 = 0x90
# jitlink-check: decode_operand(jump_near, 0) = near - next_pc(jump_near)
        .globl  jump_near
jump_near:
        jmp *near@GOTPCREL(%rip)
        .size   jump_near, . - jump_near

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
