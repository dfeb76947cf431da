//! A caller that does not return: which removals it defers, and which it does not.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use jittison::{Jit, ResourceKey};

use crate::support::*;

/// Runs until the word at its argument is not zero.
const STUCK: &str = "long stuck(volatile long *word) { while (!*word); return *word; }";

type Stuck = extern "C" fn(*const AtomicI64) -> i64;

/// The word that a caller of `stuck` reads.
struct Word(AtomicI64);

impl Word {
    fn new() -> Word {
        Word(AtomicI64::new(0))
    }

    /// Lets the caller return.
    fn release(&self) {
        self.0.store(5, Ordering::Relaxed);
    }
}

/// Releases the caller of `stuck` at the end of a scope, also after a failed assertion.
struct ReleaseOnDrop<'a>(&'a Word);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Links and removes a module, a hundred times. Returns the keys in the order of removal.
fn replace_a_hundred_times(jit: &Jit) -> Vec<ResourceKey> {
    let Some(object) = c("long f(void) { return 7; }") else { return Vec::new() };
    let replace = |_| {
        let tracker = add(jit, jit.main_dylib(), "f.o", &object);
        assert_eq!(long(jit, "f"), 7);
        tracker.remove().unwrap();
        tracker.key()
    };
    (0..100).map(replace).collect()
}

#[test]
fn a_call_through_a_handle_that_never_returns_keeps_only_its_own_version() {
    let Some(object) = c(STUCK) else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "stuck.o", &object);
    let word = Word::new();
    thread::scope(|threads| {
        let _release = ReleaseOnDrop(&word);
        let (entered, is_entered) = channel();
        let (jit, word) = (&jit, &word);
        let caller = threads.spawn(move || {
            let stuck = function::<Stuck>(jit, "stuck");
            entered.send(()).unwrap();
            stuck.call(&word.0)
        });
        is_entered.recv().unwrap();
        let removal = tracker.remove().unwrap();
        replace_a_hundred_times(jit);
        let pending = jit.session().pending_removals();
        assert_eq!(pending.iter().map(|removal| removal.key()).collect::<Vec<_>>(), [tracker.key()]);
        assert_eq!(pending[0].obstacles(), ["an owned handle"]);
        assert!(pending[0].bytes() > 0);
        word.release();
        assert_eq!(caller.join().unwrap(), 5);
        assert!(removal.is_complete());
        assert_eq!((removal.bytes(), jit.session().pending_removals().len()), (0, 0));
    });
}

#[test]
fn a_guard_that_is_not_dropped_defers_later_removals_and_the_session_lists_them() {
    let Some(object) = c(STUCK) else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "stuck.o", &object);
    let word = Word::new();
    thread::scope(|threads| {
        let _release = ReleaseOnDrop(&word);
        let (entered, is_entered) = channel();
        let (jit, word) = (&jit, &word);
        let body = move || {
            let guard = jit.guard();
            // SAFETY: the signature of the function.
            let stuck = unsafe { jit.symbol::<Stuck>(&guard, jit.main_dylib(), "stuck") }.unwrap();
            entered.send(()).unwrap();
            stuck.call(&word.0)
        };
        let caller = thread::Builder::new().name("stuck-caller".to_string()).spawn_scoped(threads, body).unwrap();
        is_entered.recv().unwrap();
        let removed = replace_a_hundred_times(jit);
        let pending = jit.session().pending_removals();
        let keys: Vec<_> = pending.iter().map(|removal| removal.key()).collect();
        assert_eq!(keys, removed, "the oldest removal comes first");
        for removal in &pending {
            let obstacles = removal.obstacles();
            assert!(obstacles.len() == 1 && obstacles[0].contains("`stuck-caller`"), "{obstacles:?}");
            assert!(removal.bytes() > 0);
        }
        word.release();
        assert_eq!(caller.join().unwrap(), 5);
        assert_eq!(jit.session().pending_removals().len(), 0);
        assert!(pending.iter().all(|removal| removal.is_complete()));
    });
}
