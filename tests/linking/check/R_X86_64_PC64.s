# args: --base 0x7f0000000000 --abs far=0x401000 --abs top=0xffffffffffffffff
# R_X86_64_PC64: S + A - P, 64 bits. Any value fits.

# jitlink-check: *{8}itself = 0
# jitlink-check: *{8}forwards = 0x7fffffffffffffff
# jitlink-check: *{8}downwards = far - downwards
# jitlink-check: *{8}upwards = top - upwards
# jitlink-check: *{8}across = main - across + 0x10

        .data
        .globl  itself, forwards, downwards, upwards, across
itself:
        .reloc  ., R_X86_64_PC64, itself
        .quad   0
forwards:
        .reloc  ., R_X86_64_PC64, forwards + 0x7fffffffffffffff
        .quad   0
downwards:      .quad far - .
upwards:        .quad top - .
across:         .quad main + 0x10 - .

        .text
        .globl  main
main:   ret
        .section .note.GNU-stack,"",@progbits
