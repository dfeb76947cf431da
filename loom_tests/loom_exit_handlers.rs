//! Model: exit handlers are registered, run by several threads, and dropped with their object.
//!
//! Runs `src/host/exit_scopes.rs`, the scopes of `src/host/exit_handlers.rs`. Each handler runs once, the last
//! registered first, and never after its object is gone. A keep-alive keeps the object. The C library keeps no handler
//! of an object that is gone.
//!
//! Seeded bugs: `number_read_under_an_earlier_lock`, `serial_taken_under_an_earlier_lock`,
//! `handler_chosen_under_an_earlier_lock`, `closed_scope_opened_again`, `handle_forgotten_while_the_object_stays`.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::host::ExitScopes;
use jittison::session::*;
use loom::cell::UnsafeCell;
use loom::thread;
use support::{Fixture, explore};

type Scopes = Arc<ExitScopes<u8>>;

/// `N` scopes, with handlers that are registered in order: `(scope, handler)`.
fn scopes_with<const N: usize>(handlers: &[(usize, u8)]) -> (Scopes, [u64; N]) {
    let scopes = Scopes::new(ExitScopes::new());
    let numbers = std::array::from_fn(|_| scopes.open());
    handlers.iter().for_each(|(scope, handler)| assert!(scopes.register(numbers[*scope], *handler)));
    (scopes, numbers)
}

/// Runs the handlers of scopes; each calls `body`. Returns the handlers that ran, in order.
fn run_each(scopes: &Scopes, numbers: &[u64], mut body: impl FnMut(u8)) -> Vec<u8> {
    let mut ran = Vec::new();
    let count = scopes.run(numbers.iter().copied(), |handler| {
        ran.push(handler);
        body(handler);
    });
    assert_eq!(count, ran.len());
    ran
}

fn run(scopes: &Scopes, numbers: &[u64]) -> Vec<u8> {
    run_each(scopes, numbers, |_| ())
}

#[test]
fn registration_versus_running() {
    // The handlers that run now, and those that a later run finds.
    let outcomes = [
        (vec![0], vec![2, 1]),
        (vec![0, 1], vec![2]),
        (vec![0, 1, 2], vec![]),
        (vec![0, 2, 1], vec![]),
        (vec![1, 0], vec![2]),
        (vec![1, 0, 2], vec![]),
        (vec![1, 2, 0], vec![]),
        (vec![2, 1, 0], vec![]),
    ];
    explore("registration_versus_running", None, 8, outcomes, || {
        let (scopes, numbers) = scopes_with::<2>(&[(0, 0)]);
        let other = scopes.clone();
        let registers = thread::spawn(move || other.register(numbers[1], 1) && other.register(numbers[0], 2));
        let here = run(&scopes, &numbers);
        assert!(registers.join().unwrap());
        (here, run(&scopes, &numbers))
    });
}

#[test]
fn two_threads_that_register() {
    // One thread registers 1 and then 2, so 2 runs ahead of 1.
    let outcomes = [vec![2, 1, 0], vec![2, 0, 1], vec![0, 2, 1]];
    explore("two_threads_that_register", None, 3, outcomes, || {
        let (scopes, numbers) = scopes_with::<2>(&[]);
        let other = scopes.clone();
        let registers = thread::spawn(move || other.register(numbers[1], 1) && other.register(numbers[0], 2));
        assert!(scopes.register(numbers[0], 0));
        assert!(registers.join().unwrap());
        run(&scopes, &numbers)
    });
}

#[test]
fn two_objects_that_open_a_scope_at_once() {
    // Each object has its own scope, so a run of one scope leaves the handler of the other.
    explore("two_objects_that_open_a_scope_at_once", None, 2, [(vec![0], vec![1])], || {
        let (scopes, []) = scopes_with(&[]);
        let other = scopes.clone();
        let there = thread::spawn(move || other.open());
        let here = scopes.open();
        let there = there.join().unwrap();
        assert!(scopes.register(there, 1) && scopes.register(here, 0));
        (run(&scopes, &[here]), run(&scopes, &[there]))
    });
}

