//! COMDAT groups: a program has one group of each signature, also if the group defines strong symbols, or local ones only.

use jittison::{ErrorKind, Jit};

use crate::crafted::Elf;
use crate::support::*;

const STACK: &str = "\n.section .note.GNU-stack,\"\",@progbits\n";

// Seen red: the second object was refused as a duplicate definition.
#[test]
fn objects_with_the_same_indirect_branch_thunk_share_it() {
    if !require_x86_64() {
        return;
    }
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

/// An object with this definition of `object`, and a function that returns its value.
fn with_object(definition: &str, function: &str, value: u32) -> Option<Vec<u8>> {
    asm(&format!(
        "{definition}\n.type object, @object\nobject: .long {value}\n.size object, 4
         .text\n.globl {function}\n{function}: mov object@GOTPCREL(%rip), %rax; mov (%rax), %eax; ret{STACK}"
    ))
}

const GROUP: &str = ".section .data.object,\"awG\",@progbits,object,comdat";

/// Links two objects, in this order, and returns the value that each of them reads. Links them when they are looked up, and
/// at once.
fn values(first: &[u8], second: &[u8]) -> [(i64, i64); 2] {
    let (lazy, _trackers) = linked(&[first, second]);
    let at_once = new_jit();
    for (name, object) in [("first.o", first), ("second.o", second)] {
        let tracker = at_once.main_dylib().create_tracker().unwrap();
        at_once.link_object(&tracker, name, object).unwrap();
    }
    [&lazy, &at_once].map(|jit| (long(jit, "first"), long(jit, "second")))
}

// Seen red: a weak or common definition of an earlier object won.
#[test]
fn a_unique_definition_is_as_strong_as_a_global_one() {
    let unique = |function| with_object(&format!("{GROUP}\n.globl object"), function, 1).map(unique_binding);
    let (Some(first), Some(second)) = (unique("first"), unique("second")) else { return };
    for other in [".data\n.weak object", ".section .gnu.linkonce.d.object,\"aw\",@progbits\n.weak object"] {
        let (Some(before), Some(after)) = (with_object(other, "first", 2), with_object(other, "second", 2)) else {
            return;
        };
        let (jit, _trackers) = linked(&[&before, &second]);
        assert_eq!((long(&jit, "first"), long(&jit, "second")), (1, 1), "{other}");
        assert_eq!(values(&first, &after), [(1, 1); 2], "{other}");
    }
    let Some(common) =
        asm(&format!(".comm object, 4, 4\n.text\n.globl first\nfirst: mov object(%rip), %eax; ret{STACK}"))
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&common, &second]);
    assert_eq!((long(&jit, "first"), long(&jit, "second")), (1, 1));
    let Some(global) = with_object(".data\n.globl object", "first", 3) else { return };
    let (jit, _trackers) = linked(&[&global]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "second.o", &second[..]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
}

#[test]
fn a_group_is_left_out_if_code_has_a_weak_definition_of_its_name() {
    let (Some(weak), Some(group)) = (
        with_object(".data\n.weak object", "first", 1),
        with_object(&format!("{GROUP}\n.globl object"), "second", 2).map(unique_binding),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&weak]);
    assert_eq!(long(&jit, "first"), 1);
    let _group = add(&jit, jit.main_dylib(), "second.o", &group);
    assert_eq!((long(&jit, "first"), long(&jit, "second")), (1, 1));
}

/// The object with `STB_GNU_UNIQUE` for the symbol `object`.
fn unique_binding(object: Vec<u8>) -> Vec<u8> {
    let mut elf = Elf(object);
    let at = elf.symbol("object");
    elf.store(at + 4, 1, 0xa1);
    elf.0
}

// Seen red: a strong symbol of a later group won over a weak symbol of the first one.
#[test]
fn the_first_group_of_a_signature_counts_whatever_the_bindings_of_its_symbols() {
    let object = |binding: &str, function, value| with_object(&format!("{GROUP}\n{binding} object"), function, value);
    for (one, other) in [(".weak", ".globl"), (".globl", ".weak"), (".globl", ".globl"), (".weak", ".weak")] {
        let (Some(first), Some(second)) = (object(one, "first", 1), object(other, "second", 2)) else { return };
        assert_eq!(values(&first, &second), [(1, 1); 2], "{one} {other}");
        let unique = unique_binding(second);
        assert_eq!(values(&first, &unique), [(1, 1); 2], "{one} unique");
    }
}

#[test]
fn a_strong_definition_replaces_that_of_a_group_and_later_groups_are_still_left_out() {
    let (Some(group), Some(strong), Some(later)) = (
        with_object(&format!("{GROUP}\n.weak object"), "first", 1),
        with_object(".data\n.globl object", "second", 2),
        with_object(&format!("{GROUP}\n.globl object"), "third", 3),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&group, &strong, &later]);
    assert_eq!(["first", "second", "third"].map(|name| long(&jit, name)), [2; 3]);
}

