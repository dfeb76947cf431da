//! [`Callback`]: a function of another process, as code of this process calls it.
//!
//! ```text
//!   entry (linked memory)        carry_back (assembly)        pass_back
//!   number, jump by slot ──────► stores the registers ──────► finds the target by number, which passes the call on
//!                                loads the result      ◄─────
//! ```
//!
//! The entry is that of a lazy function (`call_through.rs`), with another address in its slot. [`HostFunction`] is the other side:
//! it makes the call in the process that has the function.

use std::collections::HashMap;

use crate::arch;
use crate::base::ExecutorAddr;
use crate::host::lazy_failure::abort;
use crate::host::passed_call::{CallRegisters, CallShape, PassedCall};
use crate::sync::{Arc, StaticMutex};

/// What is behind an entry. Called without a lock.
pub(crate) trait CallbackTarget: Send + Sync {
    /// What a call of the entry passes.
    fn shape(&self) -> CallShape;

    /// Makes the call. The text with which the process aborts, if it cannot be made.
    fn call(&self, call: &mut PassedCall) -> std::result::Result<(), String>;
}

/// A function of this process.
pub(crate) struct HostFunction {
    address: ExecutorAddr,
    shape: CallShape,
}

impl HostFunction {
    /// # Safety
    /// At `address` is a function of this shape. It stays in memory while the value lives, and may be called with whatever
    /// arguments are passed.
    pub(crate) unsafe fn new(address: ExecutorAddr, shape: CallShape) -> HostFunction {
        HostFunction { address, shape }
    }
}

impl CallbackTarget for HostFunction {
    fn shape(&self) -> CallShape {
        self.shape
    }

    fn call(&self, call: &mut PassedCall) -> std::result::Result<(), String> {
        let [_, stack_words, result_bytes] = self.shape.words();
        if (call.stack.len() as u64, call.result.len() as u64) != (stack_words, result_bytes) {
            return Err("a function of the process that links was called with another signature".to_string());
        }
        // SAFETY: H1, H2 - whoever made this value promised a function of this shape, that it stays, and that it may be called with
        // any arguments.
        unsafe { call.make(self.address) };
        Ok(())
    }
}

/// A registered target. Drop it only when no thread can run its entry any more: that deregisters the target.
pub(super) struct Callback {
    number: u64,
}

struct Targets {
    next: u64,
    by_number: Option<HashMap<u64, Arc<dyn CallbackTarget>>>,
}

static TARGETS: StaticMutex<Targets> = StaticMutex::new(Targets { next: 1, by_number: None });

impl Callback {
    pub(super) fn new(target: Arc<dyn CallbackTarget>) -> Callback {
        let mut targets = TARGETS.lock();
        let number = targets.next;
        targets.next += 1;
        targets.by_number.get_or_insert_default().insert(number, target);
        Callback { number }
    }

    /// The number that the entry passes on.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        let target = TARGETS.lock().by_number.as_mut().and_then(|targets| targets.remove(&self.number));
        drop(target);
    }
}

/// The address that entries jump to.
pub(super) fn callback_address() -> ExecutorAddr {
    ExecutorAddr::new(carry_back as *const () as u64)
}

/// Passes a call of an entry to its target, and gives the result to its caller.
///
/// # Safety
/// Only [`carry_back`] calls it: `registers` are those of the caller of the entry, and `stack` is where its arguments begin that are
/// not in registers.
unsafe extern "C" fn pass_back(registers: *mut CallRegisters, stack: *const u64) {
    // SAFETY: H4 - `carry_back` passes registers on its own frame.
    let registers = unsafe { &mut *registers };
    let number = registers.number;
    let target = TARGETS.lock().by_number.as_ref().and_then(|targets| targets.get(&number).cloned());
    // A caller of an entry keeps it alive, and an entry lives as long as its `Callback`.
    let Some(target) = target else { abort("a function was called after its code was freed") };
    // SAFETY: H1 - linked code calls the entry as a function of the type that it was defined with.
    let mut call = unsafe { PassedCall::of_caller(target.shape(), registers, stack) };
    target.call(&mut call).unwrap_or_else(|problem| abort(&problem));
    // SAFETY: H1 - the target has called a function of the same type.
    unsafe { call.return_to_caller(registers) };
}

unsafe extern "C-unwind" {
    /// Gets a call of an entry, and passes it to [`pass_back`].
    #[link_name = concat!("jittison_carry_back_", env!("CARGO_PKG_VERSION"))]
    fn carry_back();
}

// The name has the crate version, because a program may contain two versions of this crate.
arch::define_carrier!({ concat!("jittison_carry_back_", env!("CARGO_PKG_VERSION")) }, pass_back);