#[test]
fn handler_that_registers_another_versus_registration() {
    // Handler 1 registers 2. Handler 2 runs next, unless the other thread registers 3 meanwhile.
    let outcomes = [
        (vec![3, 1, 2, 0], vec![]),
        (vec![1, 3, 2, 0], vec![]),
        (vec![1, 2, 3, 0], vec![]),
        (vec![1, 2, 0, 3], vec![]),
        (vec![1, 2, 0], vec![3]),
    ];
    explore("handler_that_registers_another_versus_registration", None, 5, outcomes, || {
        let (scopes, [number]) = scopes_with(&[(0, 0), (0, 1)]);
        let other = scopes.clone();
        let registers = thread::spawn(move || other.register(number, 3));
        let here = run_each(&scopes, &[number], |handler| assert!(handler != 1 || scopes.register(number, 2)));
        assert!(registers.join().unwrap());
        (here, run(&scopes, &[number]))
    });
}

#[test]
fn two_threads_that_run_handlers_of_overlapping_scopes() {
    // Handlers 0 and 3 belong to the shared scope, 1 to this thread's, 2 to the other thread's.
    let outcomes =
        [(vec![3, 1, 0], vec![2]), (vec![3, 1], vec![2, 0]), (vec![1, 0], vec![3, 2]), (vec![1], vec![3, 2, 0])];
    explore("two_threads_that_run_handlers_of_overlapping_scopes", None, 4, outcomes, || {
        let (scopes, numbers) = scopes_with::<3>(&[(0, 0), (1, 1), (2, 2), (0, 3)]);
        let other = scopes.clone();
        let there = thread::spawn(move || run(&other, &[numbers[0], numbers[2]]));
        let here = run(&scopes, &numbers[..2]);
        let there = there.join().unwrap();
        assert_eq!(run(&scopes, &numbers), [], "two runs left a handler behind");
        (here, there)
    });
}

#[test]
fn registration_versus_the_end_of_the_object() {
    // Accepted or refused. An accepted handler is dropped with the object.
    explore("registration_versus_the_end_of_the_object", None, 2, [true, false], || {
        let scopes = Arc::new(ExitScopes::new());
        let number = scopes.open();
        let (handler, other) = (Arc::new(()), scopes.clone());
        let ends =
            thread::spawn(move || other.close(number, |_| panic!("no handler was registered with the C library")));
        let is_accepted = scopes.register(number, handler.clone());
        ends.join().unwrap();
        assert_eq!(Arc::strong_count(&handler), 1, "a handler is kept for an object that is gone");
        assert!(!scopes.register(number, handler.clone()), "a handler of an object that is gone was accepted");
        assert_eq!(scopes.run([number].into_iter(), drop), 0, "a handler of an object that is gone ran");
        is_accepted
    });
}

/// The C library's list of handlers, by handle.
#[derive(Default)]
struct Libc {
    registered: loom::sync::Mutex<Vec<u64>>,
}

impl Libc {
    fn register(&self, handle: u64) -> i32 {
        self.registered.lock().unwrap().push(handle);
        0
    }

    fn deregister(&self, handle: u64) -> usize {
        let mut registered = self.registered.lock().unwrap();
        let before = registered.len();
        registered.retain(|other| *other != handle);
        before - registered.len()
    }
}

#[test]
fn registration_at_libc_versus_closing_a_dylib() {
    // Of two handlers, how many are deregistered when the dylib is closed, and how many when the object is removed.
    explore("registration_at_libc_versus_closing_a_dylib", None, 3, [(1, 1), (2, 0)], || {
        const HANDLE: u64 = 0x1000;
        let (scopes, [number]) = scopes_with(&[]);
        let libc = Arc::new(Libc::default());
        assert_eq!(scopes.register_at_libc(number, HANDLE, || libc.register(HANDLE)), 0);
        let (other, other_libc) = (scopes.clone(), libc.clone());
        let registers = thread::spawn(move || other.register_at_libc(number, HANDLE, || other_libc.register(HANDLE)));
        let mut deregistered = (0, 0);
        scopes.deregister_at_libc(number, |handle| deregistered.0 = libc.deregister(handle));
        assert_eq!(registers.join().unwrap(), 0);
        scopes.close(number, |handle| deregistered.1 = libc.deregister(handle));
        assert!(libc.registered.lock().unwrap().is_empty(), "the C library has a handler of an object that is gone");
        assert_eq!(scopes.register_at_libc(number, HANDLE, || panic!("the object is gone")), -1);
        deregistered
    });
}

