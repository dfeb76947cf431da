//! The process as the C library sees it: exit, handlers for exit and fork, program name, environment and signal actions.
//!
//! Linked code registers handlers, too, through [`register_at_fork`] and [`register_at_quick_exit`]. They are registered
//! under an address of that code, and [`deregister_handlers`] removes all handlers of one address.

use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C-unwind" {
    // Declared here and not imported from `libc`, because a handler may throw an exception, which must unwind through these
    // calls.
    fn exit(status: c_int) -> !;
    fn atexit(handler: extern "C-unwind" fn()) -> c_int;
    fn __cxa_finalize(library: *const c_void);
}

#[cfg(target_env = "gnu")]
unsafe extern "C-unwind" {
    fn __cxa_thread_atexit_impl(
        handler: extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
        library: *const c_void,
    ) -> c_int;
    fn __register_atfork(
        prepare: *const c_void,
        parent: *const c_void,
        child: *const c_void,
        library: *const c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(handler: *const c_void, library: *const c_void) -> c_int;
    #[cfg(feature = "executor")]
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Other C libraries accept no handlers of code that may be unloaded, so these always fail.
#[cfg(not(target_env = "gnu"))]
mod absent {
    use std::ffi::{c_int, c_void};

    const UNSUPPORTED: c_int = -1;

    type Handler = *const c_void;

    pub(super) unsafe fn __cxa_thread_atexit_impl(
        _: extern "C-unwind" fn(*mut c_void),
        _: *mut c_void,
        _: *const c_void,
    ) -> c_int {
        UNSUPPORTED
    }

    pub(super) unsafe fn __register_atfork(_: Handler, _: Handler, _: Handler, _: *const c_void) -> c_int {
        UNSUPPORTED
    }

    pub(super) unsafe fn __cxa_at_quick_exit(_: Handler, _: *const c_void) -> c_int {
        UNSUPPORTED
    }

    #[cfg(feature = "executor")]
    pub(super) unsafe fn on_exit(_: extern "C" fn(c_int, *mut c_void), _: *mut c_void) -> c_int {
        UNSUPPORTED
    }
}
#[cfg(all(not(target_env = "gnu"), feature = "executor"))]
use absent::on_exit;
#[cfg(not(target_env = "gnu"))]
use absent::{__cxa_at_quick_exit, __cxa_thread_atexit_impl, __register_atfork};

unsafe extern "C" {
    static environ: *mut *mut c_char;
    static mut program_invocation_name: *mut c_char;
    static mut program_invocation_short_name: *mut c_char;
}

/// Sets `errno` of the calling thread to 0, as at the start of a process.
pub(crate) fn clear_errno() {
    // SAFETY: O8 - the pointer is that of the calling thread's own `errno`, which exists while the thread runs.
    unsafe { *libc::__errno_location() = 0 };
}

/// Ends the process with `exit` of the C library: exit handlers run and streams are flushed.
pub(crate) fn exit_process(status: i32) -> ! {
    // SAFETY: O9 - takes no pointer. glibc and musl allow a call from inside an exit handler.
    unsafe { exit(status) }
}

/// Registers `handler` for the exit of the process. It runs before all handlers that were registered earlier. False when the C
/// library has not enough memory.
#[must_use]
pub(crate) fn at_exit(handler: extern "C-unwind" fn()) -> bool {
    // SAFETY: O4 - a Rust function of this program or library with the declared signature, which stays until it was called.
    unsafe { atexit(handler) == 0 }
}

/// Registers `handler` for the exit of the process. It gets the status. It runs before all handlers that were registered earlier. False when
/// the C library has not enough memory or no such function.
#[cfg(feature = "executor")]
#[must_use]
pub(crate) fn at_exit_with_status(handler: extern "C" fn(c_int, *mut c_void)) -> bool {
    // SAFETY: O4 - a Rust function of this program or library with the declared signature, which stays until it was called. O2 - the
    // argument is null.
    unsafe { on_exit(handler, std::ptr::null_mut()) == 0 }
}

/// Registers `handler` for the end of the calling thread. It runs before all handlers of the thread that were registered
/// earlier. False when the C library has not enough memory or no such function.
#[must_use]
pub(crate) fn at_thread_exit(handler: extern "C-unwind" fn(*mut c_void)) -> bool {
    // An address in the program or library that contains the handler: the C library keeps that loaded until the handler was
    // called.
    static HERE: u8 = 0;
    // SAFETY: O4 - a Rust function with the declared signature; `HERE` keeps its code loaded. O2 - the argument is null, and
    // the C library only compares the address of `HERE`.
    unsafe { __cxa_thread_atexit_impl(handler, std::ptr::null_mut(), (&raw const HERE).cast()) == 0 }
}

/// Registers fork handlers of linked code: before the fork, after it in the parent, after it in the child. `library` is an
/// address of that code, by which [`deregister_handlers`] finds them. Returns 0 on success.
///
/// # Safety
/// - Each handler is null or a function `void (*)(void)` that may be called at a fork.
/// - Its code stays in memory until [`deregister_handlers`] was called with `library`.
pub(crate) unsafe fn register_at_fork(handlers: [*const c_void; 3], library: u64) -> c_int {
    let [prepare, parent, child] = handlers;
    // SAFETY: O4 - the clauses of `# Safety` are those of the invariant: the signature, and code that outlives the
    // registration. The C library only compares the address `library`.
    unsafe { __register_atfork(prepare, parent, child, library as *const c_void) }
}

/// Registers a `quick_exit` handler of linked code. `library` and the result are as for [`register_at_fork`].
///
/// # Safety
/// - The handler is a function `void (*)(void *)` that `quick_exit` may call.
/// - Its code stays in memory until [`deregister_handlers`] was called with `library`.
pub(crate) unsafe fn register_at_quick_exit(handler: *const c_void, library: u64) -> c_int {
    // SAFETY: O4 - the clauses of `# Safety` are those of the invariant. The C library only compares the address `library`.
    unsafe { __cxa_at_quick_exit(handler, library as *const c_void) }
}

/// Deregisters all handlers that were registered under an address.
///
/// # Safety
/// `library` was passed to [`register_at_fork`] and [`register_at_quick_exit`] only, and is not zero. For zero and for the
/// `__dso_handle` of a library, the C library would call the exit handlers that are registered under it.
pub(crate) unsafe fn deregister_handlers(library: u64) {
    // SAFETY: O4 - by contract no exit handler is registered under the address, so the call runs no handler and only removes
    // those of fork and `quick_exit`.
    unsafe { __cxa_finalize(library as *const c_void) }
}

/// Whether a debugger or another tracer is attached to the process. False where `/proc` is missing.
pub(crate) fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|number| number.trim() != "0")
}

