//! Model: `remove`, `try_remove`, `remove_now`, `remove_cascade`, and callbacks and waits for their end, race with pins,
//! guards, definitions and each other.
//!
//! Runs `src/session/removal/remove.rs`, `src/session/removal/ticket.rs`, `src/session/removal/reclaim.rs` and
//! `src/session/pins/tracker_state.rs` (`when_reclaimed`, `retire_unpinned`, `seize`). A callback is called once, after
//! everything is freed. `try_remove` removes everything at once or nothing. `remove_now` frees everything once. No removal
//! that is complete stays in the list of pending ones (`src/session/types/pending_removals.rs`).
//!
//! Seeded bugs: `callback_left_under_a_later_lock`, `asked_for_pins_under_an_earlier_lock`,
//! `seized_while_it_is_reclaimed`, `edge_from_a_tracker_that_is_reclaimed`, `cascade_in_one_pass`,
//! `listed_after_it_is_reclaimed`.

#![cfg(loom)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn registering_a_callback_versus_the_end_of_the_removal() {
    // The calls of the callback, each with the resources that were freed by then.
    explore("registering_a_callback_versus_the_end_of_the_removal", None, 2, [vec![("ok", vec![1])]], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (called, manager) = (calls.clone(), fixture.manager.clone());
        removal.on_complete(move |outcome| called.lock().unwrap().push((describe(outcome), manager.freed())));
        other.join().unwrap();
        assert!(removal.is_complete());
        let calls = calls.lock().unwrap().clone();
        calls
    });
}

#[test]
fn two_callbacks_versus_the_end_of_the_removal() {
    explore("two_callbacks_versus_the_end_of_the_removal", Some(2), 4, [(1, 1)], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let calls = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let register = |removal: &Removal, calls: &Arc<AtomicUsize>| {
            let calls = calls.clone();
            removal.on_complete(move |_| _ = calls.fetch_add(1, Ordering::Relaxed));
        };
        let (also, its_calls) = (removal.clone(), calls[1].clone());
        let dropper = thread::spawn(move || drop(pin));
        let other = thread::spawn(move || register(&also, &its_calls));
        register(&removal, &calls[0]);
        other.join().unwrap();
        dropper.join().unwrap();
        (calls[0].load(Ordering::Relaxed), calls[1].load(Ordering::Relaxed))
    });
}

#[test]
fn waiting_for_the_end_versus_the_last_pin() {
    // Loom reports a thread that is never woken.
    explore("waiting_for_the_end_versus_the_last_pin", None, 2, [("ok", vec![1])], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let waited = describe(removal.wait());
        let freed = fixture.manager.freed();
        other.join().unwrap();
        (waited, freed)
    });
}

#[test]
fn two_threads_that_wait_for_the_end_versus_the_last_pin() {
    explore("two_threads_that_wait_for_the_end_versus_the_last_pin", Some(2), 4, [("ok", "ok")], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let also = removal.clone();
        let other = thread::spawn(move || describe(also.wait()));
        let dropper = thread::spawn(move || drop(pin));
        let waited = describe(removal.wait());
        dropper.join().unwrap();
        (waited, other.join().unwrap())
    });
}

#[test]
fn reading_is_complete_versus_the_last_pin() {
    // A thread that reads `true` sees the work of the managers.
    let allowed = [None, Some(true)];
    explore("reading_is_complete_versus_the_last_pin", None, 2, allowed, || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        // Loom may run the other thread here.
        thread::yield_now();
        let seen = removal.is_complete().then(|| code.is_freed());
        other.join().unwrap();
        seen
    });
}

#[test]
fn cascade_versus_an_emission_that_refers_to_a_dependant() {
    // A late dependant of the cascade is removed with it, or its emission is refused.
    let allowed = [("ok", true, 0), ("dependency removed", true, 0), ("tracker defunct", true, 0)];
    explore("cascade_versus_an_emission_that_refers_to_a_dependant", None, 4, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let (_dependant, responsibility) = fixture.materializing("f");
        resolve(&responsibility).unwrap();
        responsibility.notify_emitted(vec![fixture.reference("base")]).unwrap();
        let reference = fixture.reference("f");
        let (_late, responsibility) = fixture.materializing("late");
        resolve(&responsibility).unwrap();
        let other = thread::spawn(move || base.remove_cascade().unwrap().is_complete());
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        let is_complete = other.join().unwrap();
        (emitted, is_complete, fixture.main.symbol_count())
    });
}

#[test]
fn try_remove_versus_pin() {
    // Removed at once and not pinned, or pinned and nothing removed.
    let allowed = [("ok", true, false, 0, vec![1]), ("in use", false, true, 1, vec![])];
    explore("try_remove_versus_pin", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let main = fixture.main.clone();
        let pinner = thread::spawn(move || main.pin("f").map(|(_, pin)| pin));
        let removed = tracker.try_remove();
        let pin = pinner.join().unwrap();
        let is_complete = removed.as_ref().is_ok_and(Removal::is_complete);
        (describe(removed), is_complete, pin.is_some(), fixture.main.symbol_count(), fixture.manager.freed())
    });
}

