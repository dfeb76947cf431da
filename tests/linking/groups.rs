//! COMDAT groups: a program has one group of each signature, also if the group defines strong symbols, or local ones only.

use jittison::ErrorKind;

use crate::support::*;

const STACK: &str = "\n.section .note.GNU-stack,\"\",@progbits\n";

// Seen red: the second object was refused as a duplicate definition.
#[test]
fn objects_with_the_same_indirect_branch_thunk_share_it() {
    let first = "long (*f)(long); long first(long x) { return f(x); }";
    let second = "
        extern long (*f)(long); extern long first(long);
        static long twice(long x) { return 2 * x; }
        long test(void) { f = twice; return f(4) + first(3) * 10; }";
    let flags = ["-O0", "-fPIC", "-mindirect-branch=thunk", "-fcf-protection=none"];
    let (Some(first), Some(second)) = (gcc(&flags, first), gcc(&flags, second)) else { return };
    for objects in [[&first, &second], [&second, &first]] {
        let (jit, trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!(long(&jit, "test"), 68);
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let third = gcc(&flags, "extern long (*f)(long); long third(void) { return f(21); }").unwrap();
        jit.link_object(&tracker, "third.o", &third[..]).unwrap();
        assert_eq!(long(&jit, "third"), 42, "linked at once, after the others");
        drop(trackers);
    }
}

fn strong(section: &str, value: u32) -> Option<Vec<u8>> {
    asm(&format!("{section}\n.globl choice\nchoice: mov ${value}, %eax; ret{STACK}"))
}

#[test]
fn a_strong_definition_in_a_group_and_one_outside_are_duplicates() {
    let (Some(grouped), Some(plain)) =
        (strong(".section .text.choice,\"axG\",@progbits,choice,comdat", 1), strong(".text", 2))
    else {
        return;
    };
    for (first, second) in [(&grouped, &plain), (&plain, &grouped)] {
        let (jit, _trackers) = linked(&[first]);
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let error = jit.add_object(&tracker, "second.o", &second[..]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
    }
}

#[test]
fn a_strong_definition_that_is_not_the_signature_of_its_group_is_a_duplicate() {
    let Some(object) = strong(".section .text.choice,\"axG\",@progbits,other,comdat", 1) else { return };
    let (jit, _trackers) = linked(&[&object]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "second.o", &object[..]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
}

/// An object with a group of local symbols, and a function of this name.
fn local_group(function: &str, value: u32) -> Option<Vec<u8>> {
    asm(&format!(
        ".section table,\"awGR\",@progbits,signature,comdat\n.quad {value}, 0, 0, 0
         .text\n.globl {function}\n{function}: mov ${value}, %eax; ret{STACK}"
    ))
}

// Seen red: the memory had both groups.
#[test]
fn a_group_of_local_symbols_is_kept_once() {
    let (Some(first), Some(second)) = (local_group("first", 1), local_group("second", 2)) else { return };
    let (jit, trackers) = linked(&[&first, &second]);
    assert_eq!((long(&jit, "second"), long(&jit, "first")), (2, 1));
    let data = |tracker: usize| jit.usage(&trackers[tracker]).data;
    assert_eq!((data(0), data(1)), (32, 0), "the first object that was added has the group");
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let third = local_group("third", 3).unwrap();
    jit.link_object(&tracker, "third.o", &third[..]).unwrap();
    assert_eq!((long(&jit, "third"), jit.usage(&tracker).data), (3, 0));
}

#[test]
fn a_group_of_local_symbols_is_kept_again_after_its_object_was_removed() {
    let (Some(first), Some(second)) = (local_group("first", 1), local_group("second", 2)) else { return };
    let (jit, trackers) = linked(&[&first]);
    assert_eq!(long(&jit, "first"), 1);
    assert!(trackers[0].remove().unwrap().is_complete());
    let tracker = add(&jit, jit.main_dylib(), "second.o", &second);
    assert_eq!((long(&jit, "second"), jit.usage(&tracker).data), (2, 32));
}

// Seen red: the initialisers of both objects ran.
#[test]
fn a_second_group_of_local_initialisers_is_refused() {
    let object = |function: &str| {
        asm(&format!(
            ".section .init_array,\"awG\",@init_array,signature,comdat\n.quad set
             .text\nset: ret\n.globl {function}\n{function}: mov $1, %eax; ret{STACK}"
        ))
    };
    let (Some(first), Some(second)) = (object("first"), object("second")) else { return };
    let (jit, _trackers) = linked(&[&first]);
    assert_eq!(long(&jit, "first"), 1);
    assert_says(&refused_in(&jit, &second, "second"), &["bad.o", "`.init_array`", "COMDAT group", "weak symbol"]);
}
