//! [`Function`] and [`Symbol`]: typed handles to linked code. Calling them costs what a call through a pointer costs.
//!
//! A `Function` owns what keeps the code in memory, as an `Arc` would; removal of the code's tracker completes when the
//! last handle goes. A `Symbol` owns nothing, and cannot outlive the guard under which it was found. The signature is the word
//! of whoever made the handle.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::base::{CallEntry, CodeHold, ExecutorAddr, are_calls_entered, enter_host_call};
use crate::host::program;
use crate::sync::Arc;

/// A function in linked code, with the pin that keeps it there.
///
/// A call that may come to a [patched](crate::Patchable) function is entered: the version that it is inside of stays until the
/// call returns. A process without patched functions pays one load for that.
pub struct Function<F> {
    pointer: F,
    /// Dropped with the last clone, which lets the code go.
    hold: Option<Arc<dyn CodeHold>>,
}

/// What an embedder keeps code in memory with.
struct KeepAlive {
    _kept: Arc<dyn Send + Sync>,
}

impl CodeHold for KeepAlive {
    /// Code that is none of a session's.
    fn enter_call(&self) -> Option<CallEntry> {
        None
    }
}

impl<F: FunctionPointer> Function<F> {
    /// A handle to the code at `address`, holding `keep_alive`; `None` is for code that nobody can remove.
    ///
    /// # Safety
    /// - `address` is that of a function whose signature and ABI are those of `F`.
    /// - Its code stays in memory as long as `keep_alive` is held.
    /// - For an `F` that is safe to call, so is the function.
    /// - If the function may come to a [patched](crate::Patchable) one, each call has a [guard](crate::Jit::guard) or an
    ///   [entry](crate::ExecutionSession::enter_call) of that session around it.
    pub unsafe fn from_address(address: ExecutorAddr, keep_alive: Option<Arc<dyn Send + Sync>>) -> Function<F> {
        let hold = keep_alive.map(|kept| -> Arc<dyn CodeHold> { Arc::new(KeepAlive { _kept: kept }) });
        // SAFETY: H1 - the caller's word, passed on.
        unsafe { Function::with_hold(address, hold) }
    }

    /// The same, with a hold that enters calls where that is needed.
    ///
    /// # Safety
    /// As [`from_address`](Self::from_address).
    pub(crate) unsafe fn with_hold(address: ExecutorAddr, hold: Option<Arc<dyn CodeHold>>) -> Function<F> {
        // SAFETY: H1 - the caller gave its word for address and signature.
        let pointer = unsafe { F::from_address(address.value() as usize) };
        Function { pointer, hold }
    }

    /// Enters a call, where some session of the process has versions of functions.
    #[inline(never)]
    pub(crate) fn enter(&self) -> Option<CallEntry> {
        self.hold.as_ref()?.enter_call()
    }

    /// Where the code is.
    pub fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pointer.to_address() as u64)
    }

    /// The bare pointer.
    ///
    /// # Safety
    /// - Nothing keeps its code in memory once the handle is gone: it is not called from then on.
    /// - Calls through it are not entered. If the function may come to a [patched](crate::Patchable) one, each call has a
    ///   [guard](crate::Jit::guard) or an [entry](crate::ExecutionSession::enter_call) around it.
    pub unsafe fn as_ptr(&self) -> F {
        self.pointer
    }
}

impl<F: FunctionPointer> Clone for Function<F> {
    fn clone(&self) -> Function<F> {
        Function { pointer: self.pointer, hold: self.hold.clone() }
    }
}

