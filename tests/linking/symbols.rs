//! Symbol resolution: which of several definitions wins (common, weak, COMDAT, hidden, duplicate), and which dylib is searched.

use jittison::Jit;
use std::sync::Arc;

use jittison::error::{Error, ErrorKind};
use jittison::session::{DefinitionGenerator, JitDylib, SymbolRequest, Visibility};

use crate::crafted::Elf;
use crate::support::*;

#[test]
fn common_symbols_are_merged_with_one_another() {
    let source = |function: &str| format!("long shared; long *{function}(void) {{ return &shared; }}");
    let compile = |function| gcc(&["-O2", "-fPIC", "-fcommon"], &source(function));
    let (Some(a), Some(b)) = (compile("a"), compile("b")) else { return };
    let (jit, _trackers) = linked(&[&a, &b]);
    assert_eq!(long(&jit, "a"), long(&jit, "b"));
    assert_eq!(i64::from_le_bytes(read(long(&jit, "a") as u64, 8).try_into().unwrap()), 0);
}

fn common_array(length: u32, function: &str) -> Option<Vec<u8>> {
    let source = format!("long shared[{length}]; long *{function}(void) {{ return &shared[{length} - 1]; }}");
    gcc(&["-O2", "-fPIC", "-fcommon"], &source)
}

#[test]
fn common_symbols_of_different_sizes_get_the_largest_size() {
    // Symptom: the first size won, and a later object wrote past the end.
    let (Some(small), Some(large)) = (common_array(1, "first"), common_array(1000, "last")) else { return };
    for objects in [[&small, &large], [&large, &small]] {
        let (jit, trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!(long(&jit, "last") - long(&jit, "first"), 999 * 8);
        let data: u64 = trackers.iter().map(|tracker| jit.usage(tracker).data).sum();
        assert_eq!(data, 8000, "both share one allocation");
    }
}

#[test]
fn a_common_symbol_larger_than_its_linked_definition_is_refused() {
    let (Some(small), Some(large)) = (common_array(1, "first"), common_array(1000, "last")) else { return };
    let (jit, _trackers) = linked(&[&small]);
    long(&jit, "first");
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "large.o", large.clone()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CommonTooSmall { wanted: 8000, found: 8, .. }), "{error}");
    let Some(definition) = c("long shared = 5;") else { return };
    for objects in [[&definition, &large], [&large, &definition]] {
        let (jit, _trackers) = linked(&[objects[0]]);
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let error = jit.add_object(&tracker, "second.o", objects[1].clone()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::CommonTooSmall { .. }), "{error}");
    }
}

#[test]
fn a_definition_overrides_a_common_symbol_in_either_order() {
    let (Some(common), Some(strong)) = (
        gcc(&["-O2", "-fPIC", "-fcommon"], "long shared; long test(void) { return shared; }"),
        c("long shared = 77; long other(void) { return shared; }"),
    ) else {
        return;
    };
    for objects in [[&common, &strong], [&strong, &common]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!((long(&jit, "test"), long(&jit, "other")), (77, 77));
    }
}

// Seen red: a weak definition that came first was used.
#[test]
fn a_common_symbol_overrides_a_weak_definition_in_either_order() {
    let (Some(common), Some(weak)) = (
        gcc(&["-O2", "-fPIC", "-fcommon"], "long shared; long test(void) { return shared; }"),
        c("__attribute__((weak)) long shared = 5; long other(void) { return shared; }"),
    ) else {
        return;
    };
    for objects in [[&common, &weak], [&weak, &common]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!((long(&jit, "test"), long(&jit, "other")), (0, 0));
    }
    let (jit, _trackers) = linked(&[&weak]);
    assert_eq!(long(&jit, "other"), 5);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "common.o", common).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "code has the weak definition: {error}");
}

// Seen red: the address had the alignment of the larger symbol only.
#[test]
fn a_common_symbol_whose_definition_is_aligned_less_strictly_is_refused() {
    let object = |commons: &str, function: &str| {
        asm(&format!(
            "{commons}\n.text\n.globl {function}\n{function}: lea shared(%rip), %rax; ret
             .section .note.GNU-stack,\"\",@progbits"
        ))
    };
    let (Some(strict), Some(larger), Some(largest)) = (
        object(".comm shared, 8, 64", "strict"),
        // The first symbol makes the address of the second an odd multiple of 8.
        object(".comm before, 8, 8\n.comm shared, 16, 8", "larger"),
        object(".comm shared, 32, 128", "largest"),
    ) else {
        return;
    };
    for objects in [[&strict, &larger], [&larger, &strict]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        long(&jit, "larger");
        let error = jit.address_of(jit.main_dylib(), "strict").unwrap_err();
        assert_says(&error, &["alignment of a common symbol", "64 bytes", "`shared`"]);
    }
    for objects in [[&strict, &largest], [&largest, &strict]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!((long(&jit, "strict"), long(&jit, "largest") % 128), (long(&jit, "largest"), 0));
    }
}

