//! An initialiser that throws or panics: its object is rolled back, the exception propagates to the caller of the lookup, and
//! other objects are not affected.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use jittison::{ErrorKind, Jit};

use crate::recorder::{install, recording_jit, take};
use crate::support::*;

extern "C-unwind" fn panics(what: i64) -> i64 {
    std::panic::panic_any(what)
}

/// Static objects before and after one whose constructor fails, and a finaliser.
const FAILING: &str = "
    extern \"C\" long panics(long); extern \"C\" void record(long);
    struct Noted { long n; explicit Noted(long n) : n(n) { record(n); } ~Noted() { record(-n); } };
    struct Fails { Fails() { record(3); panics(33); } ~Fails() { record(-3); } };
    static Noted one(1); static Noted two(2); static Fails three; static Noted four(4);
    __attribute__((destructor)) static void gone() { record(99); }
    extern \"C\" long test() { return one.n; }";

fn failing_jit() -> Jit {
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn(i64) -> i64);
    jit
}

#[test]
fn a_failing_initialiser_rolls_its_module_back() {
    let (Some(failing), Some(good)) =
        (cpp(FAILING), c("extern void record(long); long test(void) { record(5); return 7; }"))
    else {
        return;
    };
    let jit = failing_jit();
    let before = jit.main_dylib().symbol_count();
    let tracker = add(&jit, jit.main_dylib(), "failing.o", &failing);
    let caught = catch_unwind(AssertUnwindSafe(|| long(&jit, "test"))).unwrap_err();
    assert_eq!(caught.downcast_ref::<i64>(), Some(&33), "the original panic value");
    assert_eq!(take(), [1, 2, 3, -2, -1], "constructed objects are destroyed in reverse");
    assert_eq!(jit.main_dylib().symbol_count(), before);
    assert!(jit.address_of(jit.main_dylib(), "test").is_err());
    assert_eq!(initialize(&jit, jit.main_dylib()), 0, "the failed object is not initialised again");
    // The same tracker can be used again.
    jit.add_object(&tracker, "good.o", &good[..]).unwrap();
    assert_eq!(long(&jit, "test"), 7);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [5], "the failed object's finaliser does not run");
    assert_eq!(held(&jit), (0, 0, 0));
}

/// An object whose initialisers record `base + 1` early and `base + 2` late, and whose finaliser records `base + 9`.
fn other(base: i64) -> Option<Vec<u8>> {
    c(&format!(
        "extern void record(long);
         __attribute__((constructor(150))) static void early(void) {{ record({base} + 1); }}
         __attribute__((constructor)) static void late(void) {{ record({base} + 2); }}
         __attribute__((destructor)) static void gone(void) {{ record({base} + 9); }}
         long other{base}(void) {{ return {base}; }}"
    ))
}

/// The object was in the queue twice, and each of its initialisers ran twice.
#[test]
fn an_object_that_was_interrupted_and_deinitialised_is_initialised_once() {
    let (Some(failing), Some(interrupted)) = (cpp(FAILING), other(200)) else { return };
    let jit = failing_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_eq!(initialize(&jit, jit.main_dylib()), 0);
    for (name, object) in [("failing.o", &failing), ("interrupted.o", &interrupted)] {
        jit.add_object(&tracker, name, &object[..]).unwrap();
    }
    // SAFETY: the objects are the test's own.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { jit.initialize(jit.main_dylib()) }));
    assert!(caught.is_err());
    assert_eq!(take(), [201, 1, 2, 3, -2, -1]);
    deinitialize(&jit, jit.main_dylib()).unwrap();
    assert_eq!(take(), [209]);
    assert_eq!(initialize(&jit, jit.main_dylib()), 2);
    assert_eq!(take(), [201, 202]);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [209]);
}

#[test]
fn other_objects_of_the_same_opening_continue_where_they_stopped() {
    let (Some(failing), Some(a), Some(b)) = (cpp(FAILING), other(100), other(200)) else { return };
    let jit = failing_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (name, object) in [("a.o", &a), ("failing.o", &failing), ("b.o", &b)] {
        jit.add_object(&tracker, name, &object[..]).unwrap();
    }
    // SAFETY: the objects are the test's own.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { jit.initialize(jit.main_dylib()) }));
    assert!(caught.is_err());
    assert_eq!(take(), [101, 201, 102, 1, 2, 3, -2, -1]);
    let error = deinitialize(&jit, jit.main_dylib()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotInitialized { .. }), "a failed opening does not count: {error}");
    assert_eq!(long(&jit, "other200"), 200);
    assert_eq!(take(), [202], "each initialiser once");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [209, 109]);
    assert_eq!(held(&jit), (0, 0, 0));
}

thread_local! {
    static INSIDE: RefCell<Option<Jit>> = const { RefCell::new(None) };
}

/// Called by linked code: looks up a function whose initialiser throws.
extern "C-unwind" fn load() -> i64 {
    let jit = INSIDE.with_borrow(|jit| jit.clone()).unwrap();
    long(&jit, "throwing")
}

#[test]
fn linked_code_catches_the_exception_of_an_initialiser_that_it_triggered() {
    let (Some(throwing), Some(catcher)) = (
        cpp("
            #include <stdexcept>
            extern \"C\" void record(long);
            struct Own : std::runtime_error { Own() : std::runtime_error(\"own\") {} };
            struct Guard { ~Guard() { record(-1); } }; static Guard guard;
            struct Fails { Fails() { throw Own(); } }; static Fails fails;
            extern \"C\" long throwing() { return 1; }"),
        cpp("
            #include <stdexcept>
            extern \"C\" long load();
            extern \"C\" long test() {
                try { return load(); } catch (const std::exception &e) { return e.what()[0]; }
            }"),
    ) else {
        return;
    };
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "load", load as extern "C-unwind" fn() -> i64);
    INSIDE.set(Some(jit.clone()));
    let tracker = add(&jit, jit.main_dylib(), "throwing.o", &throwing);
    let _catcher = add(&jit, jit.main_dylib(), "catcher.o", &catcher);
    assert_eq!(long(&jit, "test"), i64::from(b'o'), "the exception refers to text in the module that is rolled back");
    assert_eq!(take(), [-1]);
    assert!(jit.address_of(jit.main_dylib(), "throwing").is_err());
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), []);
    INSIDE.set(None);
}

static INITIALISES: Barrier = Barrier::new(2);

extern "C-unwind" fn panics_late() {
    INITIALISES.wait();
    // Gives the other thread time to find the symbol. If it is slower, it does not find the symbol, which is an error, too.
    thread::sleep(Duration::from_millis(200));
    std::panic::panic_any(1);
}

#[test]
fn a_lookup_that_waits_for_a_failing_initialiser_gets_an_error() {
    let Some(object) = cpp("
        extern \"C\" void panics_late();
        struct S { S() { panics_late(); } }; static S s;
        extern \"C\" long test() { return 4; }")
    else {
        return;
    };
    let jit = new_jit();
    install(&jit, jit.main_dylib());
    define_function(&jit, jit.main_dylib(), "panics_late", panics_late as extern "C-unwind" fn());
    let _tracker = add(&jit, jit.main_dylib(), "late.o", &object);
    thread::scope(|scope| {
        scope.spawn(|| assert!(catch_unwind(AssertUnwindSafe(|| long(&jit, "test"))).is_err()));
        INITIALISES.wait();
        let error = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test").unwrap_err();
        let is_expected =
            matches!(error.kind(), ErrorKind::InitializerFailed { .. } | ErrorKind::SymbolsNotFound { .. });
        assert!(is_expected, "{error}");
    });
}
