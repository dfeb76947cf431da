//! Symbols that an object declares hidden, internal or protected and does not define: only its own dylib may define them.

use jittison::error::{ErrorKind, LinkFault};
use jittison::session::Visibility;

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
