//! The process as the C library sees it: ending it, what to call before that, its name, its environment, its signals.

use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C-unwind" {
    // Declared here and not taken from `libc`, because a handler may throw: that must reach the unwinder as an exception.
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
}

/// Other C libraries do not take handlers of code that may go: they have no room for any.
#[cfg(not(target_env = "gnu"))]
mod absent {
    use std::ffi::{c_int, c_void};

    const NO_ROOM: c_int = -1;

    type Handler = *const c_void;

    pub(super) unsafe fn __cxa_thread_atexit_impl(
        _: extern "C-unwind" fn(*mut c_void),
        _: *mut c_void,
        _: *const c_void,
    ) -> c_int {
        NO_ROOM
    }

    pub(super) unsafe fn __register_atfork(_: Handler, _: Handler, _: Handler, _: *const c_void) -> c_int {
        NO_ROOM
    }

    pub(super) unsafe fn __cxa_at_quick_exit(_: Handler, _: *const c_void) -> c_int {
        NO_ROOM
    }
}
#[cfg(not(target_env = "gnu"))]
use absent::{__cxa_at_quick_exit, __cxa_thread_atexit_impl, __register_atfork};

unsafe extern "C" {
    static environ: *mut *mut c_char;
    static mut program_invocation_name: *mut c_char;
    static mut program_invocation_short_name: *mut c_char;
}

/// Makes the calling thread's `errno` what it is when a process begins.
pub(crate) fn clear_errno() {
    // SAFETY: O4 - the calling thread's own variable, which the C library says where to find.
    unsafe { *libc::__errno_location() = 0 };
}

/// Ends the process as the C library does: its exit handlers run, its streams are flushed.
pub(crate) fn exit_process(status: i32) -> ! {
    // SAFETY: O4 - takes no pointers; may be called again from inside an exit handler.
    unsafe { exit(status) }
}

/// Has `handler` called when the process exits, before everything that is registered so far. False when the C library
/// has no room.
#[must_use]
pub(crate) fn at_exit(handler: extern "C-unwind" fn()) -> bool {
    // SAFETY: O4 - a function of this very program.
    unsafe { atexit(handler) == 0 }
}

/// Has `handler` called when the calling thread ends, before everything that is registered for that so far. False when the
/// C library has no room.
#[must_use]
pub(crate) fn at_thread_exit(handler: extern "C-unwind" fn(*mut c_void)) -> bool {
    // Any address of this very program: it stays loaded until the handler was called.
    static HERE: u8 = 0;
    // SAFETY: O4 - a function of this very program, and nothing for it to look at.
    unsafe { __cxa_thread_atexit_impl(handler, std::ptr::null_mut(), (&raw const HERE).cast()) == 0 }
}

/// Has the C library call linked code's handlers when the process forks: before, and after in the parent and in the child.
/// `library` is an address of that code's own, by which they are [forgotten](forget_handlers). Zero when they were taken.
///
/// # Safety
/// - Each handler is null or a function `void (*)(void)` that may be called at a fork.
/// - Its code stays until [`forget_handlers`] was called with `library`.
pub(crate) unsafe fn register_at_fork(handlers: [*const c_void; 3], library: u64) -> c_int {
    let [prepare, parent, child] = handlers;
    // SAFETY: O4 - handlers that outlive their registration, by contract; the library only compares the address.
    unsafe { __register_atfork(prepare, parent, child, library as *const c_void) }
}

/// The same for `quick_exit`.
///
/// # Safety
/// - The handler is a function `void (*)(void *)` that may be called by `quick_exit`.
/// - Its code stays until [`forget_handlers`] was called with `library`.
pub(crate) unsafe fn register_at_quick_exit(handler: *const c_void, library: u64) -> c_int {
    // SAFETY: O4 - as above.
    unsafe { __cxa_at_quick_exit(handler, library as *const c_void) }
}

/// Has the C library forget all handlers that were registered under an address.
///
/// # Safety
/// `library` is an address that only [`register_at_fork`] and [`register_at_quick_exit`] were told. Of a library's own
/// `__dso_handle`, and of zero, the C library would call the exit handlers.
pub(crate) unsafe fn forget_handlers(library: u64) {
    // SAFETY: O4 - by contract no exit handler is registered under the address, so nothing is called.
    unsafe { __cxa_finalize(library as *const c_void) }
}

/// Whether a debugger, or anybody else, traces the process. False where `/proc` does not say.
pub(crate) fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|number| number.trim() != "0")
}

/// The environment, as a third argument of `main`.
pub(crate) fn environment() -> *mut *mut c_char {
    // SAFETY: O4 - a word of the C library, copied.
    unsafe { environ }
}

/// The names that the C library gives the program in messages, until dropped.
pub(crate) struct ProgramName {
    outer: [*mut c_char; 2],
}

impl ProgramName {
    /// Names the program as `argv[0]` does. Keeps pointers to it.
    pub(crate) fn set(name: &'static CStr) -> ProgramName {
        let bytes = name.to_bytes();
        let short = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let names = [name.as_ptr(), name.to_bytes_with_nul()[short..].as_ptr().cast()];
        ProgramName { outer: exchange_names(names.map(<*const c_char>::cast_mut)) }
    }
}

impl Drop for ProgramName {
    fn drop(&mut self) {
        exchange_names(self.outer);
    }
}

fn exchange_names(names: [*mut c_char; 2]) -> [*mut c_char; 2] {
    // SAFETY: O2, O4 - the C library only reads through these, and the names live for ever.
    unsafe {
        let outer = [program_invocation_name, program_invocation_short_name];
        [program_invocation_name, program_invocation_short_name] = names;
        outer
    }
}

/// Signals at their defaults, until dropped: Rust's runtime ignores SIGPIPE and catches SIGSEGV and SIGBUS, a C program
/// does not expect either.
pub(crate) struct DefaultSignals {
    outer: [(c_int, libc::sigaction); 3],
}

impl DefaultSignals {
    pub(crate) fn set() -> DefaultSignals {
        DefaultSignals { outer: [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS].map(|signal| (signal, default(signal))) }
    }
}

impl Drop for DefaultSignals {
    fn drop(&mut self) {
        for (signal, outer) in &self.outer {
            // SAFETY: O4 - puts back what was there.
            unsafe { libc::sigaction(*signal, outer, std::ptr::null_mut()) };
        }
    }
}

fn default(signal: c_int) -> libc::sigaction {
    // SAFETY: O4 - plain words, for which zeroes are the default action with no flags.
    let (default, mut outer): (libc::sigaction, libc::sigaction) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: O4 - both structures are ours.
    unsafe { libc::sigaction(signal, &default, &mut outer) };
    outer
}
