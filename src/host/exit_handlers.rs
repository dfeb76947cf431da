//! [`ExitScope`]: what linked code registers with `atexit` and `__cxa_atexit`, kept per object instead of per process.
//!
//! The C++ ABI (Itanium C++ ABI 3.3.6.3) has static destructors registered with the address of the object's own
//! `__dso_handle`. Linked objects get a `__dso_handle` whose word is the number of a scope, and a `__cxa_atexit` that
//! leads here. So their destructors run when their code is removed, and never after. Handlers of forks and of `quick_exit`
//! stay the C library's, under the address of the handle, and are taken back from it with the object.
//!
//! Here are the functions that linked code calls. Which handlers wait, and in which order they run, is in `exit_scopes.rs`.

use std::ffi::{c_int, c_void};

use crate::base::{ExecutorAddr, enter_host_call};
use crate::host::exit_scopes::{CodeKeepAlive, ExitScopes};
use crate::host::thread_exit_handlers::run_in_this_thread;
use crate::os;
use crate::sync::{StaticMutex, per_process};

/// The handlers of one object. Dropping it forgets handlers that have not run.
#[derive(Debug)]
pub(crate) struct ExitScope {
    number: u64,
}

struct Handler {
    function: HandlerFunction,
    /// Kept as a number: it is linked code's own, and may be used from any thread.
    argument: usize,
}

enum HandlerFunction {
    Plain(extern "C-unwind" fn(*mut c_void)),
    /// Registered with `on_exit`.
    WithStatus(extern "C-unwind" fn(c_int, *mut c_void)),
}

per_process! {
    static SCOPES: ExitScopes<Handler> = ExitScopes::new();
}

/// What `on_exit` handlers are told: zero where code is removed while the process goes on.
static STATUS: StaticMutex<c_int> = StaticMutex::new(0);

impl ExitScope {
    pub(crate) fn new() -> ExitScope {
        ExitScope { number: SCOPES.open() }
    }

    /// The word that the object's `__dso_handle` holds.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How to hold the object's code as long as a thread, which is named, owes something to it.
    pub(crate) fn set_hold(&self, hold: impl Fn(&str) -> Option<CodeKeepAlive> + Send + Sync + 'static) {
        SCOPES.set_hold(self.number, hold);
    }

    /// Runs what the calling thread owes to `scopes`, and nothing else; how many functions.
    pub(crate) fn settle_thread(scopes: &[&ExitScope]) -> usize {
        run_in_this_thread(scopes)
    }

    /// Has the C library forget the handlers that it has of the object: of forks and of `quick_exit`.
    pub(crate) fn forget_at_libc(&self) {
        // SAFETY: H2 - the `__dso_handle` of linked code, under which exit handlers are kept here and not by libc.
        SCOPES.forget_at_libc(self.number, |handle| unsafe { os::forget_handlers(handle) });
    }

    /// Runs what the calling thread owes to `scopes`, then the handlers of `scopes`, the last registered first, those included that handlers register meanwhile;
    /// how many functions.
    pub(crate) fn run_all(scopes: &[&ExitScope]) -> usize {
        let owed = Self::settle_thread(scopes);
        owed + SCOPES.run(scopes.iter().map(|scope| scope.number), Handler::call)
    }
}

impl Drop for ExitScope {
    fn drop(&mut self) {
        // SAFETY: H2 - as in `forget_at_libc`.
        SCOPES.close(self.number, |handle| unsafe { os::forget_handlers(handle) });
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

/// The address of the `__cxa_atexit` that linked code calls.
pub(crate) fn atexit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_cxa_atexit as *const () as u64)
}

/// `int __cxa_atexit(void (*f)(void *), void *p, void *d)`: zero when the handler was taken.
///
/// # Safety
/// Only linked code calls this, with its own handler and the address of its own `__dso_handle`.
unsafe extern "C" fn capture_cxa_atexit(
    function: Option<extern "C-unwind" fn(*mut c_void)>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    let Some(function) = function else { return -1 };
    // SAFETY: H2 - by contract.
    unsafe { register(HandlerFunction::Plain(function), argument, dso_handle) }
}

