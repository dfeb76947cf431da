# args: --base 0x100000000
# The block of a program begins 16 bytes from the thread pointer, aligned.

# jitlink-check: decode_operand(high, 2) = 0
# jitlink-check: decode_operand(low, 2) = 64 + 8
# jitlink-check: decode_operand(offset, 2) = 8
# jitlink-check: decode_operand(access, 2) = 72 >> 3

        .text
        .globl  main, high, low, offset, access
main:
high:   add x0, x0, :tprel_hi12:variable
low:    add x0, x0, :tprel_lo12_nc:variable
offset: add x0, x0, :dtprel_lo12:variable
access: ldr x0, [x0, :tprel_lo12:variable]

        .section .tdata,"awT"
        .balign 64
        .quad 5
variable:
        .quad 7
