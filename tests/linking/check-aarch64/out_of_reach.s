# args: --base 0x100000000 --abs far=0x7f0000000000
# error: relocation R_AARCH64_ADR_PREL_PG_HI21 out of range
# A hidden symbol is one of an object of the same dylib, which is near: no thunk stands for the instruction.

        .text
        .globl  main
        .hidden far
main:   adrp x0, far
