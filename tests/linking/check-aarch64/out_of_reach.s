# args: --base 0x100000000 --abs far=0x7f0000000000
# error: relocation R_AARCH64_ADR_PREL_PG_HI21 out of range
# Data beyond 4 GiB is reached through the GOT only.

        .text
        .globl  main
main:   adrp x0, far