// Seen red: the address had the alignment of the other symbol only.
#[test]
fn a_common_symbol_that_its_object_does_not_use_is_refused_by_its_alignment() {
    let rest = ".text\n.globl strict\nstrict: xor %eax, %eax; ret\n.section .note.GNU-stack,\"\",@progbits";
    let (Some(strict), Some(misaligned)) = (
        asm(&format!(".comm shared, 8, 64\n{rest}")),
        asm(".comm before, 8, 8\n.comm shared, 8, 8\n.text\n.globl test\ntest: lea shared(%rip), %rax; ret
             .section .note.GNU-stack,\"\",@progbits"),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&misaligned, &strict]);
    assert_ne!(long(&jit, "test") % 64, 0);
    let error = jit.address_of(jit.main_dylib(), "strict").unwrap_err();
    assert_says(&error, &["alignment of a common symbol", "64 bytes", "`shared`"]);
}

// Seen red: the object used its own value, although another object's definition counts.
#[test]
fn an_absolute_value_that_lost_to_another_definition_is_not_used() {
    let stack = "\n.section .note.GNU-stack,\"\",@progbits";
    let (Some(counting), Some(lost)) = (
        asm(&format!(".globl value\nvalue = 9{stack}")),
        asm(&format!(".weak value\n.text\n.globl test\ntest: movabs $value, %rax; ret{stack}")),
    ) else {
        return;
    };
    // The assembler would fold an absolute symbol of the same object.
    let mut lost = Elf(lost);
    let at = lost.symbol("value");
    lost.store(at + 6, 2, 0xfff1);
    lost.store(at + 8, 8, 5);
    let (jit, _trackers) = linked(&[&lost.0]);
    assert_eq!(long(&jit, "test"), 5);
    for objects in [[&counting, &lost.0], [&lost.0, &counting]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!(long(&jit, "test"), 9);
    }
}

/// An object with the size of `object` in `NAME_size`, and perhaps a definition of it.
fn with_size(name: &str, definition: &str) -> Option<Vec<u8>> {
    asm(&format!(
        ".data\n{definition}\n.globl {name}_size\n{name}_size: .quad 0\n.reloc {name}_size, R_X86_64_SIZE64, object
         .section .note.GNU-stack,\"\",@progbits"
    ))
}

fn sized(binding: &str, size: u32) -> String {
    format!(".{binding} object\n.type object, @object\nobject: .zero {size}\n.size object, {size}")
}

// Seen red: the link was refused, and before that the field had the size of the definition that lost.
#[test]
fn the_size_of_a_symbol_is_that_of_the_definition_that_counts() {
    let (Some(counting), Some(lost), Some(user)) =
        (with_size("counting", &sized("globl", 16)), with_size("lost", &sized("weak", 4)), with_size("user", ""))
    else {
        return;
    };
    let size = |jit: &Jit, name: &str| read(jit.address_of(jit.main_dylib(), name).unwrap().value(), 8);
    for objects in [[&user, &lost, &counting], [&counting, &lost, &user], [&lost, &counting, &user]] {
        let (jit, _trackers) = linked(&objects.map(|object| &object[..]));
        for name in ["user_size", "lost_size", "counting_size"] {
            assert_eq!(size(&jit, name), 16u64.to_le_bytes(), "{name}");
        }
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.link_object(&tracker, "at-once.o", with_size("late", "").unwrap()).unwrap();
        assert_eq!(size(&jit, "late_size"), 16u64.to_le_bytes());
    }
    let Some(weak) = with_size("weak", ".weak object") else { return };
    let (jit, _trackers) = linked(&[&weak]);
    assert_eq!(size(&jit, "weak_size"), [0; 8], "nothing defines it");
}

