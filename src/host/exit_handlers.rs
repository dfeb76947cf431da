//! [`ExitScope`]: what linked code registers with `atexit` and `__cxa_atexit`, kept per object instead of per process.
//!
//! The C++ ABI (Itanium C++ ABI 3.3.6.3) has static destructors registered with the address of the object's own
//! `__dso_handle`. Linked objects get a `__dso_handle` whose word is the number of a scope, and a `__cxa_atexit` that
//! leads here. So their destructors run when their code is removed, and never after. Handlers of forks and of `quick_exit`
//! stay the C library's, under the address of the handle, and are taken back from it with the object.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::base::{ExecutorAddr, enter_host_call};
use crate::host::thread_exit_handlers::{Hold, run_in_this_thread};
use crate::os;
use crate::sync::{Arc, StaticMutex};

/// The handlers of one object. Dropping it forgets handlers that have not run.
#[derive(Debug)]
pub(crate) struct ExitScope {
    number: u64,
}

struct Handler {
    /// Position among all registrations of the process.
    serial: u64,
    function: HandlerFunction,
    /// Kept as a number: it is linked code's own, and may be used from any thread.
    argument: usize,
}

enum HandlerFunction {
    Plain(extern "C-unwind" fn(*mut c_void)),
    /// Registered with `on_exit`.
    WithStatus(extern "C-unwind" fn(c_int, *mut c_void)),
}

struct Scopes {
    /// What `on_exit` handlers are told: zero where code is removed while the process goes on.
    status: c_int,
    next_number: u64,
    next_serial: u64,
    by_number: Option<HashMap<u64, Scope>>,
}

#[derive(Default)]
struct Scope {
    handlers: Vec<Handler>,
    /// Holds the object's code for somebody, who is named; `None` from it when that is gone, or about to.
    hold: Option<Arc<HoldCode>>,
    /// The object's `__dso_handle`, if the C library has handlers under that address: for forks, and for `quick_exit`.
    known_to_libc: Option<u64>,
}

type HoldCode = dyn Fn(&str) -> Option<Hold> + Send + Sync;

static SCOPES: StaticMutex<Scopes> =
    StaticMutex::new(Scopes { status: 0, next_number: 1, next_serial: 0, by_number: None });

impl ExitScope {
    pub(crate) fn new() -> ExitScope {
        let mut scopes = SCOPES.lock();
        let number = scopes.next_number;
        scopes.next_number += 1;
        scopes.by_number.get_or_insert_default().insert(number, Scope::default());
        ExitScope { number }
    }

    /// The word that the object's `__dso_handle` holds.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How to hold the object's code as long as a thread, which is named, owes something to it.
    pub(crate) fn set_hold(&self, hold: impl Fn(&str) -> Option<Hold> + Send + Sync + 'static) {
        let mut scopes = SCOPES.lock();
        if let Some(scope) = scopes.by_number.as_mut().and_then(|scopes| scopes.get_mut(&self.number)) {
            scope.hold = Some(Arc::new(hold));
        }
    }

    /// Runs what the calling thread owes to `scopes`, and nothing else; how many functions.
    pub(crate) fn settle_thread(scopes: &[&ExitScope]) -> usize {
        run_in_this_thread(scopes)
    }

    /// Has the C library forget the handlers that it has of the object: of forks and of `quick_exit`.
    pub(crate) fn forget_at_libc(&self) {
        let mut scopes = SCOPES.lock();
        let scope = scopes.by_number.as_mut().and_then(|scopes| scopes.get_mut(&self.number));
        let handle = scope.and_then(|scope| scope.known_to_libc.take());
        drop(scopes);
        if let Some(handle) = handle {
            // SAFETY: H2 - the `__dso_handle` of linked code, under which exit handlers are kept here and not by libc.
            unsafe { os::forget_handlers(handle) };
        }
    }

    /// Runs what the calling thread owes to `scopes`, then the handlers of `scopes`, the last registered first, those included that handlers register meanwhile;
    /// how many functions.
    pub(crate) fn run_all(scopes: &[&ExitScope]) -> usize {
        let mut count = Self::settle_thread(scopes);
        while let Some(handler) = take_last(scopes) {
            let argument = handler.argument as *mut c_void;
            let _entry = enter_host_call();
            match handler.function {
                HandlerFunction::Plain(function) => function(argument),
                HandlerFunction::WithStatus(function) => {
                    let status = SCOPES.lock().status;
                    function(status, argument);
                }
            }
            count += 1;
        }
        count
    }
}

impl Drop for ExitScope {
    fn drop(&mut self) {
        let scope = SCOPES.lock().by_number.as_mut().and_then(|scopes| scopes.remove(&self.number));
        if let Some(handle) = scope.as_ref().and_then(|scope| scope.known_to_libc) {
            // SAFETY: H2 - as in `forget_at_libc`.
            unsafe { os::forget_handlers(handle) };
        }
        drop(scope);
    }
}

fn take_last(wanted: &[&ExitScope]) -> Option<Handler> {
    let mut scopes = SCOPES.lock();
    let by_number = scopes.by_number.as_mut()?;
    let serial_of = |scope: &&&ExitScope| Some(by_number.get(&scope.number)?.handlers.last()?.serial);
    let last = wanted.iter().filter(|scope| serial_of(scope).is_some()).max_by_key(|scope| serial_of(scope))?;
    by_number.get_mut(&last.number)?.handlers.pop()
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
    if !unsafe { note_handlers(dso_handle) } {
        return -1;
    }
    // SAFETY: H2 - linked code's own handlers; its scope has the C library forget them before the code goes.
    unsafe { os::register_at_fork([prepare, parent, child], dso_handle as u64) }
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
    if !unsafe { note_handlers(dso_handle) } {
        return -1;
    }
    // SAFETY: H2 - as in `capture_atfork`.
    unsafe { os::register_at_quick_exit(function, dso_handle as u64) }
}

/// Takes note that the C library is about to have handlers of an object; false when that is not known.
///
/// # Safety
/// As for [`scope_number`].
unsafe fn note_handlers(dso_handle: *const u64) -> bool {
    // SAFETY: H2 - by contract.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return false };
    let mut scopes = SCOPES.lock();
    let scope = scopes.by_number.as_mut().and_then(|scopes| scopes.get_mut(&number));
    scope.map(|scope| scope.known_to_libc = Some(dso_handle as u64)).is_some()
}

/// What handlers that run from now on are told.
pub(crate) fn set_exit_status(status: c_int) {
    SCOPES.lock().status = status;
}

/// # Safety
/// As for [`scope_number`].
unsafe fn register(function: HandlerFunction, argument: *mut c_void, dso_handle: *const u64) -> c_int {
    // SAFETY: H2 - by contract.
    let Some(number) = (unsafe { scope_number(dso_handle) }) else { return -1 };
    let mut scopes = SCOPES.lock();
    let serial = scopes.next_serial;
    scopes.next_serial += 1;
    match scopes.by_number.as_mut().and_then(|scopes| scopes.get_mut(&number)) {
        Some(scope) => {
            scope.handlers.push(Handler { serial, function, argument: argument as usize });
            0
        }
        None => -1,
    }
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
pub(super) fn hold_of(number: u64, who: &str) -> Option<Hold> {
    let hold = SCOPES.lock().by_number.as_ref()?.get(&number)?.hold.clone()?;
    // Asked outside the lock: the session's locks are not ours to nest in.
    hold(who)
}
