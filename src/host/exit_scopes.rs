//! [`ExitScopes`]: the exit handlers of all objects of the process, and the order in which they run.
//!
//! A *scope* holds the handlers of one object. The link of the object opens the scope; the object closes it before its memory
//! is freed. A closed scope has no handlers and accepts none, and its number is never used again.
//!
//! | step | under the lock | after the lock is released |
//! |---|---|---|
//! | `register` | gives the handler the next serial and pushes it to its scope; refuses if the scope is closed | |
//! | `run` | removes the handler with the highest serial from the given scopes | calls the handler, then repeats |
//! | `register_at_libc` | stores the handle in the scope; refuses if the scope is closed | the C library stores the handler |
//! | `deregister_at_libc` | reads the handle, which stays stored | the C library removes the handlers of the handle |
//! | `keep_alive` | clones the closure | calls the closure |
//! | `close` | removes the scope | the C library removes its handlers; the scope's handlers and closure are dropped |
//!
//! # Order
//! - A handler runs once, because it is removed from its scope before it is called.
//! - Handlers run in reverse order of their registration. A handler gets its serial and its position in the scope under one
//!   lock, and it is chosen and removed under one lock.
//! - Threads that run handlers of one scope at the same time share the handlers. No thread waits for a handler that another
//!   thread has removed.
//! - `register_at_libc` stores the handle before the C library stores the handler, and the handle stays stored until `close`.
//!   A thread may store the handle, then lose the race with `deregister_at_libc`, and register its handler after that. `close`
//!   removes that handler.
//!
//! # Callers
//! The caller of `run`, `register_at_libc` or `deregister_at_libc` keeps the object's code alive, so no other thread closes the
//! scope meanwhile. The scopes of the process are a static in `exit_handlers.rs`. One lock guards all of them. Under that lock
//! this file calls and drops nothing foreign: no handler, no closure, no function of the C library.
//! Model: `loom_tests/loom_exit_handlers.rs`.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_int;

use crate::sync::{Arc, ProcessMutex, seeded_bug};

/// All scopes of a process. `H` is the type of a handler.
pub struct ExitScopes<H> {
    table: ProcessMutex<ScopeTable<H>>,
}

struct ScopeTable<H> {
    next_number: u64,
    next_serial: u64,
    /// The open scopes.
    by_number: Option<HashMap<u64, Scope<H>>>,
}

struct Scope<H> {
    /// Each handler with its serial, which counts all registrations of the process. The latest is last.
    handlers: Vec<(u64, H)>,
    /// Keeps the object's code alive for a named holder. Returns `None` once removal of the code began.
    keep_alive: Option<Arc<KeepAliveFn>>,
    /// Address of the object's `__dso_handle`, if the C library may have handlers under it (of forks and of `quick_exit`).
    libc_handle: Option<u64>,
}

/// Keeps code in memory until it is dropped.
pub(crate) type CodeKeepAlive = Box<dyn Any + Send>;

/// Keeps code in memory for a named holder. Returns `None` once removal of the code began.
pub(crate) type KeepAliveFn = dyn Fn(&str) -> Option<CodeKeepAlive> + Send + Sync;

