//! Reload points of Rust programs that `jittison watch --cargo` runs.
//!
//! A thread that never returns from its first function keeps every replaced version of every crate in memory. At a [`reload_point!`] it
//! says that it relies on the functions of its stack only, so the others are freed. [`is_replaced!`] only says whether the calling
//! function has a newer version, so that a loop can return and be called again. Without `watch` both do nothing and give false.
//!
//! ```
//! fn serve(requests: &mut u32) -> bool {
//!     while *requests > 0 {
//!         *requests -= 1;
//!         // SAFETY: `requests` is all that the loop keeps, and it has no reference to a constant.
//!         if unsafe { jittison_reload::reload_point!() } {
//!             return true;
//!         }
//!     }
//!     false
//! }
//!
//! let mut requests = 3;
//! while serve(&mut requests) {} // Each turn is in the newest version.
//! assert_eq!(requests, 0);
//! ```

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Passes a reload point. True if the crate of the calling function was reloaded since this version of it.
///
/// # Safety
/// This thread uses nothing of a replaced version afterwards, except the functions that are on its stack and what those name. So it has
/// no reference to a string literal or another constant, no `dyn` object, no closure and no future of a version that is replaced and
/// not on its stack. The macro is not used in a signal handler, and not while a suspended stack of this thread has such a frame.
///
/// ```compile_fail,E0133
/// jittison_reload::reload_point!();
/// ```
#[macro_export]
macro_rules! reload_point {
    () => {
        match $crate::functions() {
            Some(functions) => (functions.pass)() != 0,
            None => false,
        }
    };
}

/// Whether the crate of the calling function was reloaded since this version of it. Frees nothing.
#[macro_export]
macro_rules! is_replaced {
    () => {
        match $crate::functions() {
            Some(functions) => (functions.is_replaced)() != 0,
            None => false,
        }
    };
}

/// The functions of the process that runs the program.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Functions {
    pub pass: unsafe extern "C" fn() -> c_int,
    pub is_replaced: extern "C" fn() -> c_int,
}

/// `None` without `watch`. The macros call the functions themselves, because the answer depends on the caller.
#[doc(hidden)]
pub fn functions() -> Option<Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    *FUNCTIONS.get_or_init(|| {
        let (pass, is_replaced) = (find(c"jittison_reload_point")?, find(c"jittison_is_replaced")?);
        // SAFETY: the process that defines these names defines functions of these types.
        unsafe {
            Some(Functions {
                pass: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(pass),
                is_replaced: std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(is_replaced),
            })
        }
    })
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string. A null handle searches the process in its default order.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}
