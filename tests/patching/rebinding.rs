//! Rebindable objects: an object is replaced while other objects are linked against it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::{Error, ErrorKind, Jit, Patchable};

use crate::support::*;

fn add_rebindable(jit: &Jit, object: &[u8]) -> Result<Patchable, Error> {
    // SAFETY: the objects belong to the tests, and their initialisers may run.
    unsafe { jit.add_rebindable(jit.main_dylib(), "codec.o", object.to_vec()) }
}

fn replace(codec: &Patchable, object: &[u8]) -> Result<jittison::Committed, Error> {
    // SAFETY: as above. The signatures stay the same.
    unsafe { codec.replace("codec.o", object.to_vec()) }
}

/// `encode` and `decode`, which are inverse in each version, and a variable that counts calls.
fn codec(k: i64) -> Option<Vec<u8>> {
    c(&format!(
        "long calls; static long shift(void) {{ return {k}; }}\n\
         long encode(long n) {{ __atomic_fetch_add(&calls, 1, 0); return n + shift(); }}\n\
         long decode(long n) {{ return n - shift(); }}"
    ))
}

/// Calls both functions, and stores a pointer to one in its data.
const IMPORTER: &str = "long encode(long); long decode(long); extern long calls; long (*stored)(long) = encode;\n\
                        long there(long n) { return encode(n); }\n\
                        long back(long n) { return decode(n); }\n\
                        long by_pointer(long n) { return stored(n); }\n\
                        long counted(void) { return calls; }";

type Unary = extern "C" fn(i64) -> i64;

#[test]
fn importers_use_the_replacement_whenever_they_were_linked() {
    own_process!();
    let (Some(first), Some(second), Some(importer)) = (codec(10), codec(200), c(IMPORTER)) else { return };
    let jit = new_jit();
    let codec = add_rebindable(&jit, &first).unwrap();
    let early = add(&jit, jit.main_dylib(), "early.o", &importer);
    let [there, by_pointer] = ["there", "by_pointer"].map(|name| function::<Unary>(&jit, name));
    assert_eq!((there.call(1), by_pointer.call(1)), (11, 11));

    let replaced = replace(&codec, &second).unwrap();
    assert_eq!((there.call(1), by_pointer.call(1)), (201, 201), "linked before the replacement");
    assert_eq!(function::<Unary>(&jit, "back").call(201), 1);
    assert_eq!(long(&jit, "counted"), 4, "variables keep their values");
    assert_eq!(replaced.retired.len(), 1);

    let other = jit.create_dylib("other").unwrap();
    other.set_link_order(&[(jit.main_dylib().clone(), jittison::session::Visibility::ExportedOnly)]).unwrap();
    let late = add(&jit, &other, "late.o", &importer);
    let there_late = try_function::<Unary>(&jit, &other, "there").unwrap();
    assert_eq!(there_late.call(1), 201, "linked after the replacement");
    replace(&codec, &first).map(drop).unwrap();
    assert_eq!((there.call(1), there_late.call(1)), (11, 11));
    drop((there, there_late, by_pointer));
    assert!(early.remove().unwrap().is_complete() && late.remove().unwrap().is_complete());
}

#[test]
fn a_replaced_exporter_is_freed_while_its_importers_stay() {
    own_process!();
    // Without a variable that later versions would use.
    let version = |k: i64| c(&format!("long encode(long n) {{ return n + {k}; }}"));
    let user = c("long encode(long); long there(long n) { return encode(n); }");
    let (Some(first), Some(second), Some(user)) = (version(1), version(2), user) else { return };
    let jit = new_jit();
    let exporter = add_rebindable(&jit, &first).unwrap();
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    let there = function::<Unary>(&jit, "there");
    let before = held(&jit);
    for round in 0..50 {
        let object = if round % 2 == 0 { &second } else { &first };
        let replaced = replace(&exporter, object).unwrap();
        assert!(replaced.retired.iter().all(|old| old.is_complete()), "no thread is in the old version: {replaced:?}");
        assert_eq!(there.call(10), 12 - round % 2);
    }
    assert_eq!(held(&jit), before);
    assert_eq!(exporter.versions().len(), 1);
}