impl<H> ExitScopes<H> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> ExitScopes<H> {
        ExitScopes { table: ProcessMutex::new(ScopeTable { next_number: 1, next_serial: 0, by_number: None }) }
    }

    /// A table without scopes, for models.
    #[cfg(loom)]
    pub fn new() -> ExitScopes<H> {
        ExitScopes { table: ProcessMutex::new(ScopeTable { next_number: 1, next_serial: 0, by_number: None }) }
    }

    /// Opens a scope and returns its number.
    pub fn open(&self) -> u64 {
        let mut table = self.table.lock();
        let number = table.next_number;
        if seeded_bug!("number_read_under_an_earlier_lock") {
            drop(table);
            table = self.table.lock();
        }
        table.next_number = number + 1;
        table.by_number.get_or_insert_default().insert(number, Scope::new());
        number
    }

    /// Closes a scope. `deregister` makes the C library remove the handlers of the handle that it gets.
    pub fn close(&self, number: u64, deregister: impl FnOnce(u64)) {
        let scope = self.table.lock().by_number.as_mut().and_then(|scopes| scopes.remove(&number));
        if let Some(handle) = scope.as_ref().and_then(|scope| scope.libc_handle) {
            deregister(handle);
        }
    }

    /// Registers a handler after all others. Returns false if the scope is closed.
    pub fn register(&self, number: u64, handler: H) -> bool {
        let mut table = self.table.lock();
        let serial = table.next_serial;
        table.next_serial += 1;
        if seeded_bug!("serial_taken_under_an_earlier_lock") {
            drop(table);
            table = self.table.lock();
        }
        if seeded_bug!("closed_scope_opened_again") {
            table.by_number.get_or_insert_default().entry(number).or_insert_with(Scope::new);
        }
        let Some(scope) = table.scope(number) else { return false };
        scope.handlers.push((serial, handler));
        true
    }

    /// Calls the handlers of `scopes`, the latest first, including those that are registered meanwhile. Returns the number of
    /// calls.
    pub fn run(&self, scopes: impl Iterator<Item = u64> + Clone, mut call: impl FnMut(H)) -> usize {
        let mut count = 0;
        while let Some(handler) = self.pop_latest(scopes.clone()) {
            call(handler);
            count += 1;
        }
        count
    }

    /// Removes the handler with the highest serial from `scopes`.
    fn pop_latest(&self, scopes: impl Iterator<Item = u64>) -> Option<H> {
        let mut table = self.table.lock();
        let by_number = table.by_number.as_ref()?;
        let last_serial = |number: u64| Some(by_number.get(&number)?.handlers.last()?.0);
        let (_, number) = scopes.filter_map(|number| Some((last_serial(number)?, number))).max()?;
        if seeded_bug!("handler_chosen_under_an_earlier_lock") {
            drop(table);
            table = self.table.lock();
        }
        table.scope(number)?.handlers.pop().map(|(_, handler)| handler)
    }

    /// Calls `register`, which registers a handler with the C library under the object's handle. Returns the result of
    /// `register`, or -1 if the scope is closed.
    pub fn register_at_libc(&self, number: u64, handle: u64, register: impl FnOnce() -> c_int) -> c_int {
        let store = |scope: &mut Scope<H>| scope.libc_handle = Some(handle);
        let is_open = self.table.lock().scope(number).map(store).is_some();
        if is_open { register() } else { -1 }
    }

    /// Calls `deregister` with the object's handle, if one is stored. `deregister` makes the C library remove the
    /// handlers of that handle. The object stays loaded.
    pub fn deregister_at_libc(&self, number: u64, deregister: impl FnOnce(u64)) {
        let stored = |scope: &mut Scope<H>| {
            let handle = &mut scope.libc_handle;
            if seeded_bug!("handle_forgotten_while_the_object_stays") { handle.take() } else { *handle }
        };
        let handle = self.table.lock().scope(number).and_then(stored);
        if let Some(handle) = handle {
            deregister(handle);
        }
    }

    /// Sets the closure that keeps the object's code alive. The old closure is dropped outside the lock.
    pub fn set_keep_alive(&self, number: u64, keep_alive: Arc<KeepAliveFn>) {
        let mut keep_alive = Some(keep_alive);
        if let Some(scope) = self.table.lock().scope(number) {
            std::mem::swap(&mut scope.keep_alive, &mut keep_alive);
        }
    }

    /// Keeps the object's code alive for `holder`. `None` once removal of the code began.
    pub fn keep_alive(&self, number: u64, holder: &str) -> Option<CodeKeepAlive> {
        let keep_alive = self.table.lock().scope(number)?.keep_alive.clone()?;
        keep_alive(holder)
    }
}

impl<H> ScopeTable<H> {
    /// An open scope.
    fn scope(&mut self, number: u64) -> Option<&mut Scope<H>> {
        self.by_number.as_mut()?.get_mut(&number)
    }
}

impl<H> Scope<H> {
    fn new() -> Scope<H> {
        Scope { handlers: Vec::new(), keep_alive: None, libc_handle: None }
    }
}
