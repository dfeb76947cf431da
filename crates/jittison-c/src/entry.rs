//! What every function does first and last: it turns a panic into an error, and checks its out-parameters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::error::{ErrorObject, Failure};

/// Runs the body of a function. A panic becomes an error.
///
/// The values that the body uses are those of the Rust crate, whose own methods may panic only for a defect, and tables whose
/// locks are not held while other code runs. So a panic leaves nothing half done here.
#[inline]
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failure>) -> *mut ErrorObject {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => finish(outcome),
        Err(payload) => finish(Err(Failure::panic(&*payload))),
    }
}

/// Runs the body of a function that runs linked code on this thread. `prepare` is caught as in [`run`]. An exception that leaves
/// `act` passes on to the caller: Rust cannot catch a foreign one.
#[inline]
pub(crate) fn run_linked_code<P>(
    prepare: impl FnOnce() -> Result<P, Failure>,
    act: impl FnOnce(P) -> Result<(), Failure>,
) -> *mut ErrorObject {
    match catch_unwind(AssertUnwindSafe(prepare)) {
        Ok(prepared) => finish(prepared.and_then(act)),
        Err(payload) => finish(Err(Failure::panic(&*payload))),
    }
}

#[inline]
fn finish(outcome: Result<(), Failure>) -> *mut ErrorObject {
    match outcome {
        Ok(()) => ptr::null_mut(),
        Err(failure) => failure.into_raw(),
    }
}

/// Checks an out-parameter that must be there.
#[inline]
pub(crate) fn check_out<T>(out: *mut T, name: &str) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::argument(format!("the out-parameter `{name}` is null")));
    }
    if !out.is_aligned() {
        return Err(Failure::argument(format!("the out-parameter `{name}` at {out:p} is not aligned")));
    }
    Ok(())
}

/// Checks an out-parameter, makes the value and writes it.
///
/// # Safety
/// C1 for `out`.
#[inline]
pub(crate) unsafe fn put<T>(out: *mut T, name: &str, make: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
    check_out(out, name)?;
    let value = make()?;
    // SAFETY: C1 - not null and aligned, as checked above; the caller promises the memory.
    unsafe { out.write(value) };
    Ok(())
}

/// Refuses an out-parameter that is misaligned. It may be null.
pub(crate) fn check_optional_out<T>(out: *mut T, name: &str) -> Result<(), Failure> {
    if out.is_null() { Ok(()) } else { check_out(out, name) }
}

/// Writes the start and the size of some bytes.
///
/// # Safety
/// C1 for both out-parameters.
pub(crate) unsafe fn put_bytes<P>(start: *mut P, size: *mut usize, bytes: (P, usize)) -> Result<(), Failure> {
    check_out(start, "bytes")?;
    check_out(size, "size")?;
    // SAFETY: C1 - the caller promises both.
    unsafe {
        start.write(bytes.0);
        size.write(bytes.1);
    }
    Ok(())
}

/// Writes an out-parameter that may be null.
///
/// # Safety
/// C1 for `out`.
pub(crate) unsafe fn put_if_wanted<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: C1 - the caller promises the memory.
        unsafe { out.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    #[test]
    fn a_panic_becomes_an_error_and_does_not_leave_the_library() {
        let code_of = |error: *mut ErrorObject| {
            // SAFETY: C2 - the error was made here, and is freed once.
            let failure = unsafe { Box::from_raw(error) };
            assert!(failure.message().contains("a panic in jittison: the reason"), "{}", failure.message());
            failure.code()
        };
        assert_eq!(code_of(run(|| panic!("the reason"))), code::PANIC);
        let prepare = || -> Result<(), Failure> { panic!("the reason {}", 1) };
        assert_eq!(code_of(run_linked_code(prepare, |()| Ok(()))), code::PANIC);
    }
}
