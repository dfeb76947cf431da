//! Every interleaving of entering and leaving a guard with a removal, and with a redirect before it.
//!
//! Checks `src/session/pins/guards.rs`: what a thread found under a guard, by name or through a stub's slot, is not given back before
//! it leaves; and what waits for a guard is given back when it is left, whoever comes first.

#![cfg(loom)]

mod support;

use jittison::session::{ExecutionSession, end_of_thread};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use support::*;

#[test]
fn retire_versus_call_entry_by_name() {
    // Found: the removal waited for the guard, or came after it. Either way it is complete once both are done.
    let allowed = [("ready", true), ("not found", true)];
    explore("retire_versus_call_entry_by_name", None, 4, allowed, || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let (session, main, code) = (scene.session.clone(), scene.main.clone(), code.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "given back under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        let found = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(scene.bank.given_back(), [1]);
        (found, complete)
    });
}

#[test]
fn redirect_then_retire_versus_call_through_the_stub() {
    // The caller is in the old version or in the new one, and the one it is in is there.
    let allowed = [(1, true), (2, true)];
    explore("redirect_then_retire_versus_call_through_the_stub", None, 4, allowed, || {
        let scene = Scene::new();
        let (old, _new) = (scene.loaded("f1", 1), scene.loaded("f2", 2));
        // What code reads: no lock, no ordering.
        let slot = Arc::new(AtomicU64::new(1));
        let (session, bank, read) = (scene.session.clone(), scene.bank.clone(), slot.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let version = read.load(Ordering::Relaxed);
            // Loom may run the remover here.
            thread::yield_now();
            assert!(!bank.given_back().contains(&(version as u32)), "version {version} was freed under its caller");
            version
        });
        slot.store(2, Ordering::Relaxed);
        let removal = old.remove().unwrap();
        let version = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(scene.bank.given_back(), [1]);
        (version, complete)
    });
}

#[test]
fn leaving_versus_waiting_for_the_guard() {
    // Entered before the removal starts: it waits, or finds the guard left.
    explore("leaving_versus_waiting_for_the_guard", None, 4, [(true, vec![1])], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let guard = scene.session.guard();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        drop(guard);
        let removal = remover.join().unwrap();
        (removal.is_complete(), scene.bank.given_back())
    });
}

#[test]
fn two_guards_left_versus_a_removal() {
    explore("two_guards_left_versus_a_removal", Some(2), 4, [(true, vec![1])], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let guard = scene.session.guard();
        let session = scene.session.clone();
        let other = thread::spawn(move || drop(session.guard()));
        let remover = thread::spawn(move || tracker.remove().unwrap());
        drop(guard);
        other.join().unwrap();
        let removal = remover.join().unwrap();
        (removal.is_complete(), scene.bank.given_back())
    });
}

#[test]
fn a_handle_dropped_versus_the_guard_left() {
    // Both hold it: whoever goes last gives it back, once.
    explore("a_handle_dropped_versus_the_guard_left", None, 4, [(true, vec![1])], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let guard = scene.session.guard();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        drop(guard);
        other.join().unwrap();
        (removal.is_complete(), scene.bank.given_back())
    });
}

#[test]
fn a_post_that_another_thread_takes_over_versus_a_removal() {
    // The first thread ends, and the second may get its post: what the second finds stays as well.
    let allowed = [("ready", true), ("not found", true)];
    explore("a_post_that_another_thread_takes_over_versus_a_removal", Some(2), 4, allowed, || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let session = scene.session.clone();
        let first = thread::spawn(move || {
            drop(session.guard());
            end_of_thread();
        });
        let (session, main, code) = (scene.session.clone(), scene.main.clone(), code.clone());
        let second = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "given back under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        first.join().unwrap();
        let found = second.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(scene.bank.given_back(), [1]);
        (found, complete)
    });
}

#[test]
fn a_post_of_an_ended_session_in_another_session_versus_a_removal() {
    // The other session's thread gets the post of the first one's, which counts on.
    let allowed = [("ready", true), ("not found", true)];
    explore("a_post_of_an_ended_session_in_another_session_versus_a_removal", None, 4, allowed, || {
        let ended = ExecutionSession::new();
        drop(ended.guard());
        drop(ended);
        end_of_thread();
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let (session, main, code) = (scene.session.clone(), scene.main.clone(), code.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "given back under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        let found = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(scene.bank.given_back(), [1]);
        (found, complete)
    });
}

#[test]
fn a_guard_refreshed_while_its_thread_ends_versus_a_guard_and_a_removal() {
    // Each thread is inside its own guard, whichever post it has.
    explore("a_guard_refreshed_while_its_thread_ends_versus_a_guard_and_a_removal", Some(2), 4, [(true, true)], || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let looks = |is_late: bool| {
            let (session, main, code) = (scene.session.clone(), scene.main.clone(), code.clone());
            move || {
                if is_late {
                    end_of_thread();
                }
                let mut guard = session.guard();
                guard.refresh();
                let found = find(&main, "f");
                assert!(found == "not found" || !code.is_freed(), "given back under the guard");
            }
        };
        let (late, other) = (thread::spawn(looks(true)), thread::spawn(looks(false)));
        let removal = tracker.remove().unwrap();
        late.join().unwrap();
        other.join().unwrap();
        (removal.is_complete(), scene.bank.given_back() == [1])
    });
}

#[test]
fn a_guard_that_outlives_its_threads_list_versus_a_guard_and_a_removal() {
    explore("a_guard_that_outlives_its_threads_list_versus_a_guard_and_a_removal", Some(2), 4, [(true, true)], || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let looks = |is_late: bool| {
            let (session, main, code) = (scene.session.clone(), scene.main.clone(), code.clone());
            move || {
                let guard = session.guard();
                if is_late {
                    end_of_thread();
                }
                let found = find(&main, "f");
                assert!(found == "not found" || !code.is_freed(), "given back under the guard");
                drop(guard);
            }
        };
        let (late, other) = (thread::spawn(looks(true)), thread::spawn(looks(false)));
        let removal = tracker.remove().unwrap();
        late.join().unwrap();
        other.join().unwrap();
        (removal.is_complete(), scene.bank.given_back() == [1])
    });
}
