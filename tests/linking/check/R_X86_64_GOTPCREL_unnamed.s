# args: --base 0x7f0000000000 --abs far=0x401000
# R_X86_64_GOTPCREL in an object that does not name the GOT. A rule may name it all the same.

# jitlink-check: got_addr(R_X86_64_GOTPCREL_unnamed.o, far) = _GLOBAL_OFFSET_TABLE_

        .text
        .globl  main
main:   pushq far@GOTPCREL(%rip)
        .section .note.GNU-stack,"",@progbits
