        default rel
        global  sum_of, counter, text
        extern  doubled
        section .data
counter: dq     5
table:  dq      sum_of, counter
        section .rodata
text:   db      "text", 0
        section .bss
space:  resq    4
        section .text
sum_of: push    rbx
        xor     eax, eax
.next:  add     rax, [rdi]
        add     rdi, 8
        dec     rsi
        jnz     .next
        add     rax, [counter]
        mov     [space], rax
        mov     rbx, table
        mov     rbx, [rbx + 8]
        inc     qword [rbx]
        mov     rdi, rax
        call    doubled wrt ..plt
        pop     rbx
        ret
        section .note.GNU-stack noalloc noexec nowrite progbits
