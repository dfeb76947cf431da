//! [`ExitScope`]: the exit handlers of one linked object. Also the functions by which linked code registers them.
//!
//! The C++ ABI (Itanium C++ ABI 3.3.6.3) registers the destructor of a static with the address of the object's own
//! `__dso_handle`. Here the word of that `__dso_handle` is the number of a scope, and the object's `__cxa_atexit` leads to this
//! file. So destructors run when the code of their object is removed, and never later.
//!
//! | linked code calls | handler is stored |
//! |---|---|
//! | `atexit`, `__cxa_atexit`, `on_exit` | in the object's scope (`exit_scopes.rs`, which also orders the calls) |
//! | `pthread_atfork`, `__register_atfork` | in the C library, under the address of the handle; removed when the scope is closed |
//! | `at_quick_exit`, `__cxa_at_quick_exit` | likewise |
//! | `__cxa_thread_atexit` | in a list of the thread (`thread_exit_handlers.rs`) |

use std::ffi::{c_int, c_void};

use crate::arch::MIN_PAGE_SIZE;
use crate::base::{ExecutorAddr, enter_host_call};
use crate::host::exit_scopes::{CodeKeepAlive, ExitScopes, FIRST_NUMBER, KeepAliveFn};
use crate::os;
use crate::sync::{Arc, StaticMutex, per_process};

/// The exit handlers of one object. Dropping it closes the scope: handlers that have not run are dropped.
#[derive(Debug)]
pub(super) struct ExitScope {
    number: u64,
}

struct Handler {
    function: HandlerFunction,
    /// A pointer of linked code, stored as a number, because the handler may run in any thread.
    argument: usize,
}

enum HandlerFunction {
    /// Registered with `__cxa_atexit` or `atexit`.
    Plain(extern "C-unwind" fn(*mut c_void)),
    /// Registered with `on_exit`.
    WithStatus(extern "C-unwind" fn(c_int, *mut c_void)),
}

per_process! {
    static SCOPES: ExitScopes<Handler> = ExitScopes::new();
}

/// The exit status for `on_exit` handlers. It is zero if code is removed while the process continues.
static STATUS: StaticMutex<c_int> = StaticMutex::new(0);

impl ExitScope {
    pub(super) fn new() -> ExitScope {
        ExitScope { number: SCOPES.open() }
    }

    /// The word of the object's `__dso_handle`.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Sets the closure that keeps the object's code alive while destructors of a thread are pending. The closure gets
    /// the name of the thread.
    pub(super) fn set_keep_alive(&self, keep_alive: Arc<KeepAliveFn>) {
        SCOPES.set_keep_alive(self.number, keep_alive);
    }

    /// Removes the object's handlers of forks and of `quick_exit` from the C library.
    pub(super) fn deregister_at_libc(&self) {
        // SAFETY: H2 - the handle is the address of this object's `__dso_handle`. The C library has only handlers of forks and
        // of `quick_exit` under it, because `__cxa_atexit` of linked code leads to this file. So it calls none of them.
        SCOPES.deregister_at_libc(self.number, |handle| unsafe { os::deregister_handlers(handle) });
    }

    /// Keeps the code of a scope's object alive for `holder`. `None` once removal of the code began.
    pub(super) fn keep_alive(number: u64, holder: &str) -> Option<CodeKeepAlive> {
        SCOPES.keep_alive(number, holder)
    }
}

impl Drop for ExitScope {
    fn drop(&mut self) {
        // SAFETY: H2 - as in `deregister_at_libc`.
        SCOPES.close(self.number, |handle| unsafe { os::deregister_handlers(handle) });
    }
}

impl Handler {
    fn call(self) {
        let argument = self.argument as *mut c_void;
        let _entry = enter_host_call();
        match self.function {
            HandlerFunction::Plain(function) => function(argument),
            HandlerFunction::WithStatus(function) => {
                let status = *STATUS.lock();
                function(status, argument);
            }
        }
    }
}

/// Runs the registered handlers of `scopes`, the latest first, including those that handlers register meanwhile. Returns
/// the number of calls.
pub(super) fn run_registered(scopes: &[u64]) -> usize {
    SCOPES.run(scopes.iter().copied(), Handler::call)
}

/// The address of the `__cxa_atexit` that linked code calls.
pub(super) fn atexit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_cxa_atexit as *const () as u64)
}

/// `int __cxa_atexit(void (*f)(void *), void *p, void *d)`: returns zero if the handler was registered.
///
/// # Safety
/// Only linked code calls this, with its own handler and the address of its own `__dso_handle`.
unsafe extern "C" fn capture_cxa_atexit(
    function: Option<extern "C-unwind" fn(*mut c_void)>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    let Some(function) = function else { return -1 };
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held while it calls this function.
    unsafe { register(HandlerFunction::Plain(function), argument, dso_handle) }
}

