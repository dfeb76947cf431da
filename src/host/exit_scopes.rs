//! [`ExitScopes`]: which exit handlers wait to be run, whose they are, and in which order they run.
//!
//! A *scope* has the handlers of one object. The object's link opens the scope; the object closes it before its memory goes. A
//! scope that is closed has no handlers and takes none, and its number is not given again.
//!
//! | step | under the lock | after the lock was left |
//! |---|---|---|
//! | `register` | the handler gets the next serial, and joins its scope; refused if that is closed | |
//! | `run` | of the scopes asked for, the handler with the highest serial leaves its scope | it is called; then the next one is taken |
//! | `register_at_libc` | the scope notes its handle; refused if it is closed | the C library takes the handler |
//! | `forget_at_libc` | the handle is read, and stays noted | the C library forgets the handlers of the handle |
//! | `hold` | the hold is cloned | it is asked |
//! | `close` | the scope leaves | the C library forgets; handlers and hold are dropped |
//!
//! A handler runs once, because it leaves its scope before it is called. Handlers leave in the reverse order of their
//! registration, because a serial and the place in the scope are given under one lock, and a handler is chosen and leaves under
//! one lock. Threads that run handlers of one scope at the same time share them. None waits for a handler that another thread
//! has taken.
//!
//! The handle is noted before the C library takes a handler, and stays noted until the scope is closed. A thread may note it,
//! be overtaken by `forget_at_libc`, and have its handler taken only then: `close` has the C library forget that one.
//!
//! Whoever calls `run`, `register_at_libc` or `forget_at_libc` holds the object's code meanwhile, so the scope is not closed under
//! them. The scopes of the process are a static of `exit_handlers.rs`. Its one lock guards everything here. Under it nothing is
//! called or dropped that is not this file's: no handler, no hold, no function of the C library.
//! Model: `loom_tests/loom_exit_handlers.rs`.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_int;

use crate::sync::{Arc, ProcessMutex, seeded_bug};

/// The scopes of a process. Their handlers are `H`.
pub struct ExitScopes<H> {
    books: ProcessMutex<Books<H>>,
}

struct Books<H> {
    next_number: u64,
    next_serial: u64,
    /// The open ones.
    by_number: Option<HashMap<u64, Scope<H>>>,
}

struct Scope<H> {
    /// Each with its serial: the position among all registrations of the process. The last registered stands last.
    handlers: Vec<(u64, H)>,
    /// Holds the object's code for somebody, who is named; `None` from it when that is gone, or about to.
    hold: Option<Arc<KeepAliveFn>>,
    /// The object's `__dso_handle`, if the C library may have handlers under that address: for forks, and for `quick_exit`.
    known_to_libc: Option<u64>,
}

/// A hold on code while it is called.
pub(crate) type CodeKeepAlive = Box<dyn Any + Send>;

type KeepAliveFn = dyn Fn(&str) -> Option<CodeKeepAlive> + Send + Sync;