#[test]
fn the_size_of_a_symbol_without_a_known_size_is_refused_by_its_cause() {
    let Some(user) = with_size("user", "") else { return };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "object", 0x1000);
    let words = ["bad.o", "`.data`", "R_X86_64_SIZE64", "without a known size", "`object`"];
    assert_says(&refused_in(&jit, &user, "user_size"), &words);
    let Some(label) = asm(".data\n.globl object\nobject: .quad 1\n.section .note.GNU-stack,\"\",@progbits") else {
        return;
    };
    let (jit, _trackers) = linked(&[&label]);
    let _user = add(&jit, jit.main_dylib(), "bad.o", &user);
    assert_says(&jit.address_of(jit.main_dylib(), "user_size").unwrap_err(), &words);
}

// Seen red: the name was not found.
#[test]
fn the_default_version_of_a_symbol_is_found_by_its_name() {
    let (Some(versions), Some(user)) = (
        asm("
            .text
            .symver first, choice@OLD
            .symver second, choice@@NEW
            .globl first, second
            first: mov $1, %eax; ret
            second: mov $2, %eax; ret
            .section .note.GNU-stack,\"\",@progbits"),
        c("extern long choice(void); long test(void) { return choice(); }"),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&user, &versions]);
    assert_eq!((long(&jit, "test"), long(&jit, "choice@OLD")), (2, 1));
}

/// An object whose function `NAME` tail-calls one version of a symbol.
fn calling(name: &str, version: &str) -> Option<Vec<u8>> {
    asm(&format!(
        ".symver wanted, {version}\n.text\n.globl {name}\n{name}: jmp wanted@PLT\n.section .note.GNU-stack,\"\",@progbits"
    ))
}

// Seen red: the version was not found.
#[test]
fn a_reference_to_a_version_is_bound_to_the_definition_of_that_version() {
    let definition = |name: &str, version: &str, value: u32| {
        asm(&format!(
            ".text\n.globl {name}\n.symver {name}, {version}\n{name}: mov ${value}, %eax; ret
             .section .note.GNU-stack,\"\",@progbits"
        ))
    };
    let (Some(old), Some(new), Some(calls_old), Some(calls_new)) = (
        definition("first", "choice@OLD", 1),
        definition("second", "choice@@NEW", 2),
        calling("test_old", "choice@OLD"),
        calling("test_new", "choice@NEW"),
    ) else {
        return;
    };
    let (jit, trackers) = linked(&[&calls_old, &calls_new, &old, &new]);
    assert_eq!((long(&jit, "test_old"), long(&jit, "test_new"), long(&jit, "choice")), (1, 2, 2));
    for tracker in trackers {
        assert!(tracker.remove().is_ok());
    }
    assert_eq!(jit.main_dylib().symbol_count(), 0);
    let Some(other) = calling("test", "choice@OTHER") else { return };
    let (jit, _trackers) = linked(&[&old, &new]);
    assert_says(&refused_in(&jit, &other, "test"), &["bad.o", "`choice@OTHER`"]);
}

// Seen red: the version was not found.
#[test]
#[cfg(target_env = "gnu")]
fn a_reference_to_a_version_of_a_library_symbol_gets_that_version() {
    // The old version of `realpath` does not allocate the result.
    let (Some(old), Some(new)) = (calling("old", "realpath@GLIBC_2.2.5"), calling("new", "realpath@GLIBC_2.3")) else {
        return;
    };
    let (jit, _trackers) = linked(&[&old, &new]);
    type RealPath = extern "C" fn(*const i8, *mut i8) -> usize;
    let call = |name| function::<RealPath>(&jit, name).call(c"/".as_ptr().cast(), std::ptr::null_mut());
    assert_eq!((call("old"), call("new") != 0), (0, true));
    for version in ["realpath@GLIBC_9.9", "no_such_function@GLIBC_2.2.5"] {
        let Some(absent) = calling("test", version) else { return };
        assert_says(&refused(&absent, "test"), &["bad.o", &format!("`{version}`")]);
    }
}

