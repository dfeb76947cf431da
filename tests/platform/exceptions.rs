//! Exceptions and panics pass through linked frames, run destructors and are caught by the right handler.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::recorder::{push, recording_jit, take};
use crate::support::*;

const THROWER: &str = "
    #include <stdexcept>
    #include <string>
    struct Own { long n; virtual ~Own() = default; };
    struct Derived : Own {};
    extern \"C\" long thrower(long what) {
        switch (what) {
            case 1: throw 40L;
            case 2: throw std::runtime_error(\"runtime\");
            case 3: { Derived own; own.n = 60; throw own; }
            case 4: throw std::string(\"text\");
        }
        return what;
    }";

const CATCHER: &str = "
    #include <stdexcept>
    #include <string>
    struct Own { long n; virtual ~Own() = default; };
    extern \"C\" void record(long);
    extern \"C\" long thrower(long);
    struct Guard { long n; ~Guard() { record(n); } };
    static long inner(long what) { Guard guard{10 + what}; return thrower(what); }
    extern \"C\" long catcher(long what) {
        try { Guard guard{20 + what}; return inner(what); }
        catch (long n) { return 100 + n; }
        catch (const std::exception &e) { return 200 + e.what()[0]; }
        catch (const Own &own) { return 300 + own.n; }
        catch (const std::string &text) { return 400 + (long)text.size(); }
        catch (...) { return 500; }
    }";

fn check_catcher(call: impl Fn(i64) -> i64) {
    assert_eq!(call(0), 0);
    assert_eq!(take(), [10, 20]);
    for (what, result) in [(1, 140), (2, 200 + i64::from(b'r')), (3, 360), (4, 404)] {
        assert_eq!(call(what), result);
        assert_eq!(take(), [10 + what, 20 + what]);
    }
}

