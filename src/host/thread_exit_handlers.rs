//! What linked code wants called when a thread ends: destructors of thread-local variables, which C++ registers with
//! `__cxa_thread_atexit` and Rust with `__cxa_thread_atexit_impl`, by the object's own `__dso_handle`.
//!
//! | when | what is called |
//! |---|---|
//! | the thread ends | all that it owes, the last registered first |
//! | nothing else holds the removed object, by what this thread did | what this thread owes to it |
//! | the object's finalisers are called | what the calling thread owes to it, ahead of them |
//!
//! A thread that owes something to an object holds its code, from the first destructor that it registers there until the
//! last has been called: another thread's variables are not for anybody else to destroy, so the object has to wait. Who
//! gave the hold decides what that means (`ExitScope::set_hold`). Only what finalisers themselves register, when the code is
//! about to go, is owed without a hold, and called by the thread that finalises, or never.
//!
//! The list of a thread is that thread's own, and so are its holds. The C library knows of one entry for all of it. Holds
//! are taken and dropped, and destructors called, while nothing of this is borrowed or locked.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use crate::base::{ExecutorAddr, enter_host_call};
use crate::host::exit_handlers::{ExitScope, hold_of, scope_number};
use crate::host::exit_scopes::CodeKeepAlive;
use crate::os;
use crate::sync::{thread_id, thread_local};

type Destructor = extern "C-unwind" fn(*mut c_void);

struct Dtor {
    scope: u64,
    destructor: Destructor,
    argument: *mut c_void,
}

impl Dtor {
    fn call(&self) {
        let _entry = enter_host_call();
        (self.destructor)(self.argument);
    }
}

/// An object that this thread owes to.
struct ObjectDtors {
    scope: u64,
    /// How many entries of the list are about it.
    owed: usize,
    /// `None` when the code was about to go at the time.
    hold: Option<CodeKeepAlive>,
}

/// What this thread owes.
struct ThreadDtors {
    list: Vec<Dtor>,
    /// One for each object that the list is about.
    creditors: Vec<ObjectDtors>,
    /// Whether the C library will call [`at_thread_end`].
    is_known: bool,
}

thread_local! {
    // Nothing is dropped when the thread ends, so that the list is there as long as any destructor runs: it is empty then.
    #[allow(clippy::missing_const_for_thread_local)]
    static DEBTS: std::mem::ManuallyDrop<RefCell<ThreadDtors>> =
        std::mem::ManuallyDrop::new(RefCell::new(ThreadDtors { list: Vec::new(), creditors: Vec::new(), is_known: false }));
}

/// The address of the `__cxa_thread_atexit` that linked code calls.
pub(crate) fn thread_atexit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_thread_atexit as *const () as u64)
}

/// `int __cxa_thread_atexit(void (*f)(void *), void *p, void *d)`: zero when the destructor was taken.
///
/// # Safety
/// Only linked code calls this, with its own destructor and the address of its own `__dso_handle`.
unsafe extern "C" fn capture_thread_atexit(
    destructor: Option<Destructor>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    // SAFETY: H2 - by contract.
    let (Some(destructor), Some(scope)) = (destructor, unsafe { scope_number(dso_handle) }) else { return -1 };
    let is_taken = DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        debts.is_known = debts.is_known || os::at_thread_exit(at_thread_end);
        if debts.is_known {
            debts.list.push(Dtor { scope, destructor, argument });
        }
        debts.is_known
    });
    if !is_taken {
        return -1;
    }
    if !DEBTS.with(|debts| debts.borrow_mut().owe_more(scope)) {
        // Under no borrow: locks of the session are taken.
        let hold = hold_of(scope, &format!("thread {}", thread_id()));
        DEBTS.with(|debts| debts.borrow_mut().creditors.push(ObjectDtors { scope, owed: 1, hold }));
    }
    0
}

/// Calls what the calling thread owes to `scopes`, the last registered first; what comes up meanwhile, too; how many.
pub(super) fn run_in_this_thread(scopes: &[&ExitScope]) -> usize {
    let mut count = 0;
    let is_wanted = |owed: &Dtor| scopes.iter().any(|scope| scope.number() == owed.scope);
    while let Some((owed, hold)) = take_last(is_wanted) {
        owed.call();
        drop(hold);
        count += 1;
    }
    count
}

extern "C-unwind" fn at_thread_end(_: *mut c_void) {
    while let Some((owed, last_hold)) = take_last(|_| true) {
        if last_hold.is_some() || DEBTS.with(|debts| debts.borrow().holds(owed.scope)) {
            owed.call();
        }
        // After the call: it may be the last hold on the code, which goes here then.
        drop(last_hold);
    }
    DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        // A destructor that is registered from here on is another entry of the C library's.
        debts.is_known = false;
        (debts.list, debts.creditors) = (Vec::new(), Vec::new());
    });
}

/// Takes the last one off the list, and the hold on its code if it is the only one that is left of its object's. Nothing is
/// borrowed while a destructor runs.
fn take_last(is_wanted: impl Fn(&Dtor) -> bool) -> Option<(Dtor, Option<CodeKeepAlive>)> {
    DEBTS.with(|debts| {
        let mut debts = debts.borrow_mut();
        let at = debts.list.iter().rposition(is_wanted)?;
        let owed = debts.list.remove(at);
        let hold = debts.owe_less(owed.scope);
        Some((owed, hold))
    })
}

impl ThreadDtors {
    /// Counts one more; false when the object is none of the creditors.
    fn owe_more(&mut self, scope: u64) -> bool {
        let creditor = self.creditors.iter_mut().find(|creditor| creditor.scope == scope);
        creditor.map(|creditor| creditor.owed += 1).is_some()
    }

    /// Counts one less; gives the hold back with the last.
    fn owe_less(&mut self, scope: u64) -> Option<CodeKeepAlive> {
        let at = self.creditors.iter().position(|creditor| creditor.scope == scope)?;
        self.creditors[at].owed -= 1;
        if self.creditors[at].owed > 0 { None } else { self.creditors.swap_remove(at).hold }
    }

    fn holds(&self, scope: u64) -> bool {
        self.creditors.iter().any(|creditor| creditor.scope == scope && creditor.hold.is_some())
    }
}
