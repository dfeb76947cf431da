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
//! - A run chooses by a heap with the latest handler of each scope, so a handler costs the same among any number of scopes. The
//!   list of all registrations tells it of handlers that were registered since it last looked.
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
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ffi::c_int;

use rustc_hash::FxBuildHasher;

use crate::base::{NumberTree, count_step};
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
    /// The scope of each handler, by serial.
    by_serial: NumberTree,
}

/// The scopes of one run of handlers.
struct Run {
    scopes: HashSet<u64, FxBuildHasher>,
    /// The last handler of each scope: its serial, and its scope. May have handlers that are gone.
    latest: BinaryHeap<(u64, u64)>,
    /// Handlers with lower serials are known.
    next_serial: u64,
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
        ExitScopes { table: ProcessMutex::new(ScopeTable::new()) }
    }

    /// A table without scopes, for models.
    #[cfg(loom)]
    pub fn new() -> ExitScopes<H> {
        ExitScopes { table: ProcessMutex::new(ScopeTable::new()) }
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
        let scope = {
            let mut table = self.table.lock();
            let scope = table.by_number.as_mut().and_then(|scopes| scopes.remove(&number));
            for (serial, _) in scope.iter().flat_map(|scope| &scope.handlers) {
                table.by_serial.remove(serial);
            }
            scope
        };
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
        table.by_serial.insert(serial, number);
        true
    }

    /// Calls the handlers of `scopes`, the latest first, including those that are registered meanwhile. Returns the number of
    /// calls.
    pub fn run(&self, scopes: impl Iterator<Item = u64>, mut call: impl FnMut(H)) -> usize {
        let Some(mut run) = self.begin_run(scopes) else { return 0 };
        let mut count = 0;
        while let Some(handler) = self.pop_latest(&mut run) {
            call(handler);
            count += 1;
        }
        count
    }

    /// Reads the latest handler of each scope. `None` if the process has no handler. Releases the lock now and then, so that no
    /// other thread waits for long; handlers that are registered meanwhile are found later.
    fn begin_run(&self, scopes: impl Iterator<Item = u64>) -> Option<Run> {
        let mut table = self.table.lock();
        if table.by_serial.is_empty() {
            return None;
        }
        let mut run = Run { scopes: HashSet::default(), latest: BinaryHeap::new(), next_serial: table.next_serial };
        for (position, number) in (1..).zip(scopes) {
            count_step();
            if run.scopes.insert(number) {
                run.latest.extend(table.last_serial(number).map(|serial| (serial, number)));
            }
            if position % SCOPE_BATCH == 0 {
                drop(table);
                table = self.table.lock();
            }
        }
        Some(run)
    }

    /// Removes the handler with the highest serial from the scopes of a run.
    fn pop_latest(&self, run: &mut Run) -> Option<H> {
        let mut table = self.table.lock();
        for (serial, number) in table.by_serial.range(run.next_serial..) {
            if run.scopes.contains(number) {
                run.latest.push((*serial, *number));
            }
        }
        run.next_serial = table.next_serial;
        while let Some((serial, number)) = run.latest.pop() {
            count_step();
            if seeded_bug!("handler_chosen_under_an_earlier_lock") {
                drop(table);
                table = self.table.lock();
                return table.pop(number);
            }
            let last = table.last_serial(number);
            if last != Some(serial) {
                // Another thread has removed it.
                run.latest.extend(last.map(|last| (last, number)));
                continue;
            }
            let handler = table.pop(number);
            run.latest.extend(table.last_serial(number).map(|last| (last, number)));
            return handler;
        }
        None
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
    const fn new() -> ScopeTable<H> {
        ScopeTable { next_number: FIRST_NUMBER, next_serial: 0, by_number: None, by_serial: NumberTree::new() }
    }

    /// The serial of the last handler of a scope.
    fn last_serial(&self, number: u64) -> Option<u64> {
        Some(self.by_number.as_ref()?.get(&number)?.handlers.last()?.0)
    }

    /// Removes the last handler of a scope.
    fn pop(&mut self, number: u64) -> Option<H> {
        let (serial, handler) = self.scope(number)?.handlers.pop()?;
        self.by_serial.remove(&serial);
        Some(handler)
    }

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

/// The number of the first scope. No address is that high, so a number and an address are told apart
/// (`scope_number` in `exit_handlers.rs`).
pub(super) const FIRST_NUMBER: u64 = 1 << 63;

/// The number of scopes that a run reads under one lock.
const SCOPE_BATCH: usize = 128;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::steps_of;

    /// Runs two handlers of each of `count` scopes. Returns the order of the calls, and the steps.
    fn run(count: usize) -> (Vec<usize>, usize) {
        let (table, mut called) = (ExitScopes::new(), Vec::new());
        let scopes: Vec<u64> = (0..count).map(|_| table.open()).collect();
        for handler in 0..2 * count {
            assert!(table.register(scopes[handler % count], handler));
        }
        let steps =
            steps_of(|| assert_eq!(table.run(scopes.iter().copied(), |handler| called.push(handler)), 2 * count));
        (called, steps)
    }

    #[test]
    fn a_handler_takes_the_same_steps_among_any_number_of_scopes_and_the_latest_is_first() {
        for count in [1, 10, 1000] {
            let (called, steps) = run(count);
            assert!(called.iter().copied().eq((0..2 * count).rev()));
            assert_eq!(steps, 3 * count, "once to list each scope, once for each handler");
        }
    }

    #[test]
    fn a_run_also_calls_handlers_that_its_handlers_register_in_any_of_its_scopes() {
        let table = ExitScopes::new();
        let [first, second, other] = [(); 3].map(|()| table.open());
        table.register(first, 1);
        table.register(second, 2);
        table.register(other, 3);
        let mut called = Vec::new();
        let count = table.run([first, second].into_iter(), |handler: u64| {
            called.push(handler);
            if handler < 10 {
                assert!(table.register(if handler == 1 { second } else { first }, 10 + handler));
            }
        });
        assert_eq!((count, called), (4, vec![2, 12, 1, 11]));
        assert_eq!(table.run([other].into_iter(), |_| {}), 1);
    }
}
