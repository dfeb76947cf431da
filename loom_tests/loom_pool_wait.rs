//! Model: work is queued while a worker goes to sleep, waits for other work, is dismissed, or while the session ends.
//!
//! Runs `src/session/work/worker_pool.rs` and `src/session/work/dispatcher.rs`. Work runs once, on a worker. Work that
//! waits for other work gets it, although only one thread may run work at a time. Workers end with their session. A lost
//! wake-up, or a worker that does not end, is a deadlock, which loom reports.
//!
//! Seeded bugs: `woken_without_the_lock`, `dismissed_under_a_later_lock`.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::session::*;
use support::*;

/// A session with one worker and lazy definitions of `names`. The second value lists the units that have run.
fn fixture(names: &[&'static str]) -> (Fixture, Arc<Mutex<Vec<&'static str>>>) {
    let fixture = Fixture::with_options(SessionOptions { worker_threads: 1, ..SessionOptions::default() });
    let ran = Arc::new(Mutex::new(Vec::new()));
    for name in names {
        let (noted, name) = (ran.clone(), *name);
        let work = move |r: MaterializationResponsibility| {
            noted.lock().unwrap().push(name);
            make_ready(r);
        };
        fixture.main.define(Unit::new(name, work)).unwrap();
    }
    (fixture, ran)
}

fn make_ready(responsibility: MaterializationResponsibility) {
    // The session may have ended.
    if resolve(&responsibility).is_ok() {
        let _ = responsibility.notify_emitted(Vec::new());
    }
}

#[test]
fn queueing_work_versus_a_worker_going_to_sleep() {
    // The second unit is queued while the worker that ran the first is anywhere between its notification and sleeping.
    let allowed = [("ready", "ready", vec!["f", "g"])];
    explore("queueing_work_versus_a_worker_going_to_sleep", None, 10, allowed, || {
        let (fixture, ran) = fixture(&["f", "g"]);
        let found = (find(&fixture.main, "f"), find(&fixture.main, "g"));
        drop(fixture);
        let ran = ran.lock().unwrap().clone();
        (found.0, found.1, ran)
    });
}

#[test]
fn queueing_work_versus_the_dismissal_of_workers() {
    // The second unit is queued while the worker is anywhere between asleep and ended. `dismiss_workers` returns.
    let allowed = [("ready", "ready", vec!["f", "g"])];
    explore("queueing_work_versus_the_dismissal_of_workers", Some(3), 10, allowed, || {
        let (fixture, ran) = fixture(&["f", "g"]);
        let first = find(&fixture.main, "f");
        let session = fixture.session.clone();
        let dismissal = loom::thread::spawn(move || session.dismiss_workers());
        let second = find(&fixture.main, "g");
        dismissal.join().unwrap();
        drop(fixture);
        let ran = ran.lock().unwrap().clone();
        (first, second, ran)
    });
}

#[test]
fn queued_work_versus_the_end_of_the_session() {
    // The work runs in time, runs too late, or is dropped. Once its symbols are removed, the error names the removal.
    let allowed = [Some("ok"), Some("dylib defunct"), Some("tracker defunct"), None];
    explore("queued_work_versus_the_end_of_the_session", None, 10, allowed, || {
        let (fixture, _) = fixture(&[]);
        let outcome = Arc::new(Mutex::new(None));
        let written = outcome.clone();
        let work = move |r: MaterializationResponsibility| *written.lock().unwrap() = Some(describe(resolve(&r)));
        fixture.main.define(Unit::new("f", work)).unwrap();
        fixture.session.lookup_then(
            &fixture.search_order(),
            &[SymbolRequest::required("f")],
            RequiredState::Ready,
            drop,
        );
        fixture.session.end().unwrap();
        drop(fixture);
        let outcome = *outcome.lock().unwrap();
        outcome
    });
}

#[test]
fn work_that_waits_for_other_work() {
    // Another worker runs meanwhile.
    let allowed = [("ready", vec!["g"])];
    explore("work_that_waits_for_other_work", Some(2), 10, allowed, || {
        let (fixture, ran) = fixture(&["g"]);
        let work = move |r: MaterializationResponsibility| {
            let dylib = r.dylib();
            assert_eq!(find(&dylib, "g"), "ready");
            drop(dylib);
            make_ready(r);
        };
        fixture.main.define(Unit::new("f", work)).unwrap();
        let found = find(&fixture.main, "f");
        drop(fixture);
        let ran = ran.lock().unwrap().clone();
        (found, ran)
    });
}

#[test]
fn two_threads_that_dismiss_the_workers_at_once() {
    // Both calls return.
    explore("two_threads_that_dismiss_the_workers_at_once", Some(2), 4, ["ready"], || {
        let (fixture, _) = fixture(&["f"]);
        let found = find(&fixture.main, "f");
        let session = fixture.session.clone();
        let other = loom::thread::spawn(move || session.dismiss_workers());
        fixture.session.dismiss_workers();
        other.join().unwrap();
        found
    });
}