/// The address of what linked code's `on_exit` leads to.
pub(crate) fn on_exit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_on_exit as *const () as u64)
}

/// As `__cxa_atexit`, for handlers that are told the exit status (`on_exit` of the GNU C library).
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_on_exit(
    function: Option<extern "C-unwind" fn(c_int, *mut c_void)>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    let Some(function) = function else { return -1 };
    // SAFETY: H2 - by contract.
    unsafe { register(HandlerFunction::WithStatus(function), argument, dso_handle) }
}

/// The address of what linked code's `pthread_atfork` leads to.
pub(crate) fn atfork_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_atfork as *const () as u64)
}

/// As `pthread_atfork`, with the object's handle: the C library runs the handlers, until the object goes.
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_atfork(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    dso_handle: *const u64,
) -> c_int {
    // SAFETY: H2 - by contract.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handle = dso_handle as u64;
    // SAFETY: H2 - linked code's own handlers; its scope has the C library forget them before the code goes.
    let register = || unsafe { os::register_at_fork([prepare, parent, child], handle) };
    SCOPES.register_at_libc(number, handle, register)
}

/// The address of what linked code's `at_quick_exit` leads to.
pub(crate) fn at_quick_exit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_at_quick_exit as *const () as u64)
}

/// As `at_quick_exit`, with the object's handle.
///
/// # Safety
/// As for [`capture_cxa_atexit`].
unsafe extern "C" fn capture_at_quick_exit(function: *const c_void, dso_handle: *const u64) -> c_int {
    // SAFETY: H2 - by contract.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handle = dso_handle as u64;
    // SAFETY: H2 - as in `capture_atfork`.
    let register = || unsafe { os::register_at_quick_exit(function, handle) };
    SCOPES.register_at_libc(number, handle, register)
}

/// What handlers that run from now on are told.
pub(crate) fn set_exit_status(status: c_int) {
    *STATUS.lock() = status;
}

/// # Safety
/// As for [`scope_number`].
unsafe fn register(function: HandlerFunction, argument: *mut c_void, dso_handle: *const u64) -> c_int {
    // SAFETY: H2 - by contract.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let handler = Handler { function, argument: argument as usize };
    if SCOPES.register(number, handler) { 0 } else { -1 }
}

/// The scope whose number stands in a `__dso_handle`.
///
/// # Safety
/// `dso_handle` is null, or the address of a `__dso_handle` of linked code that is held meanwhile.
pub(super) unsafe fn scope_number(dso_handle: *const u64) -> Option<u64> {
    if dso_handle.is_null() {
        return None;
    }
    // SAFETY: H2 - by contract.
    Some(unsafe { dso_handle.read() })
}

/// A hold on the code of a scope's object for `who`; `None` when that is gone, or about to.
pub(super) fn hold_of(number: u64, who: &str) -> Option<CodeKeepAlive> {
    SCOPES.hold(number, who)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_asked_for_under_no_lock() {
        // It takes locks of the session, under which others call in here.
        let scope = ExitScope::new();
        let (tell, told) = std::sync::mpsc::channel();
        scope.set_hold(move |who| {
            let (name, tell) = (who.to_string(), tell.clone());
            let other = std::thread::spawn(move || drop(ExitScope::new()));
            let begun = std::time::Instant::now();
            while !other.is_finished() && begun.elapsed() < std::time::Duration::from_secs(20) {
                std::thread::yield_now();
            }
            tell.send((name, other.is_finished())).expect("somebody listens");
            Some(Box::new(()))
        });
        assert!(hold_of(scope.number(), "thread 1").is_some());
        assert_eq!(told.recv(), Ok(("thread 1".to_string(), true)));
    }
}