/// A function in linked code that stays there as long as a guard is entered: `'g`. Costs nothing to copy and to drop.
///
/// Made by [`Jit::symbol`](crate::Jit::symbol). It cannot outlive its guard:
///
/// ```compile_fail,E0597
/// # let jit = jittison::Jit::new().unwrap();
/// let symbol = {
///     let guard = jit.guard();
///     unsafe { jit.symbol::<extern "C" fn() -> i32>(&guard, jit.main_dylib(), "f").unwrap() }
/// };
/// symbol.call();
/// ```
///
/// nor be used when the guard was left, or entered anew:
///
/// ```compile_fail,E0505
/// # let jit = jittison::Jit::new().unwrap();
/// let guard = jit.guard();
/// let symbol = unsafe { jit.symbol::<extern "C" fn() -> i32>(&guard, jit.main_dylib(), "f").unwrap() };
/// drop(guard);
/// symbol.call();
/// ```
///
/// ```compile_fail,E0502
/// # let jit = jittison::Jit::new().unwrap();
/// let mut guard = jit.guard();
/// let symbol = unsafe { jit.symbol::<extern "C" fn() -> i32>(&guard, jit.main_dylib(), "f").unwrap() };
/// guard.refresh();
/// symbol.call();
/// ```
pub struct Symbol<'g, F> {
    pointer: F,
    guard: PhantomData<&'g ()>,
}

impl<'g, F: FunctionPointer> Symbol<'g, F> {
    /// The function at `address`.
    ///
    /// # Safety
    /// - `address` is that of a function whose signature and ABI are those of `F`.
    /// - Its code stays in memory as long as `'g` lasts.
    /// - For an `F` that is safe to call, so is the function.
    pub unsafe fn from_address(address: ExecutorAddr) -> Symbol<'g, F> {
        // SAFETY: H1 - the caller gave its word for address and signature.
        Symbol { pointer: unsafe { F::from_address(address.value() as usize) }, guard: PhantomData }
    }

    /// Where the code is.
    pub fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pointer.to_address() as u64)
    }

    /// The bare pointer.
    ///
    /// # Safety
    /// Nothing keeps its code in memory once the guard is left: it is not called from then on.
    pub unsafe fn as_ptr(&self) -> F {
        self.pointer
    }
}

impl<F: FunctionPointer> Clone for Symbol<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: FunctionPointer> Copy for Symbol<'_, F> {}

impl<F: FunctionPointer> fmt::Debug for Symbol<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Symbol({})", self.address())
    }
}

// A panic that passes through a call leaves nothing half-changed in the handle.
impl<F> UnwindSafe for Function<F> {}
impl<F> RefUnwindSafe for Function<F> {}

impl<F: FunctionPointer> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.address())
    }
}

/// Function pointer types that a [`Function`] may have: `extern "C"` and `extern "C-unwind"`, safe and unsafe, with up to
/// twelve arguments. Arguments must not name lifetimes: use raw pointers for what is borrowed.
///
/// # Safety
/// Implementors are function pointers, and no others; the trait is implemented here only.
pub unsafe trait FunctionPointer: Copy + sealed::Sealed {
    /// # Safety
    /// `address` is that of a function of this type.
    #[doc(hidden)]
    unsafe fn from_address(address: usize) -> Self;

