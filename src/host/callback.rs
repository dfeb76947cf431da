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

use crate::arch;
use crate::base::ExecutorAddr;
use crate::host::lazy_failure::abort;
use crate::host::numbered_targets::NumberedTargets;
use crate::host::passed_call::{CallRegisters, CallShape, PassedCall};
use crate::sync::Arc;

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

static TARGETS: NumberedTargets<dyn CallbackTarget> = NumberedTargets::new();

impl Callback {
    pub(super) fn new(target: Arc<dyn CallbackTarget>) -> Callback {
        Callback { number: TARGETS.add(target) }
    }

    /// The number that the entry passes on.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        TARGETS.remove(self.number);
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
    let target = TARGETS.find(number);
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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::arch::Arch;

    extern "C" fn seventh(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64, seventh: u64, _: u64, ninth: u64) -> u64 {
        seventh * 100 + ninth
    }

    #[test]
    fn a_call_with_other_words_than_the_function_has_is_refused() {
        let shape = CallShape::new(&[(8, 8); 9], (8, 8));
        let address = ExecutorAddr::new(seventh as *const () as u64);
        // SAFETY: H1 - the function has this shape, and takes any arguments.
        let function = unsafe { HostFunction::new(address, shape) };
        let mut call = PassedCall::of_integers(Arch::NATIVE, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let [_, stack_words, _] = shape.words();
        for (words, result) in [(stack_words - 1, 0), (stack_words + 1, 0), (0, 0), (stack_words, 8)] {
            let mut other = PassedCall { stack: vec![0; words as usize], result: vec![0; result], ..call.clone() };
            let refused = function.call(&mut other).unwrap_err();
            assert!(refused.contains("another signature"), "{refused}");
        }
        call.stack.resize(stack_words as usize, 0);
        function.call(&mut call).unwrap();
        assert_eq!(call.registers.integers[0], 709);
    }

    #[test]
    fn a_number_stands_for_its_target_until_it_is_dropped() {
        struct Nothing;
        impl CallbackTarget for Nothing {
            fn shape(&self) -> CallShape {
                CallShape::new(&[], (0, 1))
            }

            fn call(&self, _: &mut PassedCall) -> std::result::Result<(), String> {
                Ok(())
            }
        }
        let target: Arc<dyn CallbackTarget> = Arc::new(Nothing);
        let (first, second) = (Callback::new(target.clone()), Callback::new(target.clone()));
        assert_ne!(first.number(), second.number());
        assert_eq!(Arc::strong_count(&target), 3);
        drop((first, second));
        assert_eq!(Arc::strong_count(&target), 1);
    }
}
