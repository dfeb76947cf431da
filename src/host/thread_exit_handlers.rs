//! What linked code wants called when a thread ends: destructors of thread-local variables, which C++ registers with
//! `__cxa_thread_atexit` and Rust with `__cxa_thread_atexit_impl`, by the object's own `__dso_handle`.
//!
//! | when | what is called |
//! |---|---|
//! | the thread ends | all that it owes, the last registered first, each under a hold on its code; what was removed meanwhile is left out |
//! | the object's finalisers are called | what the calling thread owes to it, ahead of them |
//!
//! The list of a thread is that thread's own. The C library knows of one entry for all of it.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use crate::base::ExecutorAddr;
use crate::host::exit_handlers::{ExitScope, hold_of, scope_number};
use crate::os;
use crate::sync::thread_local;

type Destructor = extern "C-unwind" fn(*mut c_void);

struct Owed {
    scope: u64,
    destructor: Destructor,
    argument: *mut c_void,
}

/// What this thread owes.
struct Debts {
    list: Vec<Owed>,
    /// Whether the C library will call [`at_thread_end`].
    is_known: bool,
}

thread_local! {
    // Nothing is dropped when the thread ends, so that the list is there as long as any destructor runs: it is empty then.
    #[allow(clippy::missing_const_for_thread_local)]
    static DEBTS: std::mem::ManuallyDrop<RefCell<Debts>> =
        std::mem::ManuallyDrop::new(RefCell::new(Debts { list: Vec::new(), is_known: false }));
}

/// A hold on code while it is called.
pub(crate) type Hold = Box<dyn Any + Send>;

/// The address of the `__cxa_thread_atexit` that linked code calls.
pub(crate) fn thread_atexit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_thread_atexit as *const () as u64)
}

/// `int __cxa_thread_atexit(void (*f)(void *), void *p, void *d)`: zero when the destructor was taken.
extern "C" fn capture_thread_atexit(
    destructor: Option<Destructor>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    let (Some(destructor), Some(scope)) = (destructor, scope_number(dso_handle)) else { return -1 };
    DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        debts.is_known = debts.is_known || os::at_thread_exit(at_thread_end);
        if !debts.is_known {
            return -1;
        }
        debts.list.push(Owed { scope, destructor, argument });
        0
    })
}

/// Calls what the calling thread owes to `scopes`, the last registered first; what comes up meanwhile, too.
pub(super) fn run_in_this_thread(scopes: &[&ExitScope]) {
    let is_wanted = |owed: &Owed| scopes.iter().any(|scope| scope.number() == owed.scope);
    while let Some(owed) = take_last(is_wanted) {
        (owed.destructor)(owed.argument);
    }
}

extern "C-unwind" fn at_thread_end(_: *mut c_void) {
    while let Some(owed) = take_last(|_| true) {
        // Dropped after the call: it may be the last hold on the code.
        if let Some(_hold) = hold_of(owed.scope) {
            (owed.destructor)(owed.argument);
        }
    }
    DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        // A destructor that is registered from here on is another entry of the C library's.
        debts.is_known = false;
        debts.list = Vec::new();
    });
}

/// Nothing is borrowed while a destructor runs.
fn take_last(is_wanted: impl Fn(&Owed) -> bool) -> Option<Owed> {
    DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        let at = debts.list.iter().rposition(is_wanted)?;
        Some(debts.list.remove(at))
    })
}
