//! [`Function`] and [`Symbol`]: typed handles to linked code. A call through a `Symbol` costs as much as a call through
//! a pointer. A call through a `Function` costs one load and a branch more.
//!
//! | handle | what keeps the code in memory | cost of clone and drop |
//! |---|---|---|
//! | `Function` | the handle, like an `Arc`; removal of the code completes when the last handle is dropped | one atomic operation |
//! | `Symbol<'g>` | the guard under which it was found; the lifetime `'g` ends with the guard | none |
//!
//! Neither handle checks the signature. The caller who makes a handle promises it (`unsafe`).

use std::ffi::{c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
#[cfg(feature = "executor")]
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::base::{CallEntry, CodeHold, ExecutorAddr, enter_host_call, is_call_entry_enabled};
#[cfg(feature = "executor")]
use crate::error::Result;
use crate::host::program;
#[cfg(feature = "executor")]
use crate::host::{
    passed_call::CallShape,
    remote_call::{RemoteCalls, carrier, carry, remote_calls},
};
use crate::sync::Arc;

/// A function in linked code, and the pin that keeps its code in memory.
///
/// If a call may reach a [patched](crate::Patchable) function, it enters an epoch record first: the version that it runs in
/// stays in memory until the call returns. In a process without patched functions this costs one load and a branch.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", ADD)?;
/// // SAFETY: `add` has this signature, and the object may run.
/// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
/// let on_another_thread = add.clone();
/// let sum = std::thread::spawn(move || on_another_thread.call(2, 3)).join().unwrap();
/// assert_eq!(sum, add.call(4, 1));
/// # Ok(()) }
/// ```
pub struct Function<F> {
    pointer: F,
    /// Keeps the code in memory until the last clone is dropped. `None`: nothing can remove the code.
    hold: Option<Arc<dyn CodeHold>>,
}

/// An embedder's value that keeps code in memory.
struct KeepAlive {
    _value: Arc<dyn Send + Sync>,
}

impl CodeHold for KeepAlive {
    /// The code belongs to no session, so there is no record to enter.
    fn enter_call(&self) -> Option<CallEntry> {
        None
    }
}

impl<F: FunctionPointer> Function<F> {
    /// Makes a handle to the code at `address`. The handle owns `keep_alive`. Pass `None` for code that nothing can
    /// remove.
    ///
    /// # Safety
    /// - At `address` is a function with the signature and ABI of `F`.
    /// - Its code stays in memory as long as `keep_alive` is alive.
    /// - If `F` is a safe function pointer type, the function is safe to call.
    /// - If the function may call a [patched](crate::Patchable) one, each call is made inside a [guard](crate::Jit::guard) or
    ///   an [entry](crate::ExecutionSession::enter_call) of the session of the patched function.
    pub unsafe fn from_address(address: ExecutorAddr, keep_alive: Option<Arc<dyn Send + Sync>>) -> Function<F> {
        let hold = keep_alive.map(|value| -> Arc<dyn CodeHold> { Arc::new(KeepAlive { _value: value }) });
        // SAFETY: H1 - the caller promises the same clauses.
        unsafe { Function::with_hold(address, hold) }
    }

    /// As [`from_address`](Self::from_address), with a hold that can enter calls.
    ///
    /// # Safety
    /// As [`from_address`](Self::from_address).
    pub(crate) unsafe fn with_hold(address: ExecutorAddr, hold: Option<Arc<dyn CodeHold>>) -> Function<F> {
        // SAFETY: H1 - the caller promises that a function of type `F` is at `address`.
        let pointer = unsafe { F::from_address(address.value() as usize) };
        Function { pointer, hold }
    }

    /// Enters a call. Needed only if a session of the process has versions of functions.
    #[inline(never)]
    pub(crate) fn enter(&self) -> Option<CallEntry> {
        self.hold.as_ref()?.enter_call()
    }

    /// The process that runs the code, unless it is this one.
    #[cfg(feature = "executor")]
    fn remote_calls(&self) -> Option<&dyn RemoteCalls> {
        remote_calls(self.hold.as_ref()?)
    }

    /// Checks that functions of this type can be called in another process, and returns what a call passes.
    #[cfg(feature = "executor")]
    pub(crate) fn check_remote(name: &str) -> Result<CallShape> {
        F::SHAPE.check(name).map(|()| F::SHAPE)
    }

    /// Where the code is. In a session with an executor: its address there.
    pub fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pointer.to_address() as u64)
    }

    /// The function pointer.
    ///
    /// # Safety
    /// - In a session with an executor it is an address of that process, and not called.
    /// - The pointer does not keep the code in memory. It is not called after the last handle is dropped.
    /// - Calls through it enter no record. If the function may call a [patched](crate::Patchable) one, each call is made inside
    ///   a [guard](crate::Jit::guard) or an [entry](crate::ExecutionSession::enter_call).
    pub unsafe fn as_ptr(&self) -> F {
        self.pointer
    }
}

