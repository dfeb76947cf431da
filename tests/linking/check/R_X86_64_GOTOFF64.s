# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_GOTOFF64: S + A - GOT, 64 bits. Any value fits.

# jitlink-check: decode_operand(load, 1) = far - _GLOBAL_OFFSET_TABLE_ + 3
# jitlink-check: decode_operand(load_own, 1) = main - _GLOBAL_OFFSET_TABLE_

        .text
        .globl  load_own, use_slot
load_own:       movabs $main@GOTOFF, %rax
        .size   load_own, . - load_own
use_slot:       pushq far@GOTPCREL(%rip)
        .size   use_slot, . - use_slot

        .text
        .globl  load, anchor
anchor: leaq    _GLOBAL_OFFSET_TABLE_(%rip), %rbx
        .size   anchor, . - anchor
load:   movabs  $far@GOTOFF + 3, %rax
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
