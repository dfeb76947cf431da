# args: --base 0x7f0000000000 --abs near=0x7f0070000000
# R_X86_64_GOTPCRELX: G + A - P, 32 bits, signed. The instruction may be rewritten so that it needs no slot.
# An addend other than -4 does not load the slot, so nothing is rewritten.

# jitlink-check: *{1}load + 0 = 0x8b
# jitlink-check: decode_operand(load, 4) = got_addr(R_X86_64_GOTPCRELX_addend.o, near) - next_pc(load) + 4

        .text
        .globl  load
load:
        .byte 0x8b, 0x05
        .reloc  ., R_X86_64_GOTPCRELX, near
        .long   0
        .size   load, . - load

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