impl<F: FunctionPointer> Clone for Function<F> {
    fn clone(&self) -> Function<F> {
        Function { pointer: self.pointer, hold: self.hold.clone() }
    }
}

/// A function in linked code that stays in memory as long as a guard is entered (`'g`). Copies and drops cost nothing.
///
/// [`Jit::symbol`](crate::Jit::symbol) makes it. It cannot outlive its guard:
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
/// It cannot be used after the guard is dropped or entered again:
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
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", ADD)?;
/// let guard = jit.guard();
/// // SAFETY: `add` has this signature, and the object may run.
/// let add = unsafe { jit.symbol::<extern "C" fn(i32, i32) -> i32>(&guard, jit.main_dylib(), "add")? };
/// assert_eq!(add.call(2, 3), 5);
/// # Ok(()) }
/// ```
pub struct Symbol<'g, F> {
    pointer: F,
    guard: PhantomData<&'g ()>,
}

impl<'g, F: FunctionPointer> Symbol<'g, F> {
    /// Makes a handle to the function at `address`.
    ///
    /// # Safety
    /// - At `address` is a function with the signature and ABI of `F`.
    /// - Its code stays in memory during `'g`.
    /// - If `F` is a safe function pointer type, the function is safe to call.
    pub unsafe fn from_address(address: ExecutorAddr) -> Symbol<'g, F> {
        // SAFETY: H1 - the caller promises that a function of type `F` is at `address`.
        Symbol { pointer: unsafe { F::from_address(address.value() as usize) }, guard: PhantomData }
    }

    /// Where the code is.
    pub fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pointer.to_address() as u64)
    }

    /// The function pointer.
    ///
    /// # Safety
    /// The pointer does not keep the code in memory. It is not called after the guard is dropped.
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

// A call does not change the handle, so a panic in it leaves the handle in a valid state.
impl<F> UnwindSafe for Function<F> {}
impl<F> RefUnwindSafe for Function<F> {}

impl<F: FunctionPointer> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.address())
    }
}

/// The function pointer types of [`Function`] and [`Symbol`]: `extern "C"` and `extern "C-unwind"`, safe and unsafe, with up
/// to twelve arguments. Types of arguments must not name lifetimes: pass raw pointers instead of references.
///
/// # Safety
/// Only function pointer types implement this trait. It is sealed: no other crate can implement it.
pub unsafe trait FunctionPointer: Copy + sealed::Sealed {
    /// Turns the address of a function into a pointer of this type. Only [`Function`] and [`Symbol`] call it, so it is no part
    /// of the documented interface.
    ///
    /// # Safety
    /// At `address` is a function with the signature and ABI of this type.
    #[doc(hidden)]
    unsafe fn from_address(address: usize) -> Self;

    /// The address of the function. Only [`Function`] and [`Symbol`] call it, so it is no part of the documented interface.
    #[doc(hidden)]
    fn to_address(self) -> usize;
}