#[test]
fn try_remove_versus_guard() {
    // Code that is found under a guard stays until the guard is dropped. If `try_remove` sees the guard, it is refused, and the
    // name stays.
    let allowed = [("ok", true, false, vec![1]), ("ok", false, false, vec![1]), ("in use", true, true, vec![])];
    explore("try_remove_versus_guard", None, 4, allowed, || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let (session, main) = (fixture.session.clone(), fixture.main.clone());
        let guarded = thread::spawn(move || {
            let guard = session.guard();
            let found = main.lookup_address("f").is_ok();
            assert!(!found || !code.is_freed(), "freed under the guard");
            drop(guard);
            found
        });
        let removed = describe(tracker.try_remove());
        let found = guarded.join().unwrap();
        (removed, found, fixture.main.symbol_count() == 1, fixture.manager.freed())
    });
}

#[test]
fn try_remove_versus_definition() {
    // In both orders, nothing stays under a removed tracker.
    let allowed = [("ok", "ok", 0), ("ok", "tracker defunct", 0)];
    explore("try_remove_versus_definition", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let definer = {
            let tracker = tracker.clone();
            let new = (Name::new("g"), ExecutorAddr::new(2), SymbolFlags::EXPORTED);
            thread::spawn(move || describe(tracker.define_absolute([new])))
        };
        let removed = describe(tracker.try_remove());
        (removed, definer.join().unwrap(), fixture.main.symbol_count())
    });
}

#[test]
fn forced_removal_versus_removal_before_an_observer() {
    // Exactly one of the two retires it and reports so.
    explore("forced_removal_versus_removal_before_an_observer", None, 2, [("ok", "ok", 1, 1)], || {
        let counter = Arc::new(CallCounter::default());
        let observers: Vec<Arc<dyn Observer>> = vec![counter.clone()];
        let fixture = Fixture::with_options(SessionOptions { observers, ..SessionOptions::default() });
        fixture.session.register_manager(counter.clone());
        let tracker = fixture.loaded("f", 1);
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || describe(tracker.remove()))
        };
        let forced = describe(remove_now(&tracker));
        let removed = other.join().unwrap();
        (forced, removed, counter.retired(), counter.count())
    });
}

#[test]
fn forced_removal_versus_guard_dropped() {
    // Freed at once although a thread is inside the guard, and freed once although the guard is dropped meanwhile.
    explore("forced_removal_versus_guard_dropped", None, 2, [("ok", true, 1, vec![1])], || {
        let fixture = Fixture::new();
        let counter = CallCounter::registered_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let guard = fixture.session.guard();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || describe(remove_now(&tracker)));
        drop(guard);
        let forced = other.join().unwrap();
        (forced, removal.is_complete(), counter.count(), fixture.manager.freed())
    });
}

#[test]
fn forced_removal_under_a_guard() {
    // One thread, so one schedule. The guard is not dropped.
    explore("forced_removal_under_a_guard", None, 1, [(true, vec![1])], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let _guard = fixture.session.guard();
        let removal = tracker.remove().unwrap();
        remove_now(&tracker).unwrap();
        (removal.is_complete(), fixture.manager.freed())
    });
}

#[test]
fn forced_removal_versus_removal() {
    explore("forced_removal_versus_removal", None, 2, [("ok", "ok", 1, vec![1], 0)], || {
        let fixture = Fixture::new();
        let counter = CallCounter::registered_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || describe(tracker.remove()))
        };
        let forced = describe(remove_now(&tracker));
        let removed = other.join().unwrap();
        assert!(tracker.remove().unwrap().is_complete());
        (forced, removed, counter.count(), fixture.manager.freed(), fixture.main.symbol_count())
    });
}

#[test]
fn listing_a_pending_removal_versus_forced_removal() {
    explore("listing_a_pending_removal_versus_forced_removal", None, 2, [("ok", "ok", vec![1], 0)], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || describe(tracker.remove()))
        };
        let forced = describe(remove_now(&tracker));
        let removed = other.join().unwrap();
        drop(pin);
        (forced, removed, fixture.manager.freed(), fixture.session.pending_removal_count())
    });
}

#[test]
fn forced_removal_versus_the_last_pin() {
    explore("forced_removal_versus_the_last_pin", None, 2, [("ok", 1, vec![1])], || {
        let fixture = Fixture::new();
        let counter = CallCounter::registered_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let forced = describe(remove_now(&tracker));
        other.join().unwrap();
        assert!(removal.is_complete());
        (forced, counter.count(), fixture.manager.freed())
    });
}

#[test]
fn forced_removal_versus_recording() {
    let allowed = [(true, (1, 0), 1), (false, (0, 0), 1)];
    explore("forced_removal_versus_recording", None, 2, allowed, || {
        let fixture = Fixture::new();
        let counter = CallCounter::registered_in(&fixture.session);
        let (tracker, responsibility) = fixture.materializing("f");
        let other = thread::spawn(move || drop(remove_now(&tracker).unwrap()));
        let accepted = fixture.manager.record(&responsibility, 1);
        other.join().unwrap();
        (accepted, fixture.manager.counts(), counter.count())
    });
}

#[test]
fn forced_removal_versus_a_dependency_of_running_code() {
    // The edge is dropped with the tracker, or refused. In both cases nothing holds the dependency afterwards.
    let allowed = [("ok", true, 0), ("tracker defunct", true, 0)];
    explore("forced_removal_versus_a_dependency_of_running_code", None, 2, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let reference = fixture.reference("base");
        let tracker = fixture.loaded("f", 2);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let other = thread::spawn(move || drop(remove_now(&tracker).unwrap()));
        let added = describe(pin.add_dependency(&reference));
        other.join().unwrap();
        let is_free = base.remove().unwrap().is_complete();
        drop(pin);
        (added, is_free, fixture.manager.counts().1)
    });
}
