//! `__start_NAME` and `__stop_NAME`: the bounds of an object's own sections of that name.

use jittison::error::LinkFault;
use jittison::{Error, ErrorKind};

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

/// Sums up what is in the sections `plugins`, of which it has one itself.
fn asks_and_brings() -> Option<Vec<u8>> {
    c("
        __attribute__((section(\"plugins\"), used)) static long own = 1;
        extern long __start_plugins[], __stop_plugins[];
        long sum(void) {
            long sum = 0;
            for (long *p = __start_plugins; p < __stop_plugins; p++) sum += *p;
            return sum;
        }")
}

fn brings() -> Option<Vec<u8>> {
    c("__attribute__((section(\"plugins\"), used)) static long more = 10; long get(void) { return more; }")
}

/// Says which section, who asks and who brings; and that is all that is wrong.
fn assert_across(error: &Error, asking: &str, bringing: &str) {
    match error.root_cause().kind() {
        ErrorKind::Link {
            fault: LinkFault::BoundsAcrossObjects { section, asking: asks, bringing: brings }, ..
        } => {
            assert_eq!((&**section, &**asks, &**brings), ("plugins", asking, bringing), "{error}");
        }
        other => panic!("{other}"),
    }
    assert_says(error, &["`plugins`", asking, bringing, "`__start_plugins`", "ld -r", "dylibs of their own"]);
}

/// Symptom: the sum was 1, each object seeing its own part, where a native linker's program has 11.
#[test]
fn an_object_that_asks_for_bounds_is_refused_when_another_object_of_its_dylib_has_a_part_of_the_section() {
    let (Some(asks), Some(brings)) = (asks_and_brings(), brings()) else { return };
    for is_linked in [false, true] {
        let jit = new_jit();
        let main = jit.main_dylib();
        let other = main.create_tracker().unwrap();
        jit.add_object(&other, "brings.o", &*brings).unwrap();
        if is_linked {
            assert_eq!(long(&jit, "get"), 10);
        }
        assert_across(&refused_in(&jit, &asks, "sum"), "bad.o", "brings.o");
        assert_eq!(long(&jit, "get"), 10, "the other one is as it was");
    }
}

#[test]
fn an_object_that_brings_a_part_is_refused_when_another_object_of_its_dylib_has_asked_for_the_bounds() {
    let (Some(asks), Some(brings)) = (asks_and_brings(), brings()) else { return };
    let (jit, _trackers) = linked(&[&asks]);
    assert_eq!(long(&jit, "sum"), 1);
    assert_across(&refused_in(&jit, &brings, "get"), "object0.o", "bad.o");
    assert_eq!(long(&jit, "sum"), 1);
}

#[test]
fn a_part_of_the_section_counts_for_who_has_none_itself_and_asks_by_weak_names() {
    let source =
        "extern long __start_plugins[] __attribute__((weak)); long sum(void) { return (long)__start_plugins; }";
    let (Some(asks), Some(brings)) = (c(source), brings()) else { return };
    let (jit, _trackers) = linked(&[&brings]);
    assert_across(&refused_in(&jit, &asks, "sum"), "bad.o", "object0.o");
    // Alone, there is no such section, and the name is null.
    let (jit, _trackers) = linked(&[&asks]);
    assert_eq!(long(&jit, "sum"), 0);
}

#[test]
fn bounds_that_somebody_defines_are_meant_by_objects_without_the_section() {
    let source =
        "extern char __start_plugins[], __stop_plugins[]; long sum(void) { return __stop_plugins - __start_plugins; }";
    let (Some(asks), Some(brings)) = (c(source), brings()) else { return };
    let (jit, _trackers) = linked(&[&brings]);
    define_absolute(jit.main_dylib(), "__start_plugins", 0x1000);
    define_absolute(jit.main_dylib(), "__stop_plugins", 0x1030);
    let _asks = add(&jit, jit.main_dylib(), "asks.o", &asks);
    assert_eq!(long(&jit, "sum"), 0x30);
}

#[test]
fn objects_that_bring_parts_and_ask_for_nothing_are_let_be_and_so_is_one_of_another_dylib() {
    let (Some(asks), Some(brings)) = (asks_and_brings(), brings()) else { return };
    let other = c("__attribute__((section(\"plugins\"), used)) static long more = 5; long get2(void) { return more; }");
    let Some(other) = other else { return };
    let (jit, _trackers) = linked(&[&brings, &other]);
    assert_eq!((long(&jit, "get"), long(&jit, "get2")), (10, 5));
    let own = jit.create_dylib("own").unwrap();
    let _asks = add(&jit, &own, "asks.o", &asks);
    assert_eq!(try_function::<extern "C" fn() -> i64>(&jit, &own, "sum").unwrap().call(), 1, "sees its own");
}

#[test]
fn an_object_counts_until_its_tracker_is_removed_wherever_it_was_transferred_and_whoever_holds_it() {
    let (Some(asks), Some(brings)) = (asks_and_brings(), brings()) else { return };
    // Linked, transferred, held by a handle, removed.
    let jit = new_jit();
    let main = jit.main_dylib();
    let (first, second) = (main.create_tracker().unwrap(), main.create_tracker().unwrap());
    jit.add_object(&first, "brings.o", &*brings).unwrap();
    let held = try_function::<extern "C" fn() -> i64>(&jit, main, "get").unwrap();
    first.transfer_to(&second).unwrap();
    assert_across(&refused_in(&jit, &asks, "sum"), "bad.o", "brings.o");
    assert!(!second.remove().unwrap().is_complete(), "a handle holds it");
    let asking = add(&jit, main, "asks.o", &asks);
    assert_eq!((long(&jit, "sum"), held.call()), (1, 10));
    drop(held);
    // Neither linked nor held.
    assert!(asking.remove().unwrap().is_complete());
    let unlinked = add(&jit, main, "brings.o", &brings);
    assert_across(&refused_in(&jit, &asks, "sum"), "bad.o", "brings.o");
    assert!(unlinked.remove().unwrap().is_complete());
    let _asking = add(&jit, main, "asks.o", &asks);
    assert_eq!(long(&jit, "sum"), 1);
}

#[test]
fn sections_of_a_group_count_only_for_the_object_whose_group_is_kept() {
    // Both objects have the group; the second's is dropped, and with it its part.
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
    let (Some(asks), Some(quiet)) = (asm(&source.replace("NAME", "size")), asm(quiet)) else { return };
    let (jit, _trackers) = linked(&[&asks]);
    assert_eq!(long(&jit, "size"), 8);
    let _quiet = add(&jit, jit.main_dylib(), "quiet.o", &quiet);
    assert_eq!((long(&jit, "quiet"), long(&jit, "size")), (7, 8));
}