impl<H> ExitScopes<H> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> ExitScopes<H> {
        ExitScopes { books: ProcessMutex::new(Books { next_number: 1, next_serial: 0, by_number: None }) }
    }

    /// Without a scope. For models.
    #[cfg(loom)]
    pub fn new() -> ExitScopes<H> {
        ExitScopes { books: ProcessMutex::new(Books { next_number: 1, next_serial: 0, by_number: None }) }
    }

    /// Opens a scope; its number.
    pub fn open(&self) -> u64 {
        let mut books = self.books.lock();
        let number = books.next_number;
        if seeded_bug!("number_read_under_an_earlier_lock") {
            drop(books);
            books = self.books.lock();
        }
        books.next_number = number + 1;
        books.by_number.get_or_insert_default().insert(number, Scope::new());
        number
    }

    /// Closes a scope. `forget` has the C library forget the handlers of the handle that it is given.
    pub fn close(&self, number: u64, forget: impl FnOnce(u64)) {
        let scope = self.books.lock().by_number.as_mut().and_then(|scopes| scopes.remove(&number));
        if let Some(handle) = scope.as_ref().and_then(|scope| scope.known_to_libc) {
            forget(handle);
        }
    }

    /// Puts a handler behind all that are registered. False when the scope is closed.
    pub fn register(&self, number: u64, handler: H) -> bool {
        let mut books = self.books.lock();
        let serial = books.next_serial;
        books.next_serial += 1;
        if seeded_bug!("serial_taken_under_an_earlier_lock") {
            drop(books);
            books = self.books.lock();
        }
        if seeded_bug!("closed_scope_opened_again") {
            books.by_number.get_or_insert_default().entry(number).or_insert_with(Scope::new);
        }
        let Some(scope) = books.scope(number) else { return false };
        scope.handlers.push((serial, handler));
        true
    }

    /// Calls the handlers of `scopes`, the last registered first, those included that are registered meanwhile; how many.
    pub fn run(&self, scopes: impl Iterator<Item = u64> + Clone, mut call: impl FnMut(H)) -> usize {
        let mut count = 0;
        while let Some(handler) = self.take_last(scopes.clone()) {
            call(handler);
            count += 1;
        }
        count
    }

    fn take_last(&self, scopes: impl Iterator<Item = u64>) -> Option<H> {
        let mut books = self.books.lock();
        let by_number = books.by_number.as_ref()?;
        let last_serial = |number: u64| Some(by_number.get(&number)?.handlers.last()?.0);
        let (_, number) = scopes.filter_map(|number| Some((last_serial(number)?, number))).max()?;
        if seeded_bug!("handler_chosen_under_an_earlier_lock") {
            drop(books);
            books = self.books.lock();
        }
        books.scope(number)?.handlers.pop().map(|(_, handler)| handler)
    }

    /// Has the C library take a handler by `register`, under the object's handle; its answer, or -1 when the scope is closed.
    pub fn register_at_libc(&self, number: u64, handle: u64, register: impl FnOnce() -> c_int) -> c_int {
        let note = |scope: &mut Scope<H>| scope.known_to_libc = Some(handle);
        let is_noted = self.books.lock().scope(number).map(note).is_some();
        if is_noted { register() } else { -1 }
    }

    /// Has the C library forget the handlers of an object that stays, by `forget`, which is given the handle.
    pub fn forget_at_libc(&self, number: u64, forget: impl FnOnce(u64)) {
        let noted = |scope: &mut Scope<H>| {
            let handle = &mut scope.known_to_libc;
            if seeded_bug!("handle_forgotten_while_the_object_stays") { handle.take() } else { *handle }
        };
        let handle = self.books.lock().scope(number).and_then(noted);
        if let Some(handle) = handle {
            forget(handle);
        }
    }

    /// Says how to hold the object's code.
    pub fn set_hold(&self, number: u64, hold: impl Fn(&str) -> Option<CodeKeepAlive> + Send + Sync + 'static) {
        let mut hold: Option<Arc<KeepAliveFn>> = Some(Arc::new(hold));
        if let Some(scope) = self.books.lock().scope(number) {
            std::mem::swap(&mut scope.hold, &mut hold);
        }
    }

    /// A hold on the object's code for `who`; `None` when that is gone, or about to.
    pub fn hold(&self, number: u64, who: &str) -> Option<CodeKeepAlive> {
        let hold = self.books.lock().scope(number)?.hold.clone()?;
        hold(who)
    }
}

impl<H> Books<H> {
    /// A scope that is open.
    fn scope(&mut self, number: u64) -> Option<&mut Scope<H>> {
        self.by_number.as_mut()?.get_mut(&number)
    }
}

impl<H> Scope<H> {
    fn new() -> Scope<H> {
        Scope { handlers: Vec::new(), hold: None, known_to_libc: None }
    }
}