    #[doc(hidden)]
    fn to_address(self) -> usize;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! function_pointer {
    ($abi:literal; $($argument:ident: $type:ident),*) => {
        function_pointer!(@ extern $abi fn($($type),*) -> Ret; $($type),*);
        function_pointer!(@ unsafe extern $abi fn($($type),*) -> Ret; $($type),*);

        function_pointer!(@call $abi; [Function<]; entered; $($argument: $type),*);
        function_pointer!(@call $abi; [Symbol<'_,]; plain; $($argument: $type),*);

        impl<Ret, $($type),*> Function<extern $abi fn($($type),*) -> Ret> {
            /// Out of the way of the other calls.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            fn call_entered(&self, $($argument: $type),*) -> Ret {
                let _entry = self.enter();
                (self.pointer)($($argument),*)
            }
        }

        impl<Ret, $($type),*> Function<unsafe extern $abi fn($($type),*) -> Ret> {
            /// # Safety
            /// As `call`.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn call_entered(&self, $($argument: $type),*) -> Ret {
                let _entry = self.enter();
                // SAFETY: H2 - the handle holds the code; the rest is the caller's word.
                unsafe { (self.pointer)($($argument),*) }
            }
        }
    };
    // A symbol's guard holds what a call may come to; a handle's call is entered.
    (@or_entered $self:ident; plain; $entered:expr) => {};
    (@or_entered $self:ident; entered; $entered:expr) => {
        if are_calls_entered() {
            return $entered;
        }
    };
    (@call $abi:literal; [$($handle:tt)*]; $kind:ident; $($argument:ident: $type:ident),*) => {
        impl<Ret, $($type),*> $($handle)* extern $abi fn($($type),*) -> Ret> {
            /// Calls the function.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub fn call(&self, $($argument: $type),*) -> Ret {
                function_pointer!(@or_entered self; $kind; self.call_entered($($argument),*));
                (self.pointer)($($argument),*)
            }
        }

        impl<Ret, $($type),*> $($handle)* unsafe extern $abi fn($($type),*) -> Ret> {
            /// Calls the function.
            ///
            /// # Safety
            /// Whatever the function itself asks of its caller.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn call(&self, $($argument: $type),*) -> Ret {
                // SAFETY: H2 - as below.
                function_pointer!(@or_entered self; $kind; unsafe { self.call_entered($($argument),*) });
                // SAFETY: H2 - the handle, or its guard, holds the code; the rest is the caller's word.
                unsafe { (self.pointer)($($argument),*) }
            }
        }
    };
    (@ $pointer:ty; $($type:ident),*) => {
        impl<Ret, $($type),*> sealed::Sealed for $pointer {}

        // SAFETY: H1 - a function pointer type.
        unsafe impl<Ret, $($type),*> FunctionPointer for $pointer {
            unsafe fn from_address(address: usize) -> Self {
                // SAFETY: H1 - the caller's word; a function pointer is one word.
                unsafe { std::mem::transmute::<usize, $pointer>(address) }
            }

            fn to_address(self) -> usize {
                self as usize
            }
        }
    };
}

macro_rules! up_to_twelve_arguments {
    ($abi:literal) => { up_to_twelve_arguments!($abi; a: A, b: B, c: C, d: D, e: E, f: G, g: H, h: I, i: J, j: K, k: L, l: M); };
    ($abi:literal; $($argument:ident: $type:ident),*) => { up_to_twelve_arguments!(@ $abi; []; $($argument: $type),*); };
    (@ $abi:literal; [$($done:ident: $done_type:ident),*]; $argument:ident: $type:ident $(, $rest:ident: $rest_type:ident)*) => {
        function_pointer!($abi; $($done: $done_type),*);
        up_to_twelve_arguments!(@ $abi; [$($done: $done_type,)* $argument: $type]; $($rest: $rest_type),*);
    };
    (@ $abi:literal; [$($done:ident: $done_type:ident),*];) => { function_pointer!($abi; $($done: $done_type),*); };
}

up_to_twelve_arguments!("C");
up_to_twelve_arguments!("C-unwind");

/// Calls an initialiser or finaliser, as the system's loader does: with the program's arguments and environment, or,
/// where no program runs, with vectors of nothing.
pub(crate) fn run_initializer(address: ExecutorAddr) {
    type Initializer = extern "C-unwind" fn(c_int, *const *mut c_char, *const *mut c_char);
    let nothing: [*mut c_char; 1] = [std::ptr::null_mut()];
    let (argc, argv, envp) = program::vectors().unwrap_or((0, nothing.as_ptr(), nothing.as_ptr()));
    // SAFETY: H1, H2, H3 - the object lists this address as an initialiser, and the registry holds its memory.
    let initializer = unsafe { std::mem::transmute::<usize, Initializer>(address.value() as usize) };
    let _entry = enter_host_call();
    initializer(argc, argv, envp);
}
