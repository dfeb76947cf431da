# args: --base 0x100000000 --abs near=0x110002468 --abs far=0x7f0000000008
# A load of a GOT slot becomes the address if the symbol's page is in reach.

# jitlink-check: decode_operand(page_of_near, 1) = (near - page_of_near)[32:12]
# jitlink-check: *{4}(page_of_near + 4) = 0x91000063 | (near[11:0] << 10)
# jitlink-check: decode_operand(page_of_far, 1) = got_addr(got.o, far)[32:12] - page_of_far[32:12]
# jitlink-check: decode_operand(page_of_far + 4, 2) = got_addr(got.o, far)[11:3]
# jitlink-check: *{8}got_addr(got.o, far) = far
# jitlink-check: decode_operand(literal, 1) = (got_addr(got.o, far) - literal)[20:2]

        .text
        .globl  main, page_of_near, page_of_far, literal
main:
page_of_near:   adrp x3, :got:near
                ldr x3, [x3, :got_lo12:near]
page_of_far:    adrp x4, :got:far
                ldr x4, [x4, :got_lo12:far]
literal:        ldr x5, :got:far
