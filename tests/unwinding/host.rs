//! The code with which the tests link their objects: a function that throws or panics, and one that calls `outer`, catches the
//! exception, and checks that the unwinder restores the registers that a function must preserve.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use jittison::{Function, Jit, JitDylib};

use crate::support::*;

/// Panics with negative numbers and returns other numbers.
extern "C-unwind" fn panics(x: i64) -> i64 {
    if x < 0 {
        // Without a message on the standard error.
        resume_unwind(Box::new(x));
    }
    x
}

/// `thrower` throws positive numbers, panics with negative ones and returns zero.
///
/// `catcher` calls `outer` through `bridge`. If `outer` is a signal frame, the unwinder takes the return address in its
/// caller for the interrupted instruction. A `try` in that caller may end before this address.
const CROSSING: &str = "
    extern \"C\" long panics(long);
    extern \"C\" long outer(long);
    extern \"C\" long thrower(long x) { if (x > 0) throw x; return panics(x); }
    extern \"C\" __attribute__((noinline)) long bridge(long x) { return outer(x) + 7; }
    extern \"C\" long catcher(long x, long a, long b, long c) {
        try { return bridge(x) - 7 + a * b * c; } catch (long v) { return v * 1000 + a * 100 + b * 10 + c; }
    }";

/// The object that throws and catches; `None` without a compiler.
pub fn crossing() -> Option<&'static [u8]> {
    static OBJECT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    OBJECT.get_or_init(|| cpp(CROSSING)).as_deref()
}

/// Lets the objects of a dylib call `panics`.
pub fn install(dylib: &JitDylib) {
    define_absolute(dylib, "panics", panics as *const () as u64);
}

pub type Bridge = Function<extern "C-unwind" fn(i64) -> i64>;

/// Links `object`, whose `outer(x)` returns `thrower(x)`, and checks that exceptions and panics pass through it.
pub fn passes_through(object: &[u8], what: &str) {
    let Some(crossing) = crossing() else { return };
    let jit = new_jit();
    install(jit.main_dylib());
    let trackers = [add(&jit, jit.main_dylib(), "crossing.o", crossing), add(&jit, jit.main_dylib(), what, object)];
    passes_through_linked(&jit, jit.main_dylib(), what);
    assert!(trackers[0].remove().unwrap().is_complete() | trackers[1].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0), "{what}");
}

/// Checks the same for objects that a dylib already has.
pub fn passes_through_linked(jit: &Jit, dylib: &JitDylib, what: &str) {
    let catcher = try_function::<extern "C" fn(i64, i64, i64, i64) -> i64>(jit, dylib, "catcher").unwrap();
    let bridge: Bridge = try_function(jit, dylib, "bridge").unwrap();
    assert_eq!(catcher.call(0, 2, 3, 4), 24, "{what}");
    for x in 1..4 {
        assert_eq!(catcher.call(x, 2, 3, 4), x * 1000 + 234, "{what}");
        let caught = catch_unwind(AssertUnwindSafe(|| bridge.call(-x))).unwrap_err();
        assert_eq!(caught.downcast_ref::<i64>(), Some(&-x), "{what}");
    }
}

/// Whether the process's unwinder is LLVM's.
pub fn is_llvm() -> bool {
    unwinder().contains("libunwind.so.1")
}

/// The file that the process's unwinder comes from.
pub fn unwinder() -> String {
    // SAFETY: zeroes are valid for `Dl_info`. The loader only compares the address. The name is a C string of a library that
    // stays open.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let address = libc::dlsym(libc::RTLD_DEFAULT, c"_Unwind_RaiseException".as_ptr());
        assert_ne!(libc::dladdr(address, &mut found), 0);
        CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()
    }
}