// Seen red: the strong definition of the second group replaced the weak one.
#[test]
fn a_group_whose_definition_lost_is_still_the_first_of_its_signature() {
    let (Some(weak), Some(group), Some(later)) = (
        with_object(".data\n.weak object", "first", 1),
        with_object(&format!("{GROUP}\n.weak object"), "second", 2),
        with_object(&format!("{GROUP}\n.globl object"), "third", 3),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&weak, &group, &later]);
    assert_eq!(["first", "second", "third"].map(|name| long(&jit, name)), [1; 3]);
}

// The definition that won must not stand for the removed group: the later group would be left out as a whole.
#[test]
fn a_group_is_kept_after_the_removal_of_one_that_lost_its_definition() {
    let group = |binding: &str, function: &str, value: u32| {
        let other = format!(".section .data.other,\"awG\",@progbits,object,comdat\n.globl other\nother: .long {value}");
        with_object(&format!("{other}\n{GROUP}\n{binding} object"), function, value)
    };
    let outside = |binding: &str| with_object(&format!(".data\n{binding} object"), "first", 1);
    let (Some(weak), Some(strong)) = (outside(".weak"), outside(".globl")) else { return };
    let (Some(lost), Some(later)) = (group(".weak", "second", 2), group(".weak", "third", 3)) else { return };
    let other = |jit: &Jit| {
        let address = jit.address_of(jit.main_dylib(), "other").unwrap();
        i32::from_le_bytes(read(address.value(), 4).try_into().unwrap())
    };
    // The definition comes before the group, or after it. The group's tracker is removed as it is, or after a transfer.
    for (objects, is_transferred) in
        [([&weak, &lost], false), ([&lost, &strong], false), ([&weak, &lost], true), ([&lost, &strong], true)]
    {
        let jit = new_jit();
        let trackers = objects.map(|object| {
            let tracker = jit.main_dylib().create_tracker().unwrap();
            jit.add_object(&tracker, "object.o", &object[..]).unwrap();
            tracker
        });
        let mut group = &trackers[objects.iter().position(|object| std::ptr::eq(*object, &lost)).unwrap()];
        let destination = jit.main_dylib().create_tracker().unwrap();
        if is_transferred {
            group.transfer_to(&destination).unwrap();
            group = &destination;
        }
        assert!(jit.main_dylib().symbol_flags("other").is_some());
        // A group that comes while the first one is there is left out.
        let left_out = add(&jit, jit.main_dylib(), "left_out.o", &later);
        assert_eq!(long(&jit, "third"), 1);
        left_out.remove().unwrap();
        group.remove().unwrap();
        let kept = add(&jit, jit.main_dylib(), "third.o", &later);
        assert_eq!((long(&jit, "first"), long(&jit, "third"), other(&jit)), (1, 1, 3), "{is_transferred}");
        kept.remove().unwrap();
    }
}

// Seen red: the definition that only the second group has was added.
#[test]
fn a_second_group_is_dropped_with_all_its_definitions() {
    let object = |function: &str, more: &str, value: u32| {
        with_object(&format!("{GROUP}\n{more}\n.weak object"), function, value)
    };
    let more = ".globl more\nmore: .quad 7";
    let (Some(first), Some(second)) = (object("first", "", 1), object("second", more, 2)) else { return };
    assert_eq!(values(&first, &second), [(1, 1); 2]);
    let (jit, trackers) = linked(&[&first, &second]);
    assert_eq!((long(&jit, "first"), long(&jit, "second")), (1, 1));
    assert!(jit.main_dylib().symbol_flags("more").is_none());
    assert_eq!(trackers.iter().map(|tracker| jit.usage(tracker).data).sum::<u64>(), 4, "one group is in memory");
    // The first group has it, so a strong definition elsewhere is a duplicate, whatever the second group defines.
    let (jit, _trackers) = linked(&[&second, &first]);
    assert_eq!((long(&jit, "first"), long(&jit, "second")), (2, 2));
    assert!(jit.main_dylib().symbol_flags("more").is_some());
}

// Seen red: the second object was refused as a duplicate definition.
#[test]
fn a_group_with_a_strong_definition_under_another_name_is_kept_once() {
    let object =
        |section: &str, function: &str, value: u32| with_object(&format!("{section}\n.globl object"), function, value);
    let group = ".section .data.object,\"awG\",@progbits,other,comdat";
    let (Some(first), Some(second)) = (object(group, "first", 1), object(group, "second", 2)) else { return };
    assert_eq!(values(&first, &second), [(1, 1); 2]);
    let (Some(plain), Some(third)) = (object(".data", "plain", 3), object(group, "third", 3)) else { return };
    let (jit, trackers) = linked(&[&first]);
    assert_eq!(long(&jit, "first"), 1);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "plain.o", &plain[..]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "outside of the group: {error}");
    assert!(trackers[0].remove().unwrap().is_complete());
    let _third = add(&jit, jit.main_dylib(), "third.o", &third);
    assert_eq!(long(&jit, "third"), 3, "the group is free again after its object was removed");
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
