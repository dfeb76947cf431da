# args: --base 0x100000000 --abs far=0x7f0012345678
# Data beyond 4 GiB is reached by a thunk, to which a branch leads. The offset in the page stays with the load.

# jitlink-check: (*{4}main)[31:26] = 5
# jitlink-check: decode_operand(load, 2) = far[11:3]

        .text
        .globl  main, load
main:   adrp x0, far
load:   ldr  x0, [x0, :lo12:far]
