//! What every function does first and last: it turns failures and panics into errors of LLVM.

use std::any::Any;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use jittison::Error;

use crate::llvm::Opaque;
use crate::llvm_error::to_llvm;
use crate::session::Session;

/// Runs the body of a function that returns an error of LLVM.
///
/// The values that a body uses are those of the Rust crate, whose own methods may panic only for a defect, and tables whose
/// locks are not held while other code runs. So a panic leaves nothing half done here.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Error>) -> Opaque {
    match outcome(body) {
        Ok(()) => ptr::null_mut(),
        Err(error) => to_llvm(&error),
    }
}

/// Runs the body of a function that returns no error. A failure goes to the error reporter of the session, and `otherwise` is
/// returned.
pub(crate) fn run_or_report<R>(session: Option<&Session>, otherwise: R, body: impl FnOnce() -> Result<R, Error>) -> R {
    outcome(body).unwrap_or_else(|error| {
        Session::report_to(session, &error);
        otherwise
    })
}

fn outcome<R>(body: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(panic_error(&*payload)))
}

fn panic_error(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Error::other(format!("a panic in jittison: {}", text.unwrap_or_else(|| "without a text".to_string())))
}

/// Makes a value that the program owns.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Drops a value that the program gives back. A panic of the drop is reported.
///
/// # Safety
/// As [`take_back`].
pub(crate) unsafe fn dispose<T>(value: *mut T) {
    run_or_report(None, (), || {
        // SAFETY: O2 - the caller promises it.
        unsafe { take_back(value) };
        Ok(())
    });
}

/// Takes a value back that the program owned, and drops it. Null is allowed.
///
/// # Safety
/// O2: the value was made by [`give`] and is given away.
pub(crate) unsafe fn take_back<T>(value: *mut T) {
    if !value.is_null() {
        // SAFETY: O2 - the caller promises it.
        drop(unsafe { Box::from_raw(value) });
    }
}

/// Reads a string of the program.
///
/// # Safety
/// O1: null, or a string of C that stays during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::other(format!("{what} is null")));
    }
    // SAFETY: O1 - the caller promises it.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Error::other(format!("{what} is not UTF-8: {bytes:?}")))
}

/// Reads an array of the program. Null is an empty array.
///
/// # Safety
/// O1: null, or `count` values that stay during the call.
pub(crate) unsafe fn slice<'a, T>(values: *const T, count: usize) -> &'a [T] {
    if values.is_null() {
        return &[];
    }
    // SAFETY: O1 - the caller promises it.
    unsafe { std::slice::from_raw_parts(values, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_does_not_leave_the_library() {
        let error = outcome(|| -> Result<(), Error> { panic!("the reason {}", 1) }).unwrap_err();
        assert_eq!(error.to_string(), "a panic in jittison: the reason 1");
        assert_eq!(run_or_report(None, 7, || panic!("the reason")), 7);
    }
}
