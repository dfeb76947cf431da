# args: --base 0x123456789000 --abs negative=0xfffffffffffffffe
# The groups of an address, and a signed group, which makes MOVN of MOVZ.

# jitlink-check: decode_operand(main, 1) = main[15:0]
# jitlink-check: decode_operand(main + 4, 2) = main[31:16]
# jitlink-check: decode_operand(main + 8, 2) = main[47:32]
# jitlink-check: decode_operand(main + 12, 2) = main[63:48]
# jitlink-check: *{4}signed = 0x92800021
# jitlink-check: decode_operand(address, 1) = 0x1000 - (address - main)
# jitlink-check: *{8}pointer = main + 5

        .text
        .globl  main, signed, address, pointer
main:   movz x0, #:abs_g0_nc:main
        movk x0, #:abs_g1_nc:main
        movk x0, #:abs_g2_nc:main
        movk x0, #:abs_g3:main
signed: movz x1, #:abs_g0_s:negative
address: adr x2, main + 0x1000

        .data
pointer: .quad main + 5
