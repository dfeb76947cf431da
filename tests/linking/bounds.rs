//! `__start_NAME` and `__stop_NAME`: the bounds of the sections with that name in the same object, and what is refused if other
//! objects of the dylib have such a section, too. `bounds_across.rs` has the bounds over several objects.

use jittison::error::LinkFault;
use jittison::{Error, ErrorKind};

use crate::support::*;

#[test]
fn bounds_enclose_all_sections_of_the_name_and_nothing_else() {
    let source = "
        #define PUT(n) __attribute__((section(\"plugins\"), used)) static long n
        __attribute__((section(\"other\"), used)) static long before = 1000;
        PUT(a) = 1; PUT(b) = 2; PUT(c) = 4;
        extern long __start_plugins[], __stop_plugins[];
        long test(void) {
            long sum = 0;
            for (long *p = __start_plugins; p < __stop_plugins; p++) sum += *p;
            return sum * 10 + (__stop_plugins - __start_plugins);
        }";
    let Some(object) = c(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 73, "the sum 1 + 2 + 4, and the count 3");
}

#[test]
fn separated_sections_of_one_name_are_placed_together() {
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

// Seen red: the entries had the object's order.
#[test]
fn linked_sections_with_bounds_have_the_order_of_the_sections_that_they_are_linked_to() {
    let source = r#"
        .section .text.b,"ax",@progbits; b: ret
        .section .text.a,"ax",@progbits; a: ret
        .section sets,"ao",@progbits,.text.a; .quad 2
        .section sets,"ao",@progbits,.text.b,unique,1; .quad 1
        .section sets,"a",@progbits,unique,2; .quad 7
        .globl test
        .text
        test: lea __start_sets(%rip), %rdx; lea __stop_sets(%rip), %rcx; xor %eax, %eax
        1: cmp %rcx, %rdx; je 2f; imul $10, %rax, %rax; add (%rdx), %rax; add $8, %rdx; jmp 1b
        2: call a; call b; ret
        .section .note.GNU-stack,"",@progbits
    "#;
    let Some(object) = asm(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 712, "sections that are not linked come first");
}

#[test]
fn bounds_of_an_absent_section_are_missing_symbols_or_null_when_weak() {
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

/// An object that sums up the values in the sections `plugins`. It has one such section itself.
fn bounds_user() -> Option<Vec<u8>> {
    c("
        __attribute__((section(\"plugins\"), used)) static long own = 1;
        extern long __start_plugins[], __stop_plugins[];
        long sum(void) {
            long sum = 0;
            for (long *p = __start_plugins; p < __stop_plugins; p++) sum += *p;
            return sum;
        }")
}

fn section_part() -> Option<Vec<u8>> {
    c("__attribute__((section(\"plugins\"), used)) static long more = 10; long get(void) { return more; }")
}

/// The error names the section, the object that uses its bounds (`requesting`) and the object that has a part of it (`defining`).
fn assert_across(error: &Error, requesting: &str, defining: &str) {
    match error.root_cause().kind() {
        ErrorKind::Link {
            fault: LinkFault::BoundsAcrossObjects { section, requesting: user, defining: part, .. },
            ..
        } => {
            assert_eq!((&**section, &**user, &**part), ("plugins", requesting, defining), "{error}");
        }
        other => panic!("{other}"),
    }
    assert_says(error, &["`plugins`", requesting, defining, "`__start_plugins`", "ld -r", "different dylibs"]);
}

/// Symptom: each object saw its own part only, and the sum was 1. A program of a native linker has 11.
#[test]
fn an_object_with_the_section_that_uses_bounds_is_refused_if_another_one_is_linked() {
    let (Some(user), Some(part)) = (bounds_user(), section_part()) else { return };
    let (jit, _trackers) = linked(&[&part]);
    assert_eq!(long(&jit, "get"), 10);
    assert_across(&refused_in(&jit, &user, "sum"), "bad.o", "object0.o");
    assert_eq!(long(&jit, "get"), 10, "the other object is unchanged");
}

#[test]
fn an_object_with_the_section_is_refused_if_another_object_uses_the_bounds() {
    let (Some(user), Some(part)) = (bounds_user(), section_part()) else { return };
    let (jit, _trackers) = linked(&[&user]);
    assert_eq!(long(&jit, "sum"), 1);
    assert_across(&refused_in(&jit, &part, "get"), "object0.o", "bad.o");
    assert_eq!(long(&jit, "sum"), 1);
}

#[test]
fn weak_bounds_are_null_only_without_the_section() {
    let source =
        "extern long __start_plugins[] __attribute__((weak)); long sum(void) { return (long)__start_plugins; }";
    let (Some(user), Some(part)) = (c(source), section_part()) else { return };
    let (jit, _trackers) = linked(&[&part]);
    assert_eq!(long(&jit, "get"), 10);
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_ne!(long(&jit, "sum"), 0);
    // Without the other object there is no such section, and the weak name is null.
    let (jit, _trackers) = linked(&[&user]);
    assert_eq!(long(&jit, "sum"), 0);
}

#[test]
fn an_object_without_the_section_uses_bounds_that_the_dylib_defines() {
    let source =
        "extern char __start_plugins[], __stop_plugins[]; long sum(void) { return __stop_plugins - __start_plugins; }";
    let (Some(user), Some(part)) = (c(source), section_part()) else { return };
    let (jit, _trackers) = linked(&[&part]);
    define_absolute(jit.main_dylib(), "__start_plugins", 0x1000);
    define_absolute(jit.main_dylib(), "__stop_plugins", 0x1030);
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_eq!(long(&jit, "sum"), 0x30);
}

#[test]
fn objects_that_use_no_bounds_and_other_dylibs_may_have_the_section() {
    let (Some(user), Some(part)) = (bounds_user(), section_part()) else { return };
    let other = c("__attribute__((section(\"plugins\"), used)) static long more = 5; long get2(void) { return more; }");
    let Some(other) = other else { return };
    let (jit, _trackers) = linked(&[&part, &other]);
    assert_eq!((long(&jit, "get"), long(&jit, "get2")), (10, 5));
    let own = jit.create_dylib("own").unwrap();
    let _user = add(&jit, &own, "user.o", &user);
    assert_eq!(try_function::<extern "C" fn() -> i64>(&jit, &own, "sum").unwrap().call(), 1, "it uses its own section");
}

#[test]
fn an_object_counts_until_its_tracker_is_removed_despite_transfers_and_handles() {
    let (Some(user), Some(part)) = (bounds_user(), section_part()) else { return };
    // The object is linked, transferred, held by a handle, and then removed.
    let jit = new_jit();
    let main = jit.main_dylib();
    let (first, second) = (main.create_tracker().unwrap(), main.create_tracker().unwrap());
    jit.add_object(&first, "part.o", &*part).unwrap();
    let held = try_function::<extern "C" fn() -> i64>(&jit, main, "get").unwrap();
    first.transfer_to(&second).unwrap();
    assert_across(&refused_in(&jit, &user, "sum"), "bad.o", "part.o");
    assert!(!second.remove().unwrap().is_complete(), "a handle keeps it");
    let requesting = add(&jit, main, "user.o", &user);
    assert_eq!((long(&jit, "sum"), held.call()), (1, 10));
    drop(held);
    // The object is neither linked nor held.
    assert!(requesting.remove().unwrap().is_complete());
    let unlinked = add(&jit, main, "part.o", &part);
    assert!(unlinked.remove().unwrap().is_complete());
    let _requesting = add(&jit, main, "user.o", &user);
    assert_eq!(long(&jit, "sum"), 1);
}

#[test]
fn sections_of_a_group_count_only_for_the_object_whose_group_is_kept() {
    // Both objects have the group. The group of the second is dropped, and its part with it.
    let source = r#"
        .section plugins,"awG",@progbits,shared,comdat
        .weak shared
        shared: .quad 7
        .globl NAME
        .text
        NAME: lea __start_plugins(%rip), %rdx; lea __stop_plugins(%rip), %rax; sub %rdx, %rax; ret
        .section .note.GNU-stack,"",@progbits
    "#;
    let quiet = r#"
        .section plugins,"awG",@progbits,shared,comdat
        .weak shared
        shared: .quad 7
        .globl quiet
        .text
        quiet: mov shared(%rip), %rax; ret
        .section .note.GNU-stack,"",@progbits
    "#;
    let (Some(user), Some(quiet)) = (asm(&source.replace("NAME", "size")), asm(quiet)) else { return };
    let (jit, _trackers) = linked(&[&user]);
    assert_eq!(long(&jit, "size"), 8);
    let _quiet = add(&jit, jit.main_dylib(), "quiet.o", &quiet);
    assert_eq!((long(&jit, "quiet"), long(&jit, "size")), (7, 8));
}
