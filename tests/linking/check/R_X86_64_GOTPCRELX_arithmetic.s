# args: --base 0x7f0000000000 --abs near=0x7f0070000000 --abs low=0x401000
# R_X86_64_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# Arithmetic could only be rewritten to an immediate with a low address, so it is not rewritten.

# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near)) = near
# jitlink-check: *{8}(got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low)) = low

        .text

# jitlink-check: decode_operand(add_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(add_near)
        .globl  add_near
add_near:
        addl near@GOTPCREL(%rip), %ecx
        .size   add_near, . - add_near

# jitlink-check: decode_operand(adc_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(adc_near)
        .globl  adc_near
adc_near:
        adcl near@GOTPCREL(%rip), %ecx
        .size   adc_near, . - adc_near

# jitlink-check: decode_operand(and_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(and_near)
        .globl  and_near
and_near:
        andl near@GOTPCREL(%rip), %ecx
        .size   and_near, . - and_near

# jitlink-check: decode_operand(or_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(or_near)
        .globl  or_near
or_near:
        orl near@GOTPCREL(%rip), %ecx
        .size   or_near, . - or_near

# jitlink-check: decode_operand(sbb_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(sbb_near)
        .globl  sbb_near
sbb_near:
        sbbl near@GOTPCREL(%rip), %ecx
        .size   sbb_near, . - sbb_near

# jitlink-check: decode_operand(sub_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(sub_near)
        .globl  sub_near
sub_near:
        subl near@GOTPCREL(%rip), %ecx
        .size   sub_near, . - sub_near

# jitlink-check: decode_operand(xor_near, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(xor_near)
        .globl  xor_near
xor_near:
        xorl near@GOTPCREL(%rip), %ecx
        .size   xor_near, . - xor_near

# jitlink-check: decode_operand(cmp_near, 4) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(cmp_near)
        .globl  cmp_near
cmp_near:
        cmpl near@GOTPCREL(%rip), %ecx
        .size   cmp_near, . - cmp_near

# jitlink-check: decode_operand(test_near, 3) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, near) - next_pc(test_near)
        .globl  test_near
test_near:
        testl %ecx, near@GOTPCREL(%rip)
        .size   test_near, . - test_near

# jitlink-check: decode_operand(add_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(add_low)
        .globl  add_low
add_low:
        addl low@GOTPCREL(%rip), %ecx
        .size   add_low, . - add_low

# jitlink-check: decode_operand(adc_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(adc_low)
        .globl  adc_low
adc_low:
        adcl low@GOTPCREL(%rip), %ecx
        .size   adc_low, . - adc_low

# jitlink-check: decode_operand(and_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(and_low)
        .globl  and_low
and_low:
        andl low@GOTPCREL(%rip), %ecx
        .size   and_low, . - and_low

# jitlink-check: decode_operand(or_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(or_low)
        .globl  or_low
or_low:
        orl low@GOTPCREL(%rip), %ecx
        .size   or_low, . - or_low

# jitlink-check: decode_operand(sbb_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(sbb_low)
        .globl  sbb_low
sbb_low:
        sbbl low@GOTPCREL(%rip), %ecx
        .size   sbb_low, . - sbb_low

# jitlink-check: decode_operand(sub_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(sub_low)
        .globl  sub_low
sub_low:
        subl low@GOTPCREL(%rip), %ecx
        .size   sub_low, . - sub_low

# jitlink-check: decode_operand(xor_low, 5) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(xor_low)
        .globl  xor_low
xor_low:
        xorl low@GOTPCREL(%rip), %ecx
        .size   xor_low, . - xor_low

# jitlink-check: decode_operand(cmp_low, 4) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(cmp_low)
        .globl  cmp_low
cmp_low:
        cmpl low@GOTPCREL(%rip), %ecx
        .size   cmp_low, . - cmp_low

# jitlink-check: decode_operand(test_low, 3) = got_addr(R_X86_64_GOTPCRELX_arithmetic.o, low) - next_pc(test_low)
        .globl  test_low
test_low:
        testl %ecx, low@GOTPCREL(%rip)
        .size   test_low, . - test_low

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