#[test]
fn an_exception_is_thrown_and_caught_within_one_object() {
    for flags in [&["-O0", "-fPIC"][..], &["-O2", "-fPIC"], &["-O2", "-fPIC", "-fno-plt"], &["-Os", "-fPIC"]] {
        let thrower = THROWER.replace("struct Own { long n; virtual ~Own() = default; };", "");
        let Some(object) = gxx(flags, &format!("{CATCHER}\n{thrower}")) else { return };
        let jit = recording_jit();
        let tracker = add(&jit, jit.main_dylib(), "both.o", &object);
        let catcher = function::<extern "C" fn(i64) -> i64>(&jit, "catcher");
        check_catcher(|what| catcher.call(what));
        drop(catcher);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn an_exception_of_one_module_is_caught_in_another() {
    for flags in [["-O0", "-fPIC"], ["-O2", "-fPIC"]] {
        let (Some(thrower), Some(catcher)) = (gxx(&flags, THROWER), gxx(&flags, CATCHER)) else { return };
        let jit = recording_jit();
        let catching = add(&jit, jit.main_dylib(), "catcher.o", &catcher);
        let throwing = add(&jit, jit.main_dylib(), "thrower.o", &thrower);
        let catcher = function::<extern "C" fn(i64) -> i64>(&jit, "catcher");
        check_catcher(|what| catcher.call(what));
        drop(catcher);
        assert!(catching.remove().unwrap().is_complete() | throwing.remove().unwrap().is_complete());
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

thread_local! {
    /// `long callback(long)` of linked code, for [`through_rust`].
    static CALLBACK: Cell<usize> = const { Cell::new(0) };
}

struct Noted(i64);

impl Drop for Noted {
    fn drop(&mut self) {
        push(self.0);
    }
}

/// A frame of the host between two linked ones.
extern "C-unwind" fn through_rust(what: i64) -> i64 {
    let _noted = Noted(1000 + what);
    // SAFETY: the test stores a function with this signature, and keeps it.
    let callback: extern "C-unwind" fn(i64) -> i64 = unsafe { std::mem::transmute(CALLBACK.get()) };
    callback(what) + 1
}

#[test]
fn an_exception_passes_through_host_frames_and_drops_their_values() {
    let (Some(thrower), Some(catcher)) = (cpp(THROWER), cpp(&CATCHER.replace("thrower", "through_rust"))) else {
        return;
    };
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "through_rust", through_rust as extern "C-unwind" fn(i64) -> i64);
    let _throwing = add(&jit, jit.main_dylib(), "thrower.o", &thrower);
    let _catching = add(&jit, jit.main_dylib(), "catcher.o", &catcher);
    let thrower = function::<extern "C-unwind" fn(i64) -> i64>(&jit, "thrower");
    CALLBACK.set(thrower.address().value() as usize);
    let catcher = function::<extern "C-unwind" fn(i64) -> i64>(&jit, "catcher");
    assert_eq!(catcher.call(0), 1);
    assert_eq!(take(), [1000, 10, 20]);
    for (what, result) in [(1, 140), (2, 200 + i64::from(b'r')), (3, 360), (4, 404)] {
        assert_eq!(catcher.call(what), result);
        assert_eq!(take(), [1000 + what, 10 + what, 20 + what]);
    }
}

extern "C-unwind" fn panics(what: i64) -> i64 {
    let _noted = Noted(7);
    if what > 0 {
        std::panic::panic_any(what);
    }
    what
}

#[test]
fn a_panic_of_the_host_passes_through_linked_frames_and_runs_their_destructors() {
    let source = "
        extern \"C\" void record(long);
        extern \"C\" long panics(long);
        struct Guard { long n; ~Guard() { record(n); } };
        __attribute__((noinline)) static long inner(long x) { Guard guard{1}; return panics(x) + 1; }
        extern \"C\" long outer(long x) { Guard a{2}; Guard b{3}; return inner(x) * 10; }";
    for flags in [["-O0", "-fPIC"], ["-O2", "-fPIC"]] {
        let Some(object) = gxx(&flags, source) else { return };
        let jit = recording_jit();
        define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn(i64) -> i64);
        let tracker = add(&jit, jit.main_dylib(), "outer.o", &object);
        let outer = function::<extern "C-unwind" fn(i64) -> i64>(&jit, "outer");
        assert_eq!(outer.call(0), 10);
        assert_eq!(take(), [7, 1, 3, 2]);
        for what in 1..20 {
            let caught = catch_unwind(AssertUnwindSafe(|| outer.call(what))).unwrap_err();
            assert_eq!(caught.downcast_ref::<i64>(), Some(&what));
            assert_eq!(take(), [7, 1, 3, 2]);
        }
        drop(outer);
        assert!(tracker.remove().unwrap().is_complete());
    }
}

#[test]
fn a_panic_passes_through_c_frames_that_have_nothing_to_clean_up() {
    let Some(object) = gcc(
        &["-O2", "-fPIC", "-fexceptions"],
        "
        extern long panics(long);
        __attribute__((noinline)) static long inner(long x) { return panics(x) + 1; }
        long outer(long x) { return inner(x) * 10; }",
    ) else {
        return;
    };
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn(i64) -> i64);
    let _tracker = add(&jit, jit.main_dylib(), "outer.o", &object);
    let outer = function::<extern "C-unwind" fn(i64) -> i64>(&jit, "outer");
    assert!(catch_unwind(|| outer.call(5)).is_err());
    assert_eq!(take(), [7]);
}

#[test]
fn a_panic_of_an_initialiser_reaches_the_caller_of_the_lookup() {
    let Some(object) = cpp("
        extern \"C\" long panics(long);
        struct S { S() { panics(3); } }; static S s;
        extern \"C\" long test() { return 4; }")
    else {
        return;
    };
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn(i64) -> i64);
    let tracker = add(&jit, jit.main_dylib(), "panics.o", &object);
    let caught = catch_unwind(AssertUnwindSafe(|| long(&jit, "test"))).unwrap_err();
    assert_eq!(caught.downcast_ref::<i64>(), Some(&3));
    // The failed object blocks no other link, and its memory is freed.
    links_on(&jit);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_destructor_may_throw_and_catch_during_unwinding() {
    let Some(object) = cpp("
        extern \"C\" void record(long);
        static void quiet() { try { throw 5; } catch (int n) { record(n); } }
        struct Guard { ~Guard() { quiet(); } };
        extern \"C\" long test() {
            try { Guard guard; throw 9L; } catch (long n) { record(n); }
            try { try { throw 1L; } catch (long) { throw; } } catch (long n) { return n; }
            return -1;
        }")
    else {
        return;
    };
    let jit = recording_jit();
    let _tracker = add(&jit, jit.main_dylib(), "nested.o", &object);
    assert_eq!(long(&jit, "test"), 1);
    assert_eq!(take(), [5, 9]);
}
