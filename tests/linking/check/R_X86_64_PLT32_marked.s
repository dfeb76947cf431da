# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_PLT32 in an object whose functions begin with endbr64 (GNU_PROPERTY_X86_FEATURE_1_IBT): so does its stub.

# jitlink-check: decode_operand(call_far, 0) = stub_addr(R_X86_64_PLT32_marked.o, far) - next_pc(call_far)
# jitlink-check: *{4}(stub_addr(R_X86_64_PLT32_marked.o, far)) = 0xfa1e0ff3
# jitlink-check: *{2}(stub_addr(R_X86_64_PLT32_marked.o, far) + 4) = 0x25ff
# jitlink-check: *{4}(stub_addr(R_X86_64_PLT32_marked.o, far) + 6) = \
# jitlink-check:     (got_addr(R_X86_64_PLT32_marked.o, far) - stub_addr(R_X86_64_PLT32_marked.o, far) - 10)[31:0]
# jitlink-check: *{8}(got_addr(R_X86_64_PLT32_marked.o, far)) = far

        .text
        .globl  call_far
call_far:
        call far@PLT
        .size   call_far, . - call_far

        .section .note.gnu.property,"a",@note
        .balign 8
        .long   4, 16, 5
        .asciz  "GNU"
        .long   0xc0000002, 4, 1, 0
        .section .note.GNU-stack,"",@progbits