/// The address that `on_exit` of linked code calls.
pub(super) fn on_exit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_on_exit as *const () as u64)
}

/// Registers a handler that gets the exit status (`on_exit` of the GNU C library), with the object's handle.
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_on_exit(
    function: Option<extern "C-unwind" fn(c_int, *mut c_void)>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    let Some(function) = function else { return -1 };
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held while it calls this function.
    unsafe { register(HandlerFunction::WithStatus(function), argument, dso_handle) }
}

/// The address of the `__register_atfork` that linked code calls, and that its `pthread_atfork` calls.
pub(super) fn atfork_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_atfork as *const () as u64)
}

/// `int __register_atfork(prepare, parent, child, d)`: `pthread_atfork` with the object's handle. The C library runs the
/// handlers until the scope is closed.
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_atfork(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    dso_handle: *const u64,
) -> c_int {
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held while it calls this function.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handle = dso_handle as u64;
    // SAFETY: H2 - the handlers are functions of the calling object. Its scope stores the handle first, and removes them from
    // the C library before the code is freed.
    let register = || unsafe { os::register_at_fork([prepare, parent, child], handle) };
    SCOPES.register_at_libc(number, handle, register)
}

/// The address of the `__cxa_at_quick_exit` that linked code calls, and that its `at_quick_exit` calls.
pub(super) fn at_quick_exit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_at_quick_exit as *const () as u64)
}

/// `int __cxa_at_quick_exit(f, d)`: `at_quick_exit` with the object's handle. The C library runs the handler unless the scope is
/// closed before.
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_at_quick_exit(function: *const c_void, dso_handle: *const u64) -> c_int {
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held while it calls this function.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handle = dso_handle as u64;
    // SAFETY: H2 - as in `capture_atfork`.
    let register = || unsafe { os::register_at_quick_exit(function, handle) };
    SCOPES.register_at_libc(number, handle, register)
}

/// Sets the exit status for `on_exit` handlers that run from now on.
pub(super) fn set_exit_status(status: c_int) {
    *STATUS.lock() = status;
}

/// Registers a handler in the scope of an object. Returns zero, or -1 if there is no such scope.
///
/// # Safety
/// As for [`scope_number`].
unsafe fn register(function: HandlerFunction, argument: *mut c_void, dso_handle: *const u64) -> c_int {
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held while it calls this function.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handler = Handler { function, argument: argument as usize };
    if SCOPES.register(number, handler) { 0 } else { -1 }
}

/// Reads the number of a scope from a `__dso_handle`. `None` for null, and for a word that leads to no handle.
///
/// The standard library of Rust passes the address of a variable that holds the address of its `__dso_handle`. A native C library
/// accepts each address of an object. Here the word at such an address is no number of a scope, and leads to the handle.
///
/// # Safety
/// `dso_handle` is null, or the address of a `__dso_handle` of linked code that is held during the call, or the address of a word
/// of that code with the address of its `__dso_handle`, or with a value that is no address of an aligned word.
pub(super) unsafe fn scope_number(dso_handle: *const u64) -> Option<u64> {
    // SAFETY: H2 - the caller holds the object. What it passes is null or one of the words of `# Safety`.
    let word = unsafe { read_word(dso_handle) }?;
    if word >= FIRST_NUMBER {
        return Some(word);
    }
    let may_be_address = word >= MIN_PAGE_SIZE && word.is_multiple_of(align_of::<u64>() as u64);
    // SAFETY: H2 - as above. The word is no number, so it is the address of the `__dso_handle`.
    may_be_address.then(|| unsafe { read_word(word as *const u64) }).flatten()
}

/// Reads a word of linked code. `None` for null.
///
/// # Safety
/// `word` is null, or the address of an aligned word that is never written, of linked code that is held during the call.
pub(super) unsafe fn read_word(word: *const u64) -> Option<u64> {
    // SAFETY: H2 - the caller holds the object, and nobody writes the word.
    (!word.is_null()).then(|| unsafe { word.read() })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_keep_alive_closure_is_called_without_the_lock() {
        // The closure takes locks of the session, and threads that hold those locks open and close scopes.
        let scope = ExitScope::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.set_keep_alive(Arc::new(move |holder: &str| {
            let (name, sender) = (holder.to_string(), sender.clone());
            let other = std::thread::spawn(move || drop(ExitScope::new()));
            let begun = std::time::Instant::now();
            while !other.is_finished() && begun.elapsed() < std::time::Duration::from_secs(20) {
                std::thread::yield_now();
            }
            sender.send((name, other.is_finished())).expect("the receiver lives until the end of the test");
            Some(Box::new(()))
        }));
        assert!(ExitScope::keep_alive(scope.number(), "thread 1").is_some());
        assert_eq!(receiver.recv(), Ok(("thread 1".to_string(), true)));
    }
}
