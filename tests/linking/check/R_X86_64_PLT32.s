# args: --base 0x7f0000000000 --abs near=0x7f0070000000 --abs far=0x401000
# R_X86_64_PLT32: S + A - P, 32 bits, signed. If S is out of reach, the address of a stub replaces S.

# jitlink-check: decode_operand(call_own, 0) = main - next_pc(call_own)
# jitlink-check: decode_operand(call_near, 0) = near - next_pc(call_near)
# jitlink-check: decode_operand(jump_near, 0) = near - next_pc(jump_near)
# jitlink-check: decode_operand(branch_near, 0) = near - next_pc(branch_near)

# The target is out of reach: all use one stub. It jumps through its GOT slot.
# jitlink-check: decode_operand(call_far, 0) = stub_addr(R_X86_64_PLT32.o, far) - next_pc(call_far)
# jitlink-check: decode_operand(jump_far, 0) = stub_addr(R_X86_64_PLT32.o, far) - next_pc(jump_far)
# jitlink-check: decode_operand(branch_far, 0) = stub_addr(R_X86_64_PLT32.o, far) - next_pc(branch_far)
# jitlink-check: *{2}(stub_addr(R_X86_64_PLT32.o, far)) = 0x25ff
# jitlink-check: *{4}(stub_addr(R_X86_64_PLT32.o, far) + 2) = \
# jitlink-check:     (got_addr(R_X86_64_PLT32.o, far) - stub_addr(R_X86_64_PLT32.o, far) - 6)[31:0]
# jitlink-check: *{8}(got_addr(R_X86_64_PLT32.o, far)) = far

        .text
        .globl  call_own, call_near, jump_near, branch_near, call_far, jump_far, branch_far
call_own:       call main@PLT
        .size   call_own, . - call_own
call_near:      call near@PLT
        .size   call_near, . - call_near
jump_near:      jmp near@PLT
        .size   jump_near, . - jump_near
branch_near:    jne near@PLT
        .size   branch_near, . - branch_near
call_far:       call far@PLT
        .size   call_far, . - call_far
jump_far:       jmp far@PLT
        .size   jump_far, . - jump_far
branch_far:     jne far@PLT
        .size   branch_far, . - branch_far

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