#[test]
fn the_first_weak_definition_wins_in_all_objects() {
    let source = |value: u32, function: &str| {
        format!(
            "__attribute__((weak)) long choice(void) {{ return {value}; }}
             __attribute__((weak)) long datum = {value};
             long {function}(void) {{ return choice() * 10 + datum; }}
             void *{function}_choice(void) {{ return (void *)choice; }}
             void *{function}_datum(void) {{ return &datum; }}"
        )
    };
    let (Some(a), Some(b)) = (c(&source(1, "a")), c(&source(2, "b"))) else { return };
    let (jit, trackers) = linked(&[&a, &b]);
    assert_eq!((long(&jit, "b"), long(&jit, "a")), (11, 11), "a was added first, although b is linked first");
    assert_eq!(long(&jit, "a_choice"), long(&jit, "b_choice"));
    assert_eq!(long(&jit, "a_datum"), long(&jit, "b_datum"));
    // b refers to definitions of a.
    let removal = trackers[0].remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    assert!(trackers[1].remove().unwrap().is_complete());
    assert!(removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_strong_definition_overrides_a_weak_one_that_nobody_has_looked_up() {
    let (Some(weak), Some(strong)) = (
        c("__attribute__((weak)) long choice(void) { return 1; } long test(void) { return choice(); }"),
        c("long choice(void) { return 2; }"),
    ) else {
        return;
    };
    for objects in [[&weak, &strong], [&strong, &weak]] {
        let (jit, _trackers) = linked(&[objects[0], objects[1]]);
        assert_eq!(long(&jit, "test"), 2);
    }
}

#[test]
fn an_undefined_weak_symbol_is_null_for_code_and_data() {
    let source = "
        extern long absent(long) __attribute__((weak));
        extern long absent_datum __attribute__((weak));
        long (*pointer)(long) = absent;
        long test(void) {
            long sum = 0;
            if (absent) sum += absent(1000);
            if (&absent_datum) sum += absent_datum;
            return sum + (pointer == 0) * 7;
        }";
    for flags in [["-O0", "-fPIC"], ["-O2", "-fPIC"], ["-O2", "-fPIE"], ["-O2", "-fno-plt"]] {
        let Some(object) = gcc(&flags, source) else { return };
        let (jit, trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 7, "{flags:?}");
        let Some(present) = c("long absent(long x) { return x; } long absent_datum = 30;") else { return };
        // An object that is linked after the definition exists uses it.
        assert!(trackers[0].remove().unwrap().is_complete());
        let _present = add(&jit, jit.main_dylib(), "present.o", &present);
        let _again = add(&jit, jit.main_dylib(), "object0.o", &object);
        assert_eq!(long(&jit, "test"), 1030, "{flags:?}");
    }
}

#[test]
fn cpp_objects_share_the_statics_of_inline_functions_and_templates() {
    let header = "
        template <class T> struct Counter { static long count; static long next() { return ++count; } };
        template <class T> long Counter<T>::count = 100;
        inline long &inline_static() { static long value = 5; return value; }
        inline long variable = 9;
        struct Base { virtual long id() { return 1; } virtual ~Base() {} };
        template <class T> struct Derived : Base { long id() override { return Counter<T>::next(); } };";
    let source = |function: &str| {
        format!(
            "{header}
             extern \"C\" long {function}() {{ inline_static() += 10; variable++; Derived<int> d; Base *b = &d;
                                              return b->id() * 10000 + inline_static() * 100 + variable; }}
             extern \"C\" void *{function}_static() {{ return &inline_static(); }}
             extern \"C\" void *{function}_count() {{ return &Counter<int>::count; }}"
        )
    };
    for flags in [["-O0", "-fPIC"], ["-O2", "-fPIC"]] {
        let flags = [&flags[..], &["-std=c++17"]].concat();
        let (Some(a), Some(b)) = (gxx(&flags, &source("a")), gxx(&flags, &source("b"))) else { return };
        let (jit, trackers) = linked(&[&a, &b]);
        assert_eq!(long(&jit, "a"), 101 * 10000 + 1500 + 10);
        assert_eq!(long(&jit, "b"), 102 * 10000 + 2500 + 11);
        assert_eq!(long(&jit, "a_static"), long(&jit, "b_static"));
        assert_eq!(long(&jit, "a_count"), long(&jit, "b_count"));
        // The second refers to groups of the first, so the first is freed last.
        assert!(!trackers[0].remove().unwrap().is_complete());
        assert!(trackers[1].remove().unwrap().is_complete());
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn hidden_symbols_are_visible_only_inside_their_dylib() {
    let (Some(hidden), Some(user)) = (
        gcc(
            &["-O2", "-fPIC", "-fvisibility=hidden"],
            "long secret(void) { return 6; } long secret_datum = 7;
             __attribute__((visibility(\"default\"))) long open(void) { return 8; }",
        ),
        c("extern long secret(void) __attribute__((visibility(\"hidden\")));
           extern long secret_datum __attribute__((visibility(\"hidden\")));
           long inside(void) { return secret() * 10 + secret_datum; }"),
    ) else {
        return;
    };
    let outsider = c("extern long secret(void); long outside(void) { return secret(); }").unwrap();
    let neighbour = c("extern long open(void); long beside(void) { return open(); }").unwrap();
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    let _hidden = add(&jit, &library, "hidden.o", &hidden);
    let _user = add(&jit, &library, "user.o", &user);
    assert_eq!(long_in(&jit, &library, "inside"), 67);

    let other = jit.create_dylib("other").unwrap();
    other.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let _outsider = add(&jit, &other, "outsider.o", &outsider);
    let _neighbour = add(&jit, &other, "neighbour.o", &neighbour);
    assert_eq!(long_in(&jit, &other, "beside"), 8);
    let error = jit.address_of(&other, "outside").unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_says(&error, &["`secret`", "outsider.o", "other, library"]);
}

#[test]
fn a_hidden_symbol_of_the_own_dylib_precedes_a_library_symbol() {
    let (Some(hidden), Some(exported), Some(user)) = (
        c("__attribute__((visibility(\"hidden\"))) long value(void) { return 1; }
           long first(void) { return value(); }"),
        c("long value(void) { return 2; }"),
        c("extern long value(void); long test(void) { return value(); }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let [library, dylib] = ["library", "user"].map(|name| jit.create_dylib(name).unwrap());
    dylib.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let _trackers = [(&library, &exported), (&dylib, &hidden), (&dylib, &user)]
        .map(|(dylib, object)| add(&jit, dylib, "object.o", object));
    assert_eq!((long_in(&jit, &library, "value"), long_in(&jit, &dylib, "first")), (2, 1), "both are linked");
    assert_eq!(long_in(&jit, &dylib, "test"), 1);
}

#[test]
fn the_same_name_in_two_dylibs_is_two_functions() {
    let (Some(one), Some(two)) = (c("long test(void) { return 1; }"), c("long test(void) { return 2; }")) else {
        return;
    };
    let jit = new_jit();
    let (a, b) = (jit.create_dylib("a").unwrap(), jit.create_dylib("b").unwrap());
    let (_one, _two) = (add(&jit, &a, "one.o", &one), add(&jit, &b, "two.o", &two));
    assert_eq!((long_in(&jit, &a, "test"), long_in(&jit, &b, "test")), (1, 2));
    assert!(jit.address_of(jit.main_dylib(), "test").is_err());
    let other = new_jit();
    assert!(other.address_of(other.main_dylib(), "test").is_err(), "sessions share no symbols");
}

#[test]
fn a_duplicate_definition_names_both_objects_and_adds_nothing() {
    let (Some(first), Some(second)) = (
        c("long twice(void) { return 1; }"),
        c("long twice(void) { return 2; } long only_in_second(void) { return 3; }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let first_tracker = add(&jit, jit.main_dylib(), "first.o", &first);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "second.o", second.clone()).unwrap_err();
    assert_says(&error, &["duplicate definition", "`twice`", "`main`", "first.o", "second.o"]);
    assert_eq!(long(&jit, "twice"), 1);
    assert!(jit.address_of(jit.main_dylib(), "only_in_second").is_err());
    assert_eq!(jit.main_dylib().symbol_count(), 1);
    // After the first is removed, the second can be added.
    first_tracker.remove().unwrap();
    jit.add_object(&tracker, "second.o", second).unwrap();
    assert_eq!(long(&jit, "twice"), 2);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_library_stays_when_dylibs_that_call_it_are_removed() {
    let (Some(base), Some(caller)) =
        (c("long base(void) { return 40; }"), c("extern long base(void); long test(void) { return base() + 2; }"))
    else {
        return;
    };
    let jit = new_jit();
    let library = jit.create_dylib("base").unwrap();
    let _base = add(&jit, &library, "base.o", &base);
    for round in 0..3 {
        let dylib = jit.create_dylib(&format!("caller {round}")).unwrap();
        dylib.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
        let _caller = add(&jit, &dylib, "caller.o", &caller);
        assert_eq!(long_in(&jit, &dylib, "test"), 42);
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
    }
    assert_eq!(long_in(&jit, &library, "base"), 40);
    assert_eq!(held(&jit).0, 1);
}

#[test]
fn initialisers_of_indirect_libraries_run_before_their_code_is_called() {
    let (Some(bottom), Some(middle), Some(top)) = (
        c("static long state; __attribute__((constructor)) static void set(void) { state = 5; }
           long bottom(void) { return state; }"),
        c("extern long bottom(void); long middle(void) { return bottom() * 10; }"),
        c("extern long middle(void); long top(void) { return middle() + 1; }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let [a, b, c] = ["a", "b", "c"].map(|name| jit.create_dylib(name).unwrap());
    let _held = [add(&jit, &a, "bottom.o", &bottom), add(&jit, &b, "middle.o", &middle), add(&jit, &c, "top.o", &top)];
    b.set_link_order(&[(a, Visibility::ExportedOnly)]).unwrap();
    c.set_link_order(&[(b, Visibility::ExportedOnly)]).unwrap();
    assert_eq!(long_in(&jit, &c, "top"), 51);
}

/// Each call links an object with a new name that calls `value`, and returns the result.
fn value_readers(jit: &Jit, dylib: &JitDylib) -> Option<impl FnMut() -> i64> {
    let template = c("extern long value(void); long ask0000(void) { return value(); }")?;
    let at: Vec<_> = (0..template.len() - 7).filter(|at| template[*at..].starts_with(b"ask0000")).collect();
    let (jit, dylib, mut number) = (jit.clone(), dylib.clone(), 0);
    Some(move || {
        number += 1;
        let (name, mut object) = (format!("ask{number:04}"), template.clone());
        at.iter().for_each(|at| object[*at..at + 7].copy_from_slice(name.as_bytes()));
        let tracker = add(&jit, &dylib, &name, &object);
        let value = long_in(&jit, &dylib, &name);
        tracker.remove().unwrap();
        value
    })
}

#[test]
fn a_link_uses_the_link_order_at_its_start() {
    let (Some(one), Some(two)) = (c("long value(void) { return 1; }"), c("long value(void) { return 2; }")) else {
        return;
    };
    let jit = new_jit();
    let [a, b, user] = ["a", "b", "user"].map(|name| jit.create_dylib(name).unwrap());
    let _held = [add(&jit, &a, "one.o", &one), add(&jit, &b, "two.o", &two)];
    let Some(mut read_value) = value_readers(&jit, &user) else { return };
    let all = Visibility::All;
    user.set_link_order(&[(a.clone(), all)]).unwrap();
    assert_eq!((read_value(), read_value()), (1, 1));
    user.set_link_order(&[(b.clone(), all), (a.clone(), all)]).unwrap();
    assert_eq!((read_value(), read_value()), (2, 2));
    user.remove_from_link_order(&b);
    assert_eq!((read_value(), read_value()), (1, 1));
    user.replace_in_link_order(&a, &b, all).unwrap();
    assert_eq!((read_value(), read_value()), (2, 2));
    user.add_to_link_order(&[(a.clone(), all)]).unwrap();
    assert_eq!(read_value(), 2);
    jit.session().remove_dylib(&b).unwrap();
    assert_eq!((read_value(), read_value()), (1, 1), "the removed dylib is not searched");
}

/// Adds an object that defines `value` when a lookup misses it.
struct ValueGenerator(Vec<u8>, Jit);

impl DefinitionGenerator for ValueGenerator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let tracker = dylib.default_tracker()?;
        let is_requested = missing.iter().any(|request| request.name == "value");
        if is_requested { self.1.add_object(&tracker, "late.o", self.0.clone()) } else { Ok(()) }
    }
}

#[test]
fn a_name_is_found_once_a_library_defines_it_after_earlier_misses() {
    let (Some(two), Some(three)) = (c("long value(void) { return 2; }"), c("long value(void) { return 3; }")) else {
        return;
    };
    let jit = new_jit();
    let [behind, separate] = ["behind", "separate"].map(|name| jit.create_dylib(name).unwrap());
    let _held = [add(&jit, &behind, "two.o", &two), add(&jit, &separate, "three.o", &three)];
    let address = jit.address_of(&separate, "value").unwrap().value();
    for way in ["object", "generator", "address"] {
        let [ahead, user] = ["ahead", "user"].map(|name| jit.create_dylib(&format!("{name} {way}")).unwrap());
        user.set_link_order(&[&ahead, &behind].map(|dylib| (dylib.clone(), Visibility::All))).unwrap();
        let Some(mut read_value) = value_readers(&jit, &user) else { return };
        assert_eq!((read_value(), read_value(), read_value()), (2, 2, 2));
        match way {
            "object" => drop(add(&jit, &ahead, "three.o", &three)),
            "generator" => ahead.add_generator(Arc::new(ValueGenerator(three.clone(), jit.clone()))),
            _ => define_absolute(&ahead, "value", address),
        }
        assert_eq!((read_value(), read_value()), (3, 3), "by {way}");
        ahead.clear().unwrap();
    }
}
