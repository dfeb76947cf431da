//! [`at_stack_end`]: calls a function so that the unwinder finds the end of the stack below it.
//!
//! If no handler catches a C++ exception, the program must call `std::terminate`. The unwinder searches for a handler
//! first. It reports the end of the stack to the throw, which then calls `std::terminate` before any frame is unwound.
//! But below Rust's `main` there is a frame that catches everything. The search would stop at that frame, and
//! `std::terminate` would not be called.
//!
//! So this file has a frame whose return address is undefined for the unwinder (DWARF 5, 6.4.4), like that of `_start`. The
//! search ends there, as below the `main` of a native program.

use std::cell::RefCell;
use std::ffi::c_void;

use crate::arch;
use crate::base::is_call_entry_enabled;
use crate::os;
use crate::sync::plain_thread_local;

/// Calls `body`. A panic that leaves `body` ends the process.
pub(super) fn at_stack_end<F: FnOnce() -> R, R>(body: F) -> R {
    let mut call = Call { body: Some(body), result: None };
    // Without counted calls, no frame below is in a version.
    let below = if is_call_entry_enabled() { os::return_addresses() } else { Some(Vec::new()) };
    let is_noted = BELOW.try_with(|frames| frames.borrow_mut().push(below)).is_ok();
    // SAFETY: H4 - `stack_end` calls `enter::<F, R>` with the address of `call`, a `Call<F, R>` on this stack, and returns
    // after it.
    unsafe { stack_end(enter::<F, R>, (&raw mut call).cast()) };
    if is_noted {
        let _ = BELOW.try_with(|frames| frames.borrow_mut().pop());
    }
    call.result.expect("`enter` returns only with a result")
}

/// The return addresses of this thread that the unwinder does not find, because they are below an end. `None` if they are not known.
#[cfg(feature = "reload")]
pub(super) fn addresses_below() -> Option<Vec<u64>> {
    // The list is gone when destructors of the thread run.
    let all = BELOW.try_with(|frames| frames.borrow().iter().cloned().collect::<Option<Vec<Vec<u64>>>>());
    all.ok().flatten().map(|frames| frames.concat())
}

plain_thread_local! {
    /// For each end on the stack of this thread, what is below it.
    static BELOW: RefCell<Vec<Option<Vec<u64>>>> = const { RefCell::new(Vec::new()) };
}

struct Call<F, R> {
    body: Option<F>,
    result: Option<R>,
}

/// Runs the body and stores its result.
///
/// # Safety
/// `call` is the address of the `Call<F, R>` of the [`at_stack_end`] that waits for this call.
unsafe extern "C-unwind" fn enter<F: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: H4 - `at_stack_end` passed its own `Call<F, R>`, and does not touch it until this function returns.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.body.take().map(|body| body());
}

/// The name has the crate version, because a program may contain two versions of this crate.
macro_rules! symbol {
    () => {
        concat!("\"jittison_stack_end_", env!("CARGO_PKG_VERSION"), "\"")
    };
}

unsafe extern "C-unwind" {
    /// Calls `function(argument)`.
    #[link_name = concat!("jittison_stack_end_", env!("CARGO_PKG_VERSION"))]
    fn stack_end(function: unsafe extern "C-unwind" fn(*mut c_void), argument: *mut c_void);
}

arch::define_stack_end!({ symbol!() });
