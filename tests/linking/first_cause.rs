//! The first cause of a cascade of links: object `a.o` needs `b.o`, that needs `c.o`, and `c.o` has a relocation that is refused. Every
//! way to ask for `a` names the cause, with object, section and symbol, once.

use std::sync::{Arc, Mutex};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::host::LazyFailureHandler;
use jittison::session::{Alias, SymbolFlags, Visibility};
use jittison::{Error, Jit, JitDylib};

use crate::support::*;

/// The objects `a.o`, `b.o` and `c.o`.
fn objects() -> Option<[Vec<u8>; 3]> {
    let refused = "
        .text
        .globl c
        c: ret
        .section .refused, \"aw\"
        place: .quad 0
        .reloc place, R_X86_64_RELATIVE, c
        .section .note.GNU-stack,\"\",@progbits";
    Some([
        c("extern long b(void); long a(void) { return b(); } long a2(void) { return 2; }")?,
        c("extern long c(void); long b(void) { return c(); }")?,
        asm(refused)?,
    ])
}

const CAUSE: [&str; 5] = ["cannot link c.o: ", "R_X86_64_RELATIVE", "section `.refused`", "offset 0x0", "symbol `c`"];

#[track_caller]
fn assert_names_cause(error: &Error) {
    assert_says(error, &CAUSE);
    assert_eq!(error.to_string().matches("cannot link c.o").count(), 1, "{error}");
    assert_says(error.root_cause(), &CAUSE);
    assert!(error.to_string().len() < 1_000, "{error}");
}

/// The memory of code that failed because of other code is freed with its tracker.
#[track_caller]
fn assert_nothing_left(jit: &Jit) {
    assert_eq!(jit.main_dylib().symbol_count(), 0);
    jit.main_dylib().default_tracker().unwrap().remove().unwrap();
    assert_eq!(held(jit), (0, 0, 0));
}

fn add_all(jit: &Jit, dylib: &JitDylib, objects: &[(&str, &[u8])]) {
    objects.iter().for_each(|(name, bytes)| drop(add(jit, dylib, name, bytes)));
}

#[test]
fn a_lookup_of_the_first_object_names_the_cause_in_the_last_and_so_does_each_lookup_after_it() {
    let Some([a, b, c]) = objects() else { return };
    let jit = new_jit();
    add_all(&jit, jit.main_dylib(), &[("a.o", &a), ("b.o", &b), ("c.o", &c)]);
    let first = jit.address_of(jit.main_dylib(), "a").unwrap_err();
    assert_says(&first, &["failed to materialize `a`", "which needs `b`, which needs `c`: cannot link c.o"]);
    assert_names_cause(&first);
    for name in ["a", "a2", "b", "c"] {
        let later = jit.address_of(jit.main_dylib(), name).unwrap_err();
        assert_says(&later, &["symbols not found", name]);
        assert_names_cause(&later);
    }
    assert_nothing_left(&jit);
    let _again = add(&jit, jit.main_dylib(), "c.o", &crate::support::c("long c(void) { return 3; }").unwrap());
    add_all(&jit, jit.main_dylib(), &[("a.o", &a), ("b.o", &b)]);
    assert_eq!(long(&jit, "a"), 3, "the session works on");
}

#[test]
fn linking_at_once_in_any_order_names_the_cause() {
    let Some([a, b, c]) = objects() else { return };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    add_all(&jit, jit.main_dylib(), &[("b.o", &b), ("c.o", &c)]);
    let link = |name: &str, bytes: &[u8]| jit.link_object(&tracker, name, bytes).unwrap_err();
    assert_names_cause(&link("a.o", &a));
    // `c` is gone, and `b` with it.
    assert_names_cause(&link("a.o", &a));
    assert_names_cause(&link("b.o", &b));
    assert_names_cause(&link("c.o", &c));
    tracker.remove().unwrap();
    assert_nothing_left(&jit);
}

#[test]
fn lookups_on_several_threads_all_name_the_cause() {
    let Some([a, b, c]) = objects() else { return };
    for round in 0..rounds(60) {
        let jit = Jit::builder().worker_threads(round % 3).build().unwrap();
        let users = ["x", "y", "z"].map(|name| {
            crate::support::c(&format!("extern long a(void), b(void); long {name}(void) {{ return a() + b(); }}"))
                .unwrap()
        });
        add_all(&jit, jit.main_dylib(), &[("a.o", &a), ("b.o", &b), ("c.o", &c)]);
        add_all(&jit, jit.main_dylib(), &[("x.o", &users[0]), ("y.o", &users[1]), ("z.o", &users[2])]);
        thread::scope(|scope| {
            for name in ["x", "y", "z", "a", "b", "c"] {
                let jit = &jit;
                scope.spawn(move || assert_names_cause(&jit.address_of(jit.main_dylib(), name).unwrap_err()));
            }
        });
        assert_nothing_left(&jit);
    }
}