#[test]
fn a_replacement_that_lacks_a_function_is_refused_and_importers_stay() {
    own_process!();
    let (Some(first), Some(importer)) = (codec(10), c(IMPORTER)) else { return };
    let Some(lacking) = c("long encode(long n) { return -1; }") else { return };
    let jit = new_jit();
    let codec = add_rebindable(&jit, &first).unwrap();
    let _importer = add(&jit, jit.main_dylib(), "importer.o", &importer);
    let there = function::<Unary>(&jit, "there");
    let refused = replace(&codec, &lacking).unwrap_err();
    assert!(refused.to_string().contains("decode"), "{refused}");
    assert_eq!(there.call(1), 11);
}

#[test]
fn objects_without_new_functions_cannot_be_rebindable_and_leave_nothing() {
    own_process!();
    let (Some(variable), Some(first)) = (c("long only = 7;"), codec(10)) else { return };
    let jit = new_jit();
    let before = (held(&jit), jit.main_dylib().symbol_count(), jit.session().dylibs().len());
    assert!(matches!(add_rebindable(&jit, &variable).unwrap_err().kind(), ErrorKind::PatchRefused { .. }));
    assert_eq!((held(&jit), jit.main_dylib().symbol_count(), jit.session().dylibs().len()), before);
    let _there = add(&jit, jit.main_dylib(), "codec.o", &first);
    assert!(matches!(add_rebindable(&jit, &first).unwrap_err().kind(), ErrorKind::NotPatchable { .. }));
}

#[test]
fn importers_call_correctly_while_their_exporter_is_replaced() {
    own_process!();
    let (Some(first), Some(second), Some(importer)) = (codec(10), codec(200), c(IMPORTER)) else { return };
    let jit = new_jit();
    let codec = add_rebindable(&jit, &first).unwrap();
    let _importer = add(&jit, jit.main_dylib(), "importer.o", &importer);
    let is_over = AtomicBool::new(false);
    let calls: i64 = thread::scope(|threads| {
        let (jit, is_over) = (&jit, &is_over);
        let caller = move || {
            let there = function::<Unary>(jit, "there");
            let mut calls = 0;
            while !is_over.load(Ordering::Relaxed) {
                let _guard = jit.guard();
                let shift = there.call(calls) - calls;
                assert!(matches!(shift, 10 | 200), "{shift}");
                calls += 1;
            }
            calls
        };
        let callers = [threads.spawn(caller), threads.spawn(caller)];
        for round in 0..60 {
            let replaced = replace(&codec, if round % 2 == 0 { &second } else { &first });
            if replaced.is_err() || round == 59 {
                is_over.store(true, Ordering::Relaxed);
                replaced.map(drop).unwrap();
            }
        }
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(long(&jit, "counted"), calls, "each call is counted once");
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

thread_local! {
    static INSIDE: RefCell<Option<(Jit, Vec<u8>)>> = const { RefCell::new(None) };
    static OVERWRITING: RefCell<Option<(Jit, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Called by linked code: adds an object.
extern "C-unwind" fn load() {
    let (jit, object) = INSIDE.take().unwrap();
    add_rebindable(&jit, &object).map(drop).unwrap();
}

/// Called by linked code: links another object, which takes memory that was freed before.
extern "C" fn overwrite() {
    let (jit, object) = OVERWRITING.take().unwrap();
    add_rebindable(&jit, &object).map(drop).unwrap();
}

#[test]
fn the_exception_of_an_initialiser_outlives_the_rebindable_object_that_throws_it() {
    own_process!();
    let (Some(throwing), Some(catcher), Some(good)) = (
        cpp("#include <exception>
            struct Own : std::exception { const char *what() const noexcept override { return \"own\"; } };
            struct Fails { Fails() { throw Own(); } }; static Fails fails;
            extern \"C\" long encode(long n) { return n; }"),
        cpp("#include <exception>
            extern \"C\" void load(); extern \"C\" void overwrite();
            extern \"C\" long test() {
                try { load(); return 0; } catch (const std::exception &e) { overwrite(); return e.what()[0]; }
            }"),
        codec(10),
    ) else {
        return;
    };
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "load", load as extern "C-unwind" fn());
    define_function(&jit, jit.main_dylib(), "overwrite", overwrite as extern "C" fn());
    let catching = add(&jit, jit.main_dylib(), "catcher.o", &catcher);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    OVERWRITING.set(Some((jit.clone(), good)));
    INSIDE.set(Some((jit.clone(), throwing)));
    assert_eq!(test.call(), i64::from(b'o'), "the exception has its type in the object");
    assert_eq!(function::<Unary>(&jit, "encode").call(1), 11, "the name can be defined again");
    drop((test, catching));
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}
