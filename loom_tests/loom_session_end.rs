//! Every interleaving of the end of a session with whatever is under way in it.
//!
//! Checks `src/session/core/execution_session.rs` (`end`, `create_dylib`), `src/session/core/jit_dylib.rs` (`close`, `clear`) and
//! `src/session/removal/reclaim.rs`: what comes too late is refused, what was accepted is given back once, nobody waits for ever.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn creating_a_dylib_versus_ending_the_session() {
    // Created, left open, listed.
    let allowed = [(true, false, 0), (false, false, 0)];
    explore("creating_a_dylib_versus_ending_the_session", None, 2, allowed, || {
        let session = ExecutionSession::new();
        let other = session.clone();
        let ender = thread::spawn(move || other.end().unwrap());
        let created = session.create_dylib("late").ok();
        ender.join().unwrap();
        let left_open = created.as_ref().is_some_and(|dylib| !dylib.is_defunct());
        (created.is_some(), left_open, session.dylibs().len())
    });
}

#[test]
fn defining_versus_ending_the_session() {
    let allowed = [("ok", 0), ("dylib defunct", 0)];
    explore("defining_versus_ending_the_session", None, 4, allowed, || {
        let scene = Scene::new();
        let session = scene.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let symbol = [(Name::new("f"), ExecutorAddr::new(1), SymbolFlags::EXPORTED)];
        let defined = scene.main.create_tracker().and_then(|tracker| tracker.define_absolute(symbol));
        ender.join().unwrap();
        (said(defined), scene.main.symbol_count())
    });
}

#[test]
fn work_in_flight_versus_ending_the_session() {
    // Recorded, resolved, emitted: once a step has failed, all the others do. A dylib is closed before it is cleared, so
    // work may record without being able to resolve.
    let (ok, dylib) = ("ok", "dylib defunct");
    let allowed = [
        (true, ok, ok, 0, (1, 0)),
        (true, ok, dylib, 0, (1, 0)),
        (true, dylib, dylib, 0, (1, 0)),
        (false, dylib, dylib, 0, (0, 0)),
    ];
    explore("work_in_flight_versus_ending_the_session", None, 4, allowed, || {
        let scene = Scene::new();
        let (_tracker, responsibility) = scene.at_work("f");
        let session = scene.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let accepted = scene.bank.record(&responsibility, 1);
        let resolved = said(resolve(&responsibility));
        let emitted = said(responsibility.notify_emitted(Vec::new()));
        ender.join().unwrap();
        (accepted, resolved, emitted, scene.main.symbol_count(), scene.bank.books())
    });
}

#[test]
fn lookup_versus_ending_the_session() {
    let allowed =
        [("ready", (1, 0)), ("failed", (0, 0)), ("failed", (1, 0)), ("not found", (0, 0)), ("dylib defunct", (0, 0))];
    explore("lookup_versus_ending_the_session", None, 4, allowed, || {
        let scene = Scene::new();
        let tracker = scene.main.create_tracker().unwrap();
        let bank = scene.bank.clone();
        let work = move |r: MaterializationResponsibility| {
            bank.record(&r, 1);
            if resolve(&r).is_ok() {
                let _ = r.notify_emitted(Vec::new());
            }
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let session = scene.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let found = find(&scene.main, "f");
        ender.join().unwrap();
        (found, scene.bank.books())
    });
}

#[test]
fn dropping_a_pin_versus_ending_the_session() {
    for reclaim in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        explore("dropping_a_pin_versus_ending_the_session", None, 4, [(1, 0)], move || {
            let scene = Scene::with_options(SessionOptions { reclaim, ..SessionOptions::default() });
            let _tracker = scene.loaded("f", 1);
            let (_, pin) = scene.main.pin("f").unwrap();
            let holder = thread::spawn(move || drop(pin));
            scene.session.end().unwrap();
            holder.join().unwrap();
            scene.bank.books()
        });
    }
}

#[test]
fn dropping_the_last_handle_versus_dropping_a_pin() {
    for reclaim in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        explore("dropping_the_last_handle_versus_dropping_a_pin", None, 4, [(1, 0)], move || {
            let scene = Scene::with_options(SessionOptions { reclaim, ..SessionOptions::default() });
            // Removed before: the end of the session has nothing to retire.
            let tracker = scene.loaded("f", 1);
            let (_, pin) = scene.main.pin("f").unwrap();
            tracker.remove().unwrap();
            let holder = thread::spawn(move || drop(pin));
            let Scene { session, main, bank } = scene;
            drop(session);
            holder.join().unwrap();
            drop((main, tracker));
            bank.books()
        });
    }
}

#[test]
fn ending_twice() {
    explore("ending_twice", None, 4, [(vec![1], 0, true)], || {
        let scene = Scene::new();
        let _tracker = scene.loaded("f", 1);
        let session = scene.session.clone();
        let other = thread::spawn(move || session.end().unwrap());
        scene.session.end().unwrap();
        other.join().unwrap();
        (scene.bank.given_back(), scene.session.dylibs().len(), scene.main.is_defunct())
    });
}
