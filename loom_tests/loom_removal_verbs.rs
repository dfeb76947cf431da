//! Every interleaving of the verbs of removal, and of whoever waits for its end, with what may come in their way.
//!
//! Checks `src/session/removal/remove.rs`, `src/session/removal/ticket.rs`, `src/session/removal/reclaim.rs` and `src/session/pins/tracker_state.rs`
//! (`when_reclaimed`, `retire_unpinned`, `seize`): a callback is called once, when all is given back; `try_remove` removes all at
//! once or nothing; `remove_now` gives everything back once.

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
    // Calls, each with what was given back by then.
    explore("registering_a_callback_versus_the_end_of_the_removal", None, 2, [vec![("ok", vec![1])]], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (called, bank) = (calls.clone(), scene.bank.clone());
        removal.on_complete(move |outcome| called.lock().unwrap().push((said(outcome), bank.given_back())));
        other.join().unwrap();
        assert!(removal.is_complete());
        let calls = calls.lock().unwrap().clone();
        calls
    });
}

#[test]
fn two_callbacks_versus_the_end_of_the_removal() {
    explore("two_callbacks_versus_the_end_of_the_removal", Some(2), 4, [(1, 1)], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
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
    // Loom finds a thread that nobody wakes.
    explore("waiting_for_the_end_versus_the_last_pin", None, 2, [("ok", vec![1])], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let waited = said(removal.wait());
        let given_back = scene.bank.given_back();
        other.join().unwrap();
        (waited, given_back)
    });
}

#[test]
fn two_that_wait_for_the_end_versus_the_last_pin() {
    explore("two_that_wait_for_the_end_versus_the_last_pin", Some(2), 4, [("ok", "ok")], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let also = removal.clone();
        let other = thread::spawn(move || said(also.wait()));
        let dropper = thread::spawn(move || drop(pin));
        let waited = said(removal.wait());
        dropper.join().unwrap();
        (waited, other.join().unwrap())
    });
}

#[test]
fn asking_whether_a_removal_is_complete_versus_the_last_pin() {
    // Whoever is told so sees what the managers did.
    let allowed = [None, Some(true)];
    explore("asking_whether_a_removal_is_complete_versus_the_last_pin", None, 2, allowed, || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        // Loom may run the other here.
        thread::yield_now();
        let seen = removal.is_complete().then(|| code.is_freed());
        other.join().unwrap();
        seen
    });
}

#[test]
fn cascade_versus_an_emission_that_refers_to_a_dependant() {
    // Whatever came to refer to something of the cascade goes with it, or was refused.
    let allowed = [("ok", true, 0), ("dependency removed", true, 0), ("tracker defunct", true, 0)];
    explore("cascade_versus_an_emission_that_refers_to_a_dependant", None, 4, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let (_dependant, responsibility) = scene.at_work("f");
        resolve(&responsibility).unwrap();
        responsibility.notify_emitted(vec![scene.reference("base")]).unwrap();
        let reference = scene.reference("f");
        let (_late, responsibility) = scene.at_work("late");
        resolve(&responsibility).unwrap();
        let other = thread::spawn(move || base.remove_cascade().unwrap().is_complete());
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        let is_complete = other.join().unwrap();
        (emitted, is_complete, scene.main.symbol_count())
    });
}

#[test]
fn try_remove_versus_pin() {
    // Removed at once and not pinned, or pinned and all of it there.
    let allowed = [("ok", true, false, 0, vec![1]), ("in use", false, true, 1, vec![])];
    explore("try_remove_versus_pin", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let main = scene.main.clone();
        let pinner = thread::spawn(move || main.pin("f").map(|(_, pin)| pin));
        let removed = tracker.try_remove();
        let pin = pinner.join().unwrap();
        let is_complete = removed.as_ref().is_ok_and(Removal::is_complete);
        (said(removed), is_complete, pin.is_some(), scene.main.symbol_count(), scene.bank.given_back())
    });
}

#[test]
fn try_remove_versus_guard() {
    // What a guard has found is there until it is left; refused, if the guard was seen: then the name is there still.
    let allowed = [("ok", true, false, vec![1]), ("ok", false, false, vec![1]), ("in use", true, true, vec![])];
    explore("try_remove_versus_guard", None, 4, allowed, || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let (session, main) = (scene.session.clone(), scene.main.clone());
        let guarded = thread::spawn(move || {
            let guard = session.guard();
            let found = main.lookup_address("f").is_ok();
            assert!(!found || !code.is_freed(), "under the guard it stays");
            drop(guard);
            found
        });
        let removed = said(tracker.try_remove());
        let found = guarded.join().unwrap();
        (removed, found, scene.main.symbol_count() == 1, scene.bank.given_back())
    });
}