#[test]
fn another_dylib_an_alias_a_reexport_and_an_archive_pass_the_cause_on() {
    let Some([a, b, c]) = objects() else { return };
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    let names = jit.main_dylib().create_tracker().unwrap();
    let alias = |name: &str, aliasee: &str| Alias {
        name: Name::new(name),
        aliasee: Name::new(aliasee),
        flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
    };
    names.define_aliases(&[alias("alias", "a")]).unwrap();
    names.reexport(&library, &[alias("reexport", "b")]).unwrap();
    jit.main_dylib().set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let fails = |name: &str| {
        add_all(&jit, jit.main_dylib(), &[("a.o", &a)]);
        add_all(&jit, &library, &[("b.o", &b), ("c.o", &c)]);
        let error = jit.address_of(jit.main_dylib(), name).unwrap_err();
        assert_names_cause(&error);
        drop(library.clear().unwrap());
        jit.main_dylib().default_tracker().unwrap().remove().unwrap();
        error
    };
    assert_says(&fails("a"), &["`a`, `a2` in dylib `main`, which needs `b` of dylib `library`, which needs `c`:"]);
    assert_says(&fails("alias"), &["`alias` in dylib `main`, which needs `a`, which needs `b` of dylib `library`"]);
    assert_says(&fails("reexport"), &["`reexport` in dylib `main`, which needs `b` of dylib `library`"]);

    let directory = PrivateDir::new();
    let members: [(&str, &[u8]); 2] = [("b.o", &b), ("c.o", &c)];
    let Some(archive) = directory.archive("ar", &["rcs"], "libbc.a", &members) else { return };
    for is_whole in [false, true] {
        let jit = new_jit();
        if is_whole {
            jit.add_archive_whole(&jit.main_dylib().default_tracker().unwrap(), &archive).unwrap();
        } else {
            jit.link_static_library(jit.main_dylib(), &archive).unwrap();
        }
        add_all(&jit, jit.main_dylib(), &[("a.o", &a)]);
        for _ in 0..2 {
            let error = jit.address_of(jit.main_dylib(), "a").unwrap_err();
            assert_says(
                &error,
                &["cannot link libbc.a(c.o): ", "R_X86_64_RELATIVE", "section `.refused`", "symbol `c`"],
            );
        }
    }
}

extern "C" fn stand_in() -> i64 {
    -1
}

#[test]
fn the_handler_of_a_lazy_function_gets_the_cause() {
    let Some([a, b, c]) = objects() else { return };
    let errors = Arc::new(Mutex::new(Vec::new()));
    let recorded = errors.clone();
    // SAFETY: the only lazy function is called with the signature of `stand_in`.
    let handler = unsafe {
        LazyFailureHandler::new(move |failure| {
            recorded.lock().unwrap().push((failure.error.clone(), failure.to_string()));
            Some(ExecutorAddr::new(stand_in as *const () as u64))
        })
    };
    let jit = Jit::builder().lazy_failure_handler(handler).build().unwrap();
    let library = jit.create_dylib("library").unwrap();
    add_all(&jit, &library, &[("a.o", &a), ("b.o", &b), ("c.o", &c)]);
    let names = jit.main_dylib().create_tracker().unwrap();
    let (name, aliasee, flags) = (Name::new("lazy"), Name::new("a"), SymbolFlags::EXPORTED);
    jit.lazy_reexport(&names, &library, &[Alias { name, aliasee, flags }]).unwrap();
    let lazy = function::<extern "C" fn() -> i64>(&jit, "lazy");
    // The second call comes after the failure.
    assert_eq!((lazy.call(), lazy.call()), (-1, -1));
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2);
    for (error, text) in errors.iter() {
        assert_names_cause(error);
        assert!(text.contains("cannot link c.o: "), "{text}");
    }
}

#[test]
fn a_lookup_after_a_failed_initialiser_names_its_object() {
    let (Some(thrower), Some(user)) = (
        cpp("struct S { S() { throw 1; } }; static S s; extern \"C\" long f() { return 4; }"),
        c("extern long f(void); long user(void) { return f(); }"),
    ) else {
        return;
    };
    let Some(catcher) = cpp("
        extern \"C\" void load();
        extern \"C\" long test() { try { load(); return 0; } catch (int) { return 1; } }")
    else {
        return;
    };
    thread_local! {
        static JIT: std::cell::RefCell<Option<Jit>> = const { std::cell::RefCell::new(None) };
    }
    extern "C-unwind" fn load() {
        let jit = JIT.with_borrow(Clone::clone).unwrap();
        let _ = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "f");
    }
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "load", load as extern "C-unwind" fn());
    JIT.set(Some(jit.clone()));
    let _catcher = add(&jit, jit.main_dylib(), "catcher.o", &catcher);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    let thrower = add(&jit, jit.main_dylib(), "thrower.o", &thrower);
    assert_eq!(test.call(), 1);
    JIT.set(None);
    add_all(&jit, jit.main_dylib(), &[("user.o", &user)]);
    for name in ["f", "user", "user"] {
        let error = jit.address_of(jit.main_dylib(), name).unwrap_err();
        assert_eq!(error.root_cause().to_string(), "an initialiser of thrower.o failed", "{error}");
    }
    drop(test);
    thrower.remove().unwrap();
}