/// The environment, as the third argument of `main`.
pub(crate) fn environment() -> *mut *mut c_char {
    // SAFETY: O8 - copies one aligned word and does not follow it. A call of `setenv` that runs at the same time breaks the
    // contract of `setenv` itself, which allows no other thread to read the environment.
    unsafe { environ }
}

/// Sets the program name that the C library uses in messages, until it is dropped. Then the previous name is back.
pub(crate) struct ProgramName {
    previous: [*mut c_char; 2],
}

impl ProgramName {
    /// Sets the name to `argv[0]`. The C library keeps pointers to `name`.
    pub(crate) fn set(name: &'static CStr) -> ProgramName {
        let bytes = name.to_bytes();
        let short = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let names = [name.as_ptr(), name.to_bytes_with_nul()[short..].as_ptr().cast()];
        ProgramName { previous: exchange_names(names.map(<*const c_char>::cast_mut)) }
    }
}

impl Drop for ProgramName {
    fn drop(&mut self) {
        exchange_names(self.previous);
    }
}

fn exchange_names(names: [*mut c_char; 2]) -> [*mut c_char; 2] {
    // SAFETY: O8 - the words are exchanged one by one with aligned accesses, and `ProgramName` restores them. A thread that
    // prints a message at the same time reads the old or the new pointer. Both names are C strings that live for ever:
    // `&'static CStr`, or those that the C library had.
    unsafe {
        let previous = [program_invocation_name, program_invocation_short_name];
        [program_invocation_name, program_invocation_short_name] = names;
        previous
    }
}

/// Sets SIGPIPE, SIGSEGV and SIGBUS to their default actions, until it is dropped. A C program expects the defaults, but Rust's
/// runtime ignores SIGPIPE and handles SIGSEGV and SIGBUS.
pub(crate) struct DefaultSignals {
    previous: [(c_int, libc::sigaction); 3],
}

impl DefaultSignals {
    pub(crate) fn set() -> DefaultSignals {
        DefaultSignals {
            previous: [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS].map(|signal| (signal, set_default(signal))),
        }
    }
}

impl Drop for DefaultSignals {
    fn drop(&mut self) {
        for (signal, previous) in &self.previous {
            // SAFETY: O8 - restores the action that `set_default` returned. O2 - `previous` lives through the call.
            unsafe { libc::sigaction(*signal, previous, std::ptr::null_mut()) };
        }
    }
}

/// Sets the default action, and returns the previous one.
fn set_default(signal: c_int) -> libc::sigaction {
    // SAFETY: O8 - `sigaction` consists of integers and a raw pointer-sized handler, so zeroes are a value: `SIG_DFL` without
    // flags.
    let (default, mut previous): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: O2 - both structures are local: the kernel reads one and writes the other. O8 - `DefaultSignals` restores the
    // action.
    unsafe { libc::sigaction(signal, &default, &mut previous) };
    previous
}
