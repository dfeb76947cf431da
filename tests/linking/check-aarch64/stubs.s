# args: --base 0x100000000 --abs far=0x7f0000000000 --abs near=0x100001000
# Branches go to their target if it is in reach, else to the stub of the symbol, which loads the address from the GOT.

# jitlink-check: decode_operand(to_near, 0) = (near - to_near)[27:2]
# jitlink-check: decode_operand(to_far, 0) = (stub_addr(stubs.o, far) - to_far)[27:2]
# jitlink-check: decode_operand(jump_to_far, 0) = (stub_addr(stubs.o, far) - jump_to_far)[27:2]
# jitlink-check: decode_operand(test_and_jump, 2) = (stub_addr(stubs.o, far) - test_and_jump)[15:2]
# jitlink-check: *{8}got_addr(stubs.o, far) = far
# jitlink-check: *{4}stub_addr(stubs.o, far) = 0xd503245f
# jitlink-check: *{4}(stub_addr(stubs.o, far) + 8) = 0xf9400211 | (got_addr(stubs.o, far)[11:3] << 10)
# jitlink-check: *{4}(stub_addr(stubs.o, far) + 12) = 0xd61f0220
# jitlink-check: section_addr(stubs.o, $__STUBS) = stub_addr(stubs.o, near)

        .text
        .globl  main, to_near, to_far, jump_to_far, test_and_jump
main:
to_near:        bl near
to_far:         bl far
jump_to_far:    b far
test_and_jump:  tbz x0, #3, far
