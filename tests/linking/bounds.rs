//! `__start_NAME` and `__stop_NAME`: the bounds of an object's own sections of that name.

use jittison::ErrorKind;

use crate::support::*;

#[test]
fn bounds_enclose_all_sections_of_the_name_and_nothing_else() {
    let source = "
        #define PUT(n) __attribute__((section(\"plugins\"), used)) static long n
        __attribute__((section(\"other\"), used)) static long before = 1000;
        PUT(a) = 1; PUT(b) = 2; PUT(c) = 4;
        long in_a_group(void);
        extern long __start_plugins[], __stop_plugins[];
        long test(void) {
            long sum = 0;
            for (long *p = __start_plugins; p < __stop_plugins; p++) sum += *p;
            return sum * 10 + (__stop_plugins - __start_plugins);
        }";
    let Some(object) = c(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 73, "1 + 2 + 4, and three of them");
}

#[test]
fn sections_of_one_name_that_others_stand_between_are_brought_together() {
    let source = r#"
        .section sets,"aw",@progbits; .quad 1
        .section between,"awR",@progbits; .quad 99
        .section sets,"awG",@progbits,g1,comdat; .quad 2
        .section between2,"awR",@progbits; .quad 98
        .section sets,"awG",@progbits,g2,comdat; .quad 3
        .globl test
        .text
        test: lea __start_sets(%rip), %rdx; lea __stop_sets(%rip), %rcx; xor %eax, %eax
        1: cmp %rcx, %rdx; je 2f; imul $10, %rax, %rax; add (%rdx), %rax; add $8, %rdx; jmp 1b
        2: ret
        .globl g1, g2
        .section .note.GNU-stack,"",@progbits
    "#;
    let Some(object) = asm(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 123);
}

#[test]
fn bounds_of_a_section_that_is_not_there_are_missing_symbols_or_null_when_weak() {
    let strong = "extern long __start_nothing[]; long test(void) { return (long)__start_nothing; }";
    let weak = "extern long __start_nothing[] __attribute__((weak)); long test(void) { return (long)__start_nothing; }";
    let (Some(strong), Some(weak)) = (c(strong), c(weak)) else { return };
    let (jit, _trackers) = linked(&[&strong]);
    let error = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test").unwrap_err();
    match error.root_cause().kind() {
        ErrorKind::SymbolsNotFound { symbols, .. } => assert_eq!(symbols, &["__start_nothing"]),
        other => panic!("{other}"),
    }
    let (jit, _trackers) = linked(&[&weak]);
    assert_eq!(long(&jit, "test"), 0);
}
