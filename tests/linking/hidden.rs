//! Symbols that an object declares hidden, internal or protected and does not define: only its own dylib may define them.

use jittison::error::{ErrorKind, LinkFault};
use jittison::session::Visibility;
use jittison::{Jit, ResourceTracker};

use crate::support::*;

const VISIBILITIES: [&str; 3] = ["hidden", "internal", "protected"];

fn user(visibility: &str, attributes: &str) -> Option<Vec<u8>> {
    let source = format!(
        "extern long labs(long) __attribute__((visibility(\"{visibility}\"){attributes}));
         extern long llabs(long);
         long test(void) {{ return (labs ? labs(-3) : 100) + llabs(-1000); }}"
    );
    gcc(&["-O2", "-fPIC", "-fno-builtin"], &source)
}

// Seen red: the reference was bound to the C library.
#[test]
fn a_hidden_name_is_not_taken_from_a_library() {
    for visibility in VISIBILITIES {
        let Some(object) = user(visibility, "") else { return };
        let error = refused(&object, "test");
        match error.root_cause().kind() {
            ErrorKind::Link { fault: LinkFault::HiddenUndefined { symbols, searched }, .. } => {
                assert_eq!((&symbols[..], &searched[..]), (&["labs".to_string()][..], &["main".to_string()][..]));
            }
            other => panic!("{other}"),
        }
        assert_says(&error, &["bad.o", "`labs`", "hidden", "default visibility"]);
    }
}

// Seen red: the weak name had the address of the C library's function.
#[test]
fn a_weak_hidden_name_is_null_even_if_a_library_has_it() {
    for visibility in VISIBILITIES {
        let Some(object) = user(visibility, ", weak") else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 1100, "{visibility}");
    }
}

#[test]
fn a_hidden_name_is_defined_by_an_object_of_the_dylib_before_or_after() {
    let Some(definition) = c("long labs(long x) { return x * 2; }") else { return };
    for attributes in ["", ", weak"] {
        let Some(object) = user("hidden", attributes) else { return };
        for objects in [[&object, &definition], [&definition, &object]] {
            let (jit, trackers) = linked(&[objects[0], objects[1]]);
            assert_eq!(long(&jit, "test"), 994, "{attributes}");
            drop(trackers);
        }
    }
}

#[test]
fn an_address_that_the_dylib_has_is_a_definition_of_a_hidden_name() {
    let source = ".hidden place\n.text\n.globl test\ntest: movabs $place, %rax; ret\n.section .note.GNU-stack,\"\"";
    let Some(object) = asm(source) else { return };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "place", 0x1234_0000);
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(long(&jit, "test"), 0x1234_0000);
}

#[test]
fn a_hidden_name_is_found_only_in_dylibs_whose_hidden_symbols_are_seen() {
    let (Some(object), Some(definition)) = (user("hidden", ""), c("long labs(long x) { return x * 2; }")) else {
        return;
    };
    for (visibility, expected) in [(Visibility::All, Some(994)), (Visibility::ExportedOnly, None)] {
        let jit = new_jit();
        let [library, dylib] = ["library", "user"].map(|name| jit.create_dylib(name).unwrap());
        dylib.add_to_link_order(&[(library.clone(), visibility)]).unwrap();
        let _held = [add(&jit, &library, "library.o", &definition), add(&jit, &dylib, "user.o", &object)];
        let test = try_function::<extern "C" fn() -> i64>(&jit, &dylib, "test");
        match expected {
            Some(expected) => assert_eq!(test.unwrap().call(), expected),
            None => assert_says(&test.unwrap_err(), &["user.o", "`labs`", "hidden"]),
        }
    }
}

/// An object whose weak reference to `labs` has default visibility.
fn default_user(attributes: &str) -> Option<Vec<u8>> {
    let source = format!("extern long labs(long){attributes}; long other(void) {{ return labs ? labs(-3) : 100; }}");
    gcc(&["-O2", "-fPIC", "-fno-builtin"], &source)
}

/// Adds both objects before the first is linked.
fn together(first: &[u8], second: &[u8]) -> (Jit, [ResourceTracker; 2]) {
    let jit = new_jit();
    let trackers = [("first.o", first), ("second.o", second)].map(|(name, object)| {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.add_object(&tracker, name, object).unwrap();
        tracker
    });
    (jit, trackers)
}

// Seen red: the reference with default visibility had the address of the C library's function.
#[test]
fn a_weak_name_that_one_object_hides_is_null_in_all_objects_of_the_dylib() {
    let Some(weak) = default_user(" __attribute__((weak))") else { return };
    for visibility in VISIBILITIES {
        let Some(hidden) = user(visibility, ", weak") else { return };
        for (first, second) in [(&hidden, &weak), (&weak, &hidden)] {
            let (jit, _trackers) = together(first, second);
            assert_eq!(long(&jit, "other"), 100, "{visibility}");
            assert_eq!(long(&jit, "test"), 1100, "{visibility}");
        }
    }
}

// Seen red: the reference was bound to the C library.
#[test]
fn a_strong_reference_to_a_name_that_another_object_hides_is_refused() {
    let (Some(hidden), Some(strong)) = (user("hidden", ", weak"), default_user("")) else { return };
    let (jit, _trackers) = together(&strong, &hidden);
    let error = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "other").unwrap_err();
    assert_says(&error, &["first.o", "`labs`", "hidden"]);
}

#[test]
fn a_hidden_name_of_another_dylib_or_a_removed_object_hides_nothing() {
    let (Some(hidden), Some(weak)) = (user("hidden", ", weak"), default_user(" __attribute__((weak))")) else { return };
    let jit = new_jit();
    let other = jit.create_dylib("other").unwrap();
    let [removed, linked] = [0, 1].map(|_| jit.main_dylib().create_tracker().unwrap());
    jit.add_object(&other.create_tracker().unwrap(), "elsewhere.o", &hidden[..]).unwrap();
    jit.add_object(&removed, "removed.o", &hidden[..]).unwrap();
    let _ = removed.remove().unwrap();
    jit.link_object(&linked, "linked.o", &hidden[..]).unwrap();
    let _ = linked.remove().unwrap();
    let (tracker, refused) = (jit.main_dylib().create_tracker().unwrap(), jit.main_dylib().create_tracker().unwrap());
    jit.add_object(&tracker, "weak.o", &weak[..]).unwrap();
    let Some(twice) = gcc(
        &["-O2", "-fPIC", "-fno-builtin"],
        "extern long labs(long) __attribute__((weak, visibility(\"hidden\"))); long other(void) { return (long)labs; }",
    ) else {
        return;
    };
    jit.add_object(&refused, "refused.o", &twice[..]).unwrap_err();
    assert_eq!(long(&jit, "other"), 3);
}

#[test]
fn a_name_that_an_object_linked_at_once_hides_is_hidden_for_later_objects() {
    let (Some(hidden), Some(weak)) = (user("internal", ", weak"), default_user(" __attribute__((weak))")) else {
        return;
    };
    let jit = new_jit();
    let trackers = [0, 1].map(|_| jit.main_dylib().create_tracker().unwrap());
    jit.link_object(&trackers[0], "hidden.o", &hidden[..]).unwrap();
    jit.link_object(&trackers[1], "weak.o", &weak[..]).unwrap();
    assert_eq!(long(&jit, "other"), 100);
}
