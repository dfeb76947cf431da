# args: --base 0x100000000 --abs odd=0x100002004
# error: relocation R_AARCH64_LDST64_ABS_LO12_NC to a misaligned place
# A load of eight bytes counts its offset in units of eight.

        .text
        .globl  main
main:   ldr x0, [x0, :lo12:odd]