mod sealed {
    pub trait Sealed {
        #[cfg(feature = "executor")]
        const SHAPE: super::CallShape;
    }
}

macro_rules! function_pointer {
    ($abi:literal; $($argument:ident: $type:ident),*) => {
        function_pointer!(@ extern $abi fn($($type),*) -> Ret; $($type),*);
        function_pointer!(@ unsafe extern $abi fn($($type),*) -> Ret; $($type),*);

        function_pointer!(@call $abi; [Function<]; entered; $($argument: $type),*);
        function_pointer!(@call $abi; [Symbol<'_,]; plain; $($argument: $type),*);

        impl<Ret, $($type),*> Function<extern $abi fn($($type),*) -> Ret> {
            /// The rare case of `call`, in a function of its own to keep `call` small.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            fn call_entered(&self, $($argument: $type),*) -> Ret {
                let _entry = self.enter();
                #[cfg(feature = "executor")]
                if let Some(calls) = self.remote_calls() {
                    let result = function_pointer!(@carried $abi; self, calls; $($argument: $type),*);
                    return result.unwrap_or_else(|error| panic!("{error}"));
                }
                (self.pointer)($($argument),*)
            }

            /// Calls the function. Returns an error where [`call`](Self::call) panics.
            ///
            /// # Errors
            /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded): the code runs in the process of an executor, which has
            /// ended before or during the call. There is no other error, and none for code of this process.
            #[cfg(feature = "executor")]
            #[allow(clippy::too_many_arguments)]
            pub fn try_call(&self, $($argument: $type),*) -> Result<Ret> {
                let _entry = self.enter();
                if let Some(calls) = self.remote_calls() {
                    return function_pointer!(@carried $abi; self, calls; $($argument: $type),*);
                }
                Ok((self.pointer)($($argument),*))
            }
        }

        impl<Ret, $($type),*> Function<unsafe extern $abi fn($($type),*) -> Ret> {
            /// The rare case of `call`, in a function of its own to keep `call` small.
            ///
            /// # Safety
            /// As `call`.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn call_entered(&self, $($argument: $type),*) -> Ret {
                let _entry = self.enter();
                #[cfg(feature = "executor")]
                if let Some(calls) = self.remote_calls() {
                    let result = function_pointer!(@carried $abi; self, calls; $($argument: $type),*);
                    return result.unwrap_or_else(|error| panic!("{error}"));
                }
                // SAFETY: H2 - `self` keeps the code in memory. The caller promises what the function itself demands.
                unsafe { (self.pointer)($($argument),*) }
            }

            /// Calls the function. Returns an error where [`call`](Self::call) panics.
            ///
            /// # Errors
            /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded): the code runs in the process of an executor, which has
            /// ended before or during the call. There is no other error, and none for code of this process.
            ///
            /// # Safety
            /// As [`call`](Self::call).
            #[cfg(feature = "executor")]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn try_call(&self, $($argument: $type),*) -> Result<Ret> {
                let _entry = self.enter();
                if let Some(calls) = self.remote_calls() {
                    return function_pointer!(@carried $abi; self, calls; $($argument: $type),*);
                }
                // SAFETY: H2 - `self` keeps the code in memory. The caller promises what the function itself demands.
                Ok(unsafe { (self.pointer)($($argument),*) })
            }
        }
    };
    // What a call returns that another process runs.
    (@carried $abi:literal; $self:ident, $calls:ident; $($argument:ident: $type:ident),*) => {{
        // SAFETY: H1 - `carry_call` is a function of any signature, and the ABI of a `MaybeUninit<Ret>` is that of a `Ret`.
        let function = unsafe { std::mem::transmute::<usize, extern $abi fn($($type),*) -> MaybeUninit<Ret>>(carrier()) };
        let shape = <extern $abi fn($($type),*) -> Ret as sealed::Sealed>::SHAPE;
        // SAFETY: H1, H2 - whoever made the handle promised a function of this signature, `self` keeps its code in memory, and
        // the caller promises what the function itself demands.
        unsafe { carry($calls, $self.address(), shape, || function($($argument),*)) }
    }};
    // `plain`: the guard of a `Symbol` already keeps every version in memory. `entered`: a `Function` enters a record.
    (@or_entered $self:ident; plain; $entered:expr) => {};
    (@or_entered $self:ident; entered; $entered:expr) => {
        if is_call_entry_enabled() {
            return $entered;
        }
    };
    (@doc plain) => { "Calls the function." };
    (@doc entered) => {
        "Calls the function.\n\n# Panics\nThe code runs in the process of an executor, which has ended before or during the call, \
         or ends for it."
    };
    (@call $abi:literal; [$($handle:tt)*]; $kind:ident; $($argument:ident: $type:ident),*) => {
        impl<Ret, $($type),*> $($handle)* extern $abi fn($($type),*) -> Ret> {
            #[doc = function_pointer!(@doc $kind)]
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub fn call(&self, $($argument: $type),*) -> Ret {
                function_pointer!(@or_entered self; $kind; self.call_entered($($argument),*));
                (self.pointer)($($argument),*)
            }
        }

        impl<Ret, $($type),*> $($handle)* unsafe extern $abi fn($($type),*) -> Ret> {
            #[doc = function_pointer!(@doc $kind)]
            ///
            /// # Safety
            /// The caller fulfils what the function itself demands.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn call(&self, $($argument: $type),*) -> Ret {
                // SAFETY: H2 - `self` keeps the code in memory. The caller promises what the function itself demands.
                function_pointer!(@or_entered self; $kind; unsafe { self.call_entered($($argument),*) });
                // SAFETY: H2 - the handle or its guard keeps the code in memory. The caller promises what the function demands.
                unsafe { (self.pointer)($($argument),*) }
            }
        }
    };
    (@ $pointer:ty; $($type:ident),*) => {
        impl<Ret, $($type),*> sealed::Sealed for $pointer {
            #[cfg(feature = "executor")]
            const SHAPE: CallShape =
                CallShape::new(&[$((size_of::<$type>(), align_of::<$type>())),*], (size_of::<Ret>(), align_of::<Ret>()));
        }

        // SAFETY: H1 - `$pointer` is a function pointer type, which is all that the trait demands.
        unsafe impl<Ret, $($type),*> FunctionPointer for $pointer {
            unsafe fn from_address(address: usize) -> Self {
                // SAFETY: H1 - the caller promises a function of this type at `address`, which is therefore not null. A function
                // pointer has the size of `usize`.
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

/// Calls an initialiser or finaliser as the system's loader does: with the arguments of the running native program, or else of
/// the process, and with the environment.
pub(super) fn run_initializer(address: ExecutorAddr) {
    type Initializer = extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char);
    let (argc, argv, envp) = program::vectors();
    // SAFETY: H1 - the object lists this address as an initialiser or finaliser, whose type the ABI prescribes. H2, H3 - the
    // registry of initialisers is the only caller of `Executor::run_initializer`: it keeps the memory alive, and runs
    // nothing before the user's consent.
    let initializer = unsafe { std::mem::transmute::<usize, Initializer>(address.value() as usize) };
    let _entry = enter_host_call();
    initializer(argc, argv, envp);
}

/// Calls a hook of linked code.
#[cfg(feature = "reload")]
pub(super) fn run_hook(address: ExecutorAddr, arguments: [u64; 3]) {
    type Hook = extern "C-unwind" fn(u64, u64, u64);
    // SAFETY: H1 - by its name, the function is one that takes two pointers and a size. H2, H3 - a reload is the only caller of
    // `Executor::run_hook`: it keeps the version in memory, and its own caller has promised that the objects may run.
    let hook = unsafe { std::mem::transmute::<usize, Hook>(address.value() as usize) };
    let [first, second, third] = arguments;
    let _entry = enter_host_call();
    hook(first, second, third);
}
