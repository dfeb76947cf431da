# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_PLTOFF64: L + A - GOT, 64 bits; S may replace L. Any value fits.

# jitlink-check: decode_operand(load, 1) = far - _GLOBAL_OFFSET_TABLE_

        .text
        .globl  load, anchor
anchor: leaq    _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   anchor, . - anchor
load:   movabs  $far@PLTOFF, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
