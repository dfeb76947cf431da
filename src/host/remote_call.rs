//! [`carry`]: calls of a [`Function`](super::Function) that another process runs.
//!
//! ```text
//!   controller                                          executor
//!   call of a `Function` ─► carry_call (assembly)       make_call (assembly) ─► the function
//!                           stores the registers ─────► loads them
//!                           loads the result     ◄───── stores it
//! ```
//!
//! `passed_call.rs` says what is passed, `arch` has the machine code of both sides.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use crate::arch;
use crate::base::{CallEntry, CodeHold, ExecutorAddr, catch};
use crate::error::{Error, Result};
use crate::host::passed_call::{CallRegisters, CallShape, PassedCall};
use crate::sync::{Arc, plain_thread_local};

/// The process that runs a function.
pub(crate) trait RemoteCalls: Send + Sync {
    /// Makes a call there. The caller keeps the code at `address` in memory.
    ///
    /// # Errors
    /// How the process ended, before or in the call.
    fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()>;
}

/// The hold of a function that another process runs.
pub(crate) struct RemoteHold {
    pub(crate) pin: Option<Arc<dyn CodeHold>>,
    pub(crate) calls: Box<dyn RemoteCalls>,
}

impl CodeHold for RemoteHold {
    fn enter_call(&self) -> Option<CallEntry> {
        self.pin.as_ref()?.enter_call()
    }
}

/// The process that runs the code of a hold, unless it is this one.
pub(super) fn remote_calls(hold: &Arc<dyn CodeHold>) -> Option<&dyn RemoteCalls> {
    let hold: &dyn Any = &**hold;
    hold.downcast_ref::<RemoteHold>().map(|hold| &*hold.calls)
}

/// A call on its way from [`carry`] through [`carry_call`] to the other process.
struct Outgoing<'a> {
    calls: &'a dyn RemoteCalls,
    address: ExecutorAddr,
    shape: CallShape,
    outcome: Option<Result<()>>,
}