/// An object of a session. At its removal it does what `init_fini.rs` does.
struct Object {
    scopes: Scopes,
    number: u64,
    /// Whether its code exists. Loom reports unordered accesses.
    code: UnsafeCell<bool>,
    ran_at_removal: Mutex<Vec<u8>>,
}

// SAFETY: loom checks that accesses are ordered. The models exist to check this.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    /// With handlers 0 and 1, under a tracker of a session.
    fn under_a_tracker() -> (Fixture, ResourceTracker, Arc<Object>) {
        let fixture = Fixture::new();
        let (scopes, [number]) = scopes_with(&[(0, 0), (0, 1)]);
        let (code, ran_at_removal) = (UnsafeCell::new(true), Mutex::new(Vec::new()));
        let object = Arc::new(Object { scopes, number, code, ran_at_removal });
        fixture.session.register_manager(object.clone());
        let tracker = fixture.loaded("main", 1);
        (fixture, tracker, object)
    }

    fn run(&self) -> Vec<u8> {
        run_each(&self.scopes, &[self.number], |_| self.assert_exists())
    }

    fn assert_exists(&self) {
        // SAFETY: loom checks that no thread writes meanwhile.
        assert!(self.code.with(|code| unsafe { *code }), "the code of the object is gone");
    }
}

impl ResourceManager for Object {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> jittison::error::Result<()> {
        *self.ran_at_removal.lock().unwrap() = self.run();
        self.scopes.close(self.number, |_| panic!("no handler was registered with the C library"));
        // SAFETY: loom checks that no other thread reads or writes meanwhile.
        self.code.with_mut(|code| unsafe { *code = false });
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

#[test]
fn exit_versus_removal() {
    // All handlers run at the exit, or all at the removal.
    let outcomes = [(vec![1, 0], vec![]), (vec![], vec![1, 0])];
    explore("exit_versus_removal", None, 2, outcomes, || {
        let (_fixture, tracker, object) = Object::under_a_tracker();
        let watch = tracker.watch();
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let at_exit = watch.pin().map_or_else(Vec::new, |_pin| object.run());
        remover.join().unwrap();
        assert!(!object.scopes.register(object.number, 2), "a handler of an object that is gone was accepted");
        let at_removal = object.ran_at_removal.lock().unwrap().clone();
        (at_exit, at_removal)
    });
}

#[test]
fn keep_alive_versus_removal_of_the_object() {
    // While the keep-alive exists, the object exists and accepts a handler.
    let outcomes = [(true, vec![2, 1, 0]), (false, vec![1, 0])];
    explore("keep_alive_versus_removal_of_the_object", None, 2, outcomes, || {
        let (_fixture, tracker, object) = Object::under_a_tracker();
        let (scopes, number, watch) = (object.scopes.clone(), object.number, tracker.watch());
        scopes
            .set_keep_alive(number, Arc::new(move |holder: &str| Some(Box::new(watch.pin()?.into_revocable(holder)))));
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let keep_alive = scopes.keep_alive(number, "a thread");
        let is_kept_alive = keep_alive.is_some();
        if is_kept_alive {
            object.assert_exists();
            assert!(scopes.register(number, 2), "the scope of an object that is kept alive was closed");
        }
        drop(keep_alive);
        remover.join().unwrap();
        assert!(scopes.keep_alive(number, "a thread").is_none(), "an object that is gone was kept alive");
        let at_removal = object.ran_at_removal.lock().unwrap().clone();
        (is_kept_alive, at_removal)
    });
}
