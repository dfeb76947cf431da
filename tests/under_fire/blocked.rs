//! A caller that does not come back: what waits for it, and what does not.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use jittison::Jit;

use crate::support::*;

/// Runs until the word at its argument is not zero.
const STUCK: &str = "long stuck(volatile long *word) { while (!*word); return *word; }";

type Stuck = extern "C" fn(*const AtomicI64) -> i64;

/// Links and removes a version, a hundred times.
fn replace_a_hundred_times(jit: &Jit) {
    let Some(object) = c("long f(void) { return 7; }") else { return };
    for _ in 0..100 {
        let tracker = add(jit, jit.main_dylib(), "f.o", &object);
        assert_eq!(long(jit, "f"), 7);
        tracker.remove().unwrap();
    }
}

#[test]
fn a_call_that_does_not_return_through_a_handle_holds_its_own_version_and_no_other() {
    let Some(object) = c(STUCK) else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "stuck.o", &object);
    let word = AtomicI64::new(0);
    thread::scope(|threads| {
        let (tell, is_in) = channel();
        let (jit, word) = (&jit, &word);
        let caller = threads.spawn(move || {
            let stuck = function::<Stuck>(jit, "stuck");
            tell.send(()).unwrap();
            stuck.call(word)
        });
        is_in.recv().unwrap();
        let removal = tracker.remove().unwrap();
        replace_a_hundred_times(jit);
        let pending = jit.session().pending_removals();
        assert_eq!(pending.iter().map(|removal| removal.key()).collect::<Vec<_>>(), [tracker.key()]);
        assert_eq!(pending[0].obstacles(), ["an owned handle"]);
        assert!(pending[0].bytes() > 0);
        word.store(5, Ordering::Relaxed);
        assert_eq!(caller.join().unwrap(), 5);
        assert!(removal.is_complete());
        assert_eq!((removal.bytes(), jit.session().pending_removals().len()), (0, 0));
    });
}

#[test]
fn a_guard_that_is_not_left_holds_what_was_removed_since_and_the_session_says_which_and_how_much() {
    let Some(object) = c(STUCK) else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "stuck.o", &object);
    let word = AtomicI64::new(0);
    thread::scope(|threads| {
        let (tell, is_in) = channel();
        let (jit, word) = (&jit, &word);
        let body = move || {
            let guard = jit.guard();
            // SAFETY: the function's signature.
            let stuck = unsafe { jit.symbol::<Stuck>(&guard, jit.main_dylib(), "stuck") }.unwrap();
            tell.send(()).unwrap();
            stuck.call(word)
        };
        let caller = thread::Builder::new().name("no-way-back".to_string()).spawn_scoped(threads, body).unwrap();
        is_in.recv().unwrap();
        replace_a_hundred_times(jit);
        let pending = jit.session().pending_removals();
        assert_eq!(pending.len(), 100);
        let ages: Vec<_> = pending.iter().map(|removal| removal.age().unwrap()).collect();
        assert!(ages.is_sorted_by(|older, newer| older >= newer), "the longest waiting first");
        for removal in &pending {
            let obstacles = removal.obstacles();
            assert!(obstacles.len() == 1 && obstacles[0].contains("`no-way-back`"), "{obstacles:?}");
            assert!(removal.bytes() > 0);
        }
        word.store(5, Ordering::Relaxed);
        assert_eq!(caller.join().unwrap(), 5);
        assert_eq!(jit.session().pending_removals().len(), 0);
        assert!(pending.iter().all(|removal| removal.is_complete()));
    });
}