plain_thread_local! {
    /// The [`Outgoing`] of the next [`carry_call`] of this thread.
    static NEXT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Calls the function at `address` in another process. `body` calls [`carrier`] as a function of the signature of `shape`, with
/// the arguments, and returns what it returns.
///
/// # Safety
/// - `body` does that, once, on this thread, and calls no other carrier before.
/// - In the other process, a function of this signature is at `address`, and something keeps its code in memory.
pub(super) unsafe fn carry<R>(
    calls: &dyn RemoteCalls,
    address: ExecutorAddr,
    shape: CallShape,
    body: impl FnOnce() -> MaybeUninit<R>,
) -> Result<R> {
    let mut outgoing = Outgoing { calls, address, shape, outcome: None };
    NEXT.set((&raw mut outgoing).cast());
    let value = body();
    outgoing.outcome.expect("`pass_on` stores the outcome before `body` returns")?;
    // SAFETY: H1 - the other process has called a function that returns an `R`, and `pass_on` has put what it returned where
    // the ABI has it.
    Ok(unsafe { value.assume_init() })
}

/// The address of [`carry_call`], a function of any signature.
pub(super) fn carrier() -> usize {
    carry_call as *const () as usize
}

/// Passes a call on, and gives the result to its caller.
///
/// # Safety
/// Only [`carry_call`] calls it: `registers` are those of its caller, and `stack` is where the arguments of its caller that are not in
/// registers begin.
unsafe extern "C" fn pass_on(registers: *mut CallRegisters, stack: *const u64) {
    let outgoing = NEXT.replace(ptr::null_mut()).cast::<Outgoing<'_>>();
    // SAFETY: H4 - `carry` of this thread stored the address of its own `Outgoing`, and waits for `carry_call`, which passes
    // its registers.
    let (outgoing, registers) = unsafe { (&mut *outgoing, &mut *registers) };
    // SAFETY: H1 - the caller of `carry` promised a call of this shape, which `carry_call` got.
    let mut call = unsafe { PassedCall::of_caller(outgoing.shape, registers, stack) };
    let outcome = catch(|| outgoing.calls.call(outgoing.address, &mut call));
    let outcome = outcome.unwrap_or_else(|panic| Err(Error::other(format!("a call in an executor panicked: {panic}"))));
    if outcome.is_ok() {
        // SAFETY: H1 - the other process has called a function of the same signature.
        unsafe { call.return_to_caller(registers) };
    }
    outgoing.outcome = Some(outcome);
}

unsafe extern "C-unwind" {
    /// Gets a call of any signature, and passes it to [`pass_on`].
    #[link_name = concat!("jittison_carry_call_", env!("CARGO_PKG_VERSION"))]
    fn carry_call();
}

// The name has the crate version, because a program may contain two versions of this crate.
arch::define_carrier!({ concat!("jittison_carry_call_", env!("CARGO_PKG_VERSION")) }, pass_on);

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::host::Function;
    use crate::sync::Mutex;

    /// Makes calls in this process, and keeps what was passed.
    struct Here(Mutex<Vec<PassedCall>>);

    impl Here {
        fn new() -> Arc<Here> {
            Arc::new(Here(Mutex::new(Vec::new())))
        }
    }

    struct Calls(Arc<Here>);

    impl RemoteCalls for Calls {
        fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()> {
            self.0.0.lock().push(call.clone());
            // SAFETY: H1 - each test makes its handle with the address and the type of a function of this program.
            unsafe { call.make(address) };
            Ok(())
        }
    }

    /// Fails or panics instead.
    struct Refuses(bool);

    impl RemoteCalls for Refuses {
        fn call(&self, _: ExecutorAddr, _: &mut PassedCall) -> Result<()> {
            assert!(!self.0, "by the test");
            Err(Error::other("no"))
        }
    }

    /// A handle to a function of this program that is called through `calls`.
    macro_rules! handle {
        ($calls:expr, $function:ident as $type:ty) => {{
            let hold: Arc<dyn CodeHold> = Arc::new(RemoteHold { pin: None, calls: Box::new($calls) });
            let address = ExecutorAddr::new($function as *const () as u64);
            // SAFETY: H1 - the function has this type.
            unsafe { Function::<$type>::with_hold(address, Some(hold)) }
        }};
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Mixed {
        integer: u64,
        float: f64,
    }

    extern "C" fn sum(a: i32, b: f64, c: Mixed, d: u8, e: u128, f: i64, g: f32, h: u64, i: u64, j: u64) -> f64 {
        let integers = a as f64 + d as f64 + e as f64 + f as f64 + h as f64 + 100.0 * (i as f64 + 100.0 * j as f64);
        integers + b + c.integer as f64 + c.float + g as f64
    }

    extern "C" fn swap(mixed: Mixed) -> Mixed {
        Mixed { integer: mixed.float as u64, float: mixed.integer as f64 }
    }

    #[repr(C)]
    #[derive(Debug, PartialEq)]
    struct Five([u64; 5]);

    extern "C" fn five(first: u64) -> Five {
        Five([first, first + 1, first + 2, first + 3, first + 4])
    }

    extern "C" fn next(number: u64) -> u64 {
        number + 1
    }

    #[test]
    fn a_call_that_was_passed_on_returns_what_a_call_returns() {
        let here = Here::new();
        let sum_there = handle!(
            Calls(here.clone()),
            sum as extern "C" fn(i32, f64, Mixed, u8, u128, i64, f32, u64, u64, u64) -> f64
        );
        let mixed = Mixed { integer: 3, float: 4.5 };
        let expected = sum(-1, 2.5, mixed, 5, 6, -7, 8.25, 9, 10, 11);
        assert_eq!(sum_there.try_call(-1, 2.5, mixed, 5, 6, -7, 8.25, 9, 10, 11).unwrap(), expected);
        assert_eq!(
            handle!(Calls(here.clone()), swap as extern "C" fn(Mixed) -> Mixed).try_call(mixed).unwrap(),
            swap(mixed)
        );
        let five_there = handle!(Calls(here), five as extern "C" fn(u64) -> Five);
        assert_eq!(five_there.try_call(7).unwrap(), Five([7, 8, 9, 10, 11]));
    }

    #[test]
    fn registers_without_arguments_and_words_beyond_them_are_not_passed_on() {
        let here = Here::new();
        let next_there = handle!(Calls(here.clone()), next as extern "C" fn(u64) -> u64);
        assert_eq!(next_there.try_call(41).unwrap(), 42);
        let passed = here.0.lock().pop().unwrap();
        assert_eq!(passed.registers.integers, [41, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(passed.registers.vectors[1..], [0; 7]);
        assert_eq!((passed.stack.len(), passed.result.len()), (0, 0));
    }

    #[test]
    fn a_call_that_is_not_made_is_an_error_and_the_next_one_is_made() {
        let refused = handle!(Refuses(false), next as extern "C" fn(u64) -> u64).try_call(1).unwrap_err();
        assert_eq!(refused.to_string(), "no");
        let panicked = handle!(Refuses(true), next as extern "C" fn(u64) -> u64).try_call(1).unwrap_err();
        assert_eq!(panicked.to_string(), "a call in an executor panicked: by the test");
        let next_there = handle!(Calls(Here::new()), next as extern "C" fn(u64) -> u64);
        assert_eq!(next_there.try_call(1).unwrap(), 2);
    }
}