#[test]
fn try_remove_versus_definition() {
    // Whoever comes first: nothing is left under a removed tracker.
    let allowed = [("ok", "ok", 0), ("ok", "tracker defunct", 0)];
    explore("try_remove_versus_definition", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let definer = {
            let tracker = tracker.clone();
            let new = (Name::new("g"), ExecutorAddr::new(2), SymbolFlags::EXPORTED);
            thread::spawn(move || said(tracker.define_absolute([new])))
        };
        let removed = said(tracker.try_remove());
        (removed, definer.join().unwrap(), scene.main.symbol_count())
    });
}

#[test]
fn forced_removal_versus_removal_before_an_observer() {
    // One of the two has retired it, and says so.
    explore("forced_removal_versus_removal_before_an_observer", None, 2, [("ok", "ok", 1, 1)], || {
        let told = Arc::new(Told::default());
        let observers: Vec<Arc<dyn Observer>> = vec![told.clone()];
        let scene = Scene::with_options(SessionOptions { observers, ..SessionOptions::default() });
        scene.session.register_manager(told.clone());
        let tracker = scene.loaded("f", 1);
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || said(tracker.remove()))
        };
        let forced = said(remove_now(&tracker));
        let removed = other.join().unwrap();
        (forced, removed, told.retired(), told.count())
    });
}

#[test]
fn forced_removal_versus_the_guard_left() {
    // At once, whoever is inside; and once, though the guard is left meanwhile.
    explore("forced_removal_versus_the_guard_left", None, 2, [("ok", true, 1, vec![1])], || {
        let scene = Scene::new();
        let told = Told::of(&scene.session);
        let tracker = scene.loaded("f", 1);
        let guard = scene.session.guard();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || said(remove_now(&tracker)));
        drop(guard);
        let forced = other.join().unwrap();
        (forced, removal.is_complete(), told.count(), scene.bank.given_back())
    });
}

#[test]
fn forced_removal_under_a_guard() {
    // No other thread, and no schedule: the guard is not left.
    explore("forced_removal_under_a_guard", None, 1, [(true, vec![1])], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let _guard = scene.session.guard();
        let removal = tracker.remove().unwrap();
        remove_now(&tracker).unwrap();
        (removal.is_complete(), scene.bank.given_back())
    });
}

#[test]
fn forced_removal_versus_removal() {
    explore("forced_removal_versus_removal", None, 2, [("ok", "ok", 1, vec![1], 0)], || {
        let scene = Scene::new();
        let told = Told::of(&scene.session);
        let tracker = scene.loaded("f", 1);
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || said(tracker.remove()))
        };
        let forced = said(remove_now(&tracker));
        let removed = other.join().unwrap();
        assert!(tracker.remove().unwrap().is_complete());
        (forced, removed, told.count(), scene.bank.given_back(), scene.main.symbol_count())
    });
}

#[test]
fn forced_removal_versus_the_last_pin() {
    explore("forced_removal_versus_the_last_pin", None, 2, [("ok", 1, vec![1])], || {
        let scene = Scene::new();
        let told = Told::of(&scene.session);
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let forced = said(remove_now(&tracker));
        other.join().unwrap();
        assert!(removal.is_complete());
        (forced, told.count(), scene.bank.given_back())
    });
}

#[test]
fn forced_removal_versus_recording() {
    let allowed = [(true, (1, 0), 1), (false, (0, 0), 1)];
    explore("forced_removal_versus_recording", None, 2, allowed, || {
        let scene = Scene::new();
        let told = Told::of(&scene.session);
        let (tracker, responsibility) = scene.at_work("f");
        let other = thread::spawn(move || drop(remove_now(&tracker).unwrap()));
        let accepted = scene.bank.record(&responsibility, 1);
        other.join().unwrap();
        (accepted, scene.bank.books(), told.count())
    });
}

#[test]
fn forced_removal_versus_a_dependency_of_what_runs() {
    // The edge is dropped with the tracker, or refused: either way nothing holds the dependency afterwards.
    let allowed = [("ok", true, 0), ("tracker defunct", true, 0)];
    explore("forced_removal_versus_a_dependency_of_what_runs", None, 2, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let reference = scene.reference("base");
        let tracker = scene.loaded("f", 2);
        let (_, pin) = scene.main.pin("f").unwrap();
        let other = thread::spawn(move || drop(remove_now(&tracker).unwrap()));
        let added = said(pin.add_dependency(&reference));
        other.join().unwrap();
        let is_free = base.remove().unwrap().is_complete();
        drop(pin);
        (added, is_free, scene.bank.books().1)
    });
}
