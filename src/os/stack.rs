//! [`return_addresses`]: the return addresses of all frames of the calling thread.
//!
//! The unwinder walks the frames. It ends the walk in two cases: at the first frame of the thread, whose return address is undefined,
//! and at code without unwind information. `libgcc` reports a frame at address zero in the first case only. A walk that ends
//! otherwise, or that leaves the stack of the thread, is not complete. The unwinder of LLVM reports no such frame, so with that
//! one no walk is complete.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;

use crate::sync::plain_thread_local;

/// Addresses inside the calls that the frames of this thread wait for, the innermost first. `None` if the walk is not complete.
pub(crate) fn return_addresses() -> Option<Vec<u64>> {
    let mut walk = Walk { addresses: Vec::new(), stack: stack_of_this_thread()?, is_complete: false, has_left: false };
    // SAFETY: O2 - `add_frame` gets the address of `walk`, which lives through the call.
    unsafe { _Unwind_Backtrace(add_frame, (&raw mut walk).cast()) };
    (walk.is_complete && !walk.has_left).then_some(walk.addresses)
}

struct Walk {
    addresses: Vec<u64>,
    stack: RangeInclusive<usize>,
    /// Whether the end of the stack was reached.
    is_complete: bool,
    /// Whether a frame is on another stack.
    has_left: bool,
}

extern "C" fn add_frame(context: *mut c_void, walk: *mut c_void) -> c_int {
    let mut is_interrupted = 0;
    // SAFETY: O2 - the unwinder passes its context, and `is_interrupted` is local. `walk` is that of `return_addresses`.
    let (address, walk) = unsafe { (_Unwind_GetIPInfo(context, &mut is_interrupted), &mut *walk.cast::<Walk>()) };
    // SAFETY: O2 - as above.
    let frame = unsafe { _Unwind_GetCFA(context) };
    walk.has_left |= !walk.stack.contains(&frame);
    if address == 0 {
        walk.is_complete = true;
    } else {
        // A return address may be that of the next function.
        walk.addresses.push(address as u64 - u64::from(is_interrupted == 0));
    }
    0
}

/// The first and the last address of the stack of the calling thread. It is asked once for each thread.
fn stack_of_this_thread() -> Option<RangeInclusive<usize>> {
    plain_thread_local! {
        static STACK: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    }
    let known = STACK.get().or_else(|| {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: O2 - the C library writes to `attributes`, which is local.
        if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
            return None;
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: O2 - the call above has written `attributes`; the others are local.
        let result = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) };
        // SAFETY: O2 - as above, and they are not used again.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        (result == 0).then(|| (low.addr(), low.addr().saturating_add(size)))
    })?;
    STACK.set(Some(known));
    Some(known.0..=known.1)
}

// The unwinder of the C++ ABI (Itanium C++ ABI, "Exception Handling"), which `std` links.
unsafe extern "C" {
    fn _Unwind_Backtrace(trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before_instruction: *mut c_int) -> usize;
}
