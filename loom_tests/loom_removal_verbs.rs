//! Every interleaving of the verbs of removal, and of whoever waits for its end, with what may come in their way.
//!
//! Checks `src/session/remove.rs`, `src/session/removal.rs`, `src/session/reclaim.rs` and `src/session/tracker_gate.rs`
//! (`when_reclaimed`, `retire_unpinned`, `seize`): a callback is called once, when all is given back; `try_remove` removes all at
//! once or nothing; `remove_now` gives everything back once.

#![cfg(loom)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::Result;
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
        let tracker = scene.loaded("f", 1);
        let (session, main, bank) = (scene.session.clone(), scene.main.clone(), scene.bank.clone());
        let guarded = thread::spawn(move || {
            let guard = session.guard();
            let found = main.lookup_address("f").is_ok();
            assert!(!found || bank.given_back().is_empty(), "under the guard it stays");
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

/// Counts how often it is told of a key.
struct Told {
    count: AtomicUsize,
    /// Written where others may come in.
    step: loom::sync::atomic::AtomicUsize,
}

impl ResourceManager for Told {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        self.step.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

fn told(scene: &Scene) -> Arc<Told> {
    let told = Arc::new(Told { count: AtomicUsize::new(0), step: loom::sync::atomic::AtomicUsize::new(0) });
    scene.session.register_manager(told.clone());
    told
}

#[test]
fn forced_removal_versus_removal() {
    explore("forced_removal_versus_removal", None, 2, [("ok", "ok", 1, vec![1], 0)], || {
        let scene = Scene::new();
        let told = told(&scene);
        let tracker = scene.loaded("f", 1);
        let other = {
            let tracker = tracker.clone();
            thread::spawn(move || said(tracker.remove()))
        };
        let forced = said(remove_now(&tracker));
        let removed = other.join().unwrap();
        assert!(tracker.remove().unwrap().is_complete());
        (forced, removed, told.count.load(Ordering::Relaxed), scene.bank.given_back(), scene.main.symbol_count())
    });
}

#[test]
fn forced_removal_versus_the_last_pin() {
    explore("forced_removal_versus_the_last_pin", None, 2, [("ok", 1, vec![1])], || {
        let scene = Scene::new();
        let told = told(&scene);
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let other = thread::spawn(move || drop(pin));
        let forced = said(remove_now(&tracker));
        other.join().unwrap();
        assert!(removal.is_complete());
        (forced, told.count.load(Ordering::Relaxed), scene.bank.given_back())
    });
}

#[test]
fn forced_removal_versus_recording() {
    let allowed = [(true, (1, 0), 1), (false, (0, 0), 1)];
    explore("forced_removal_versus_recording", None, 2, allowed, || {
        let scene = Scene::new();
        let told = told(&scene);
        let (tracker, responsibility) = scene.at_work("f");
        let other = thread::spawn(move || drop(remove_now(&tracker).unwrap()));
        let accepted = scene.bank.record(&responsibility, 1);
        other.join().unwrap();
        (accepted, scene.bank.books(), told.count.load(Ordering::Relaxed))
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
