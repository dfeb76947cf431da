//! Model: entering, refreshing and dropping guards race with a removal, with a redirect before it, and with reuse of
//! records.
//!
//! Runs `src/session/pins/guards.rs`. Code that a thread found under a guard, by name or through a stub's slot, is not
//! freed before the thread drops the guard. Code whose reclamation was deferred to a guard is freed when the guard is
//! dropped, in every order.
//!
//! Seeded bugs: `guard_entered_without_a_fence`, `guards_looked_at_without_a_fence`, `guard_left_without_a_barrier`,
//! `post_given_up_by_a_refresh`, `entered_post_given_up`, `announcement_outlives_its_guard`.

#![cfg(loom)]

mod support;

use jittison::session::{ExecutionSession, end_of_thread};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use support::*;

#[test]
fn remove_versus_call_by_name() {
    // If the name is found, the removal waits for the guard or comes after it. At the end it is complete in every case.
    let allowed = [("ready", true), ("not found", true)];
    explore("remove_versus_call_by_name", None, 4, allowed, || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let (session, main, code) = (fixture.session.clone(), fixture.main.clone(), code.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "freed under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        let found = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (found, complete)
    });
}

#[test]
fn redirect_and_remove_versus_call_through_the_stub() {
    // The caller runs the old or the new version, and that version is not freed.
    let allowed = [(1, true), (2, true)];
    explore("redirect_and_remove_versus_call_through_the_stub", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (old, _new) = (fixture.loaded("f1", 1), fixture.loaded("f2", 2));
        // Code reads the slot without a lock and without an ordering.
        let slot = Arc::new(AtomicU64::new(1));
        let (session, manager, read) = (fixture.session.clone(), fixture.manager.clone(), slot.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let version = read.load(Ordering::Relaxed);
            // Loom may run the remover here.
            thread::yield_now();
            assert!(!manager.freed().contains(&(version as u32)), "version {version} was freed under its caller");
            version
        });
        slot.store(2, Ordering::Relaxed);
        let removal = old.remove().unwrap();
        let version = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (version, complete)
    });
}

#[test]
fn guard_dropped_versus_remove() {
    // The guard is entered before the removal starts. The removal waits for it, or finds it dropped.
    explore("guard_dropped_versus_remove", None, 4, [(true, vec![1])], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let guard = fixture.session.guard();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        drop(guard);
        let removal = remover.join().unwrap();
        (removal.is_complete(), fixture.manager.freed())
    });
}

#[test]
fn guard_dropped_versus_two_removals() {
    // The second removal may rely on what the first one announced to the guard's thread.
    explore("guard_dropped_versus_two_removals", Some(3), 4, [(true, true, 2)], || {
        let fixture = Fixture::new();
        let (first, second) = (fixture.loaded("f", 1), fixture.loaded("g", 2));
        let guard = fixture.session.guard();
        let remover = thread::spawn(move || (first.remove().unwrap(), second.remove().unwrap()));
        drop(guard);
        let (first, second) = remover.join().unwrap();
        (first.is_complete(), second.is_complete(), fixture.manager.freed().len())
    });
}

#[test]
fn two_guards_dropped_versus_remove() {
    explore("two_guards_dropped_versus_remove", Some(2), 4, [(true, vec![1])], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let guard = fixture.session.guard();
        let session = fixture.session.clone();
        let other = thread::spawn(move || drop(session.guard()));
        let remover = thread::spawn(move || tracker.remove().unwrap());
        drop(guard);
        other.join().unwrap();
        let removal = remover.join().unwrap();
        (removal.is_complete(), fixture.manager.freed())
    });
}

#[test]
fn pin_dropped_versus_guard_dropped() {
    // Both hold the code. It is freed once, by whichever is dropped last.
    explore("pin_dropped_versus_guard_dropped", None, 4, [(true, vec![1])], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let guard = fixture.session.guard();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        drop(guard);
        other.join().unwrap();
        (removal.is_complete(), fixture.manager.freed())
    });
}

#[test]
fn record_reused_by_another_thread_versus_remove() {
    // The first thread ends, and the second may get its record. The code that the second finds stays, too.
    let allowed = [("ready", true), ("not found", true)];
    explore("record_reused_by_another_thread_versus_remove", Some(2), 4, allowed, || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let session = fixture.session.clone();
        let first = thread::spawn(move || {
            drop(session.guard());
            end_of_thread();
        });
        let (session, main, code) = (fixture.session.clone(), fixture.main.clone(), code.clone());
        let second = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "freed under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        first.join().unwrap();
        let found = second.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (found, complete)
    });
}

#[test]
fn record_reused_by_another_session_versus_remove() {
    // The second session's thread gets the record of the ended session, whose epoch continues.
    let allowed = [("ready", true), ("not found", true)];
    explore("record_reused_by_another_session_versus_remove", None, 4, allowed, || {
        let ended = ExecutionSession::new();
        drop(ended.guard());
        drop(ended);
        end_of_thread();
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let (session, main, code) = (fixture.session.clone(), fixture.main.clone(), code.clone());
        let caller = thread::spawn(move || {
            let _guard = session.guard();
            let found = find(&main, "f");
            assert!(found == "not found" || !code.is_freed(), "freed under the guard");
            found
        });
        let removal = tracker.remove().unwrap();
        let found = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (found, complete)
    });
}

#[test]
fn guard_refreshed_at_thread_exit_versus_guard_and_remove() {
    // Each thread is inside its own guard, whichever record it has.
    explore("guard_refreshed_at_thread_exit_versus_guard_and_remove", Some(2), 4, [(true, true)], || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let looks_up = |is_late: bool| {
            let (session, main, code) = (fixture.session.clone(), fixture.main.clone(), code.clone());
            move || {
                if is_late {
                    end_of_thread();
                }
                let mut guard = session.guard();
                guard.refresh();
                let found = find(&main, "f");
                assert!(found == "not found" || !code.is_freed(), "freed under the guard");
            }
        };
        let (late, other) = (thread::spawn(looks_up(true)), thread::spawn(looks_up(false)));
        let removal = tracker.remove().unwrap();
        late.join().unwrap();
        other.join().unwrap();
        (removal.is_complete(), fixture.manager.freed() == [1])
    });
}

#[test]
fn guard_that_outlives_its_threads_records_versus_guard_and_remove() {
    explore("guard_that_outlives_its_threads_records_versus_guard_and_remove", Some(2), 4, [(true, true)], || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let looks_up = |is_late: bool| {
            let (session, main, code) = (fixture.session.clone(), fixture.main.clone(), code.clone());
            move || {
                let guard = session.guard();
                if is_late {
                    end_of_thread();
                }
                let found = find(&main, "f");
                assert!(found == "not found" || !code.is_freed(), "freed under the guard");
                drop(guard);
            }
        };
        let (late, other) = (thread::spawn(looks_up(true)), thread::spawn(looks_up(false)));
        let removal = tracker.remove().unwrap();
        late.join().unwrap();
        other.join().unwrap();
        (removal.is_complete(), fixture.manager.freed() == [1])
    });
}
