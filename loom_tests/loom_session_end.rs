//! Model: the end of a session races with operations in that session.
//!
//! Runs `src/session/execution_session.rs` (`create_dylib`), `src/session/removal/dylib.rs` (`end`, `close`),
//! `src/session/removal/remove.rs` (`clear`) and `src/session/removal/reclaim.rs`. An operation that comes too late is
//! refused. An accepted resource is freed once. No thread waits for ever.
//!
//! Seeded bugs: `dylib_added_under_a_later_lock`, `queued_after_the_end`.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn creating_a_dylib_versus_ending_the_session() {
    // The dylib was created; it is open; number of listed dylibs.
    let allowed = [(true, false, 0), (false, false, 0)];
    explore("creating_a_dylib_versus_ending_the_session", None, 2, allowed, || {
        let session = ExecutionSession::new();
        let other = session.clone();
        let ender = thread::spawn(move || other.end().unwrap());
        let created = session.create_dylib("late").ok();
        ender.join().unwrap();
        let is_open = created.as_ref().is_some_and(|dylib| !dylib.is_defunct());
        (created.is_some(), is_open, session.dylibs().len())
    });
}

#[test]
fn defining_versus_ending_the_session() {
    let allowed = [("ok", 0), ("dylib defunct", 0)];
    explore("defining_versus_ending_the_session", None, 4, allowed, || {
        let fixture = Fixture::new();
        let session = fixture.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let symbol = [(Name::new("f"), ExecutorAddr::new(1), SymbolFlags::EXPORTED)];
        let defined = fixture.main.create_tracker().and_then(|tracker| tracker.define_absolute(symbol));
        ender.join().unwrap();
        (describe(defined), fixture.main.symbol_count())
    });
}

#[test]
fn work_in_flight_versus_ending_the_session() {
    // Recorded, resolved, emitted; symbols; counts. After one step has failed, the later ones fail. A dylib is closed before
    // it is cleared, so work may record and then fail to resolve. Once its symbols are removed, the error names the removal.
    // A tracker refuses a record only when its symbols are removed, so after that every step names the removal.
    let (ok, dylib, tracker) = ("ok", "dylib defunct", "tracker defunct");
    let allowed = [
        (true, ok, ok, 0, (1, 0)),
        (true, ok, dylib, 0, (1, 0)),
        (true, ok, tracker, 0, (1, 0)),
        (true, dylib, dylib, 0, (1, 0)),
        (true, dylib, tracker, 0, (1, 0)),
        (true, tracker, tracker, 0, (1, 0)),
        (false, tracker, tracker, 0, (0, 0)),
    ];
    explore("work_in_flight_versus_ending_the_session", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (_tracker, responsibility) = fixture.materializing("f");
        let session = fixture.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let accepted = fixture.manager.record(&responsibility, 1);
        let resolved = describe(resolve(&responsibility));
        let emitted = describe(responsibility.notify_emitted(Vec::new()));
        ender.join().unwrap();
        (accepted, resolved, emitted, fixture.main.symbol_count(), fixture.manager.counts())
    });
}

#[test]
fn lookup_versus_ending_the_session() {
    let allowed =
        [("ready", (1, 0)), ("failed", (0, 0)), ("failed", (1, 0)), ("not found", (0, 0)), ("dylib defunct", (0, 0))];
    explore("lookup_versus_ending_the_session", None, 4, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.main.create_tracker().unwrap();
        let manager = fixture.manager.clone();
        let work = move |r: MaterializationResponsibility| {
            manager.record(&r, 1);
            if resolve(&r).is_ok() {
                let _ = r.notify_emitted(Vec::new());
            }
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let session = fixture.session.clone();
        let ender = thread::spawn(move || session.end().unwrap());
        let found = find(&fixture.main, "f");
        ender.join().unwrap();
        (found, fixture.manager.counts())
    });
}

#[test]
fn dropping_a_pin_versus_ending_the_session() {
    for reclaim in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        explore("dropping_a_pin_versus_ending_the_session", None, 4, [(1, 0)], move || {
            let fixture = Fixture::with_options(SessionOptions { reclaim, ..SessionOptions::default() });
            let _tracker = fixture.loaded("f", 1);
            let (_, pin) = fixture.main.pin("f").unwrap();
            let holder = thread::spawn(move || drop(pin));
            fixture.session.end().unwrap();
            holder.join().unwrap();
            fixture.manager.counts()
        });
    }
}

#[test]
fn dropping_the_last_handle_versus_dropping_a_pin() {
    for reclaim in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        explore("dropping_the_last_handle_versus_dropping_a_pin", None, 4, [(1, 0)], move || {
            let fixture = Fixture::with_options(SessionOptions { reclaim, ..SessionOptions::default() });
            // Removed before, so the end of the session retires nothing.
            let tracker = fixture.loaded("f", 1);
            let (_, pin) = fixture.main.pin("f").unwrap();
            tracker.remove().unwrap();
            let holder = thread::spawn(move || drop(pin));
            let Fixture { session, main, manager } = fixture;
            drop(session);
            holder.join().unwrap();
            drop((main, tracker));
            manager.counts()
        });
    }
}

#[test]
fn ending_twice() {
    explore("ending_twice", None, 4, [(vec![1], 0, true)], || {
        let fixture = Fixture::new();
        let _tracker = fixture.loaded("f", 1);
        let session = fixture.session.clone();
        let other = thread::spawn(move || session.end().unwrap());
        fixture.session.end().unwrap();
        other.join().unwrap();
        (fixture.manager.freed(), fixture.session.dylibs().len(), fixture.main.is_defunct())
    });
}
