//! Every interleaving of a worker on its way to sleep, work that is queued, a worker that waits in the middle of its
//! work, the dismissal of workers, and the end.
//!
//! Checks `src/session/work/worker_pool.rs` and `src/session/work/dispatch.rs`: no wake-up is lost, which loom would report as a deadlock;
//! work runs once, on a worker; work that waits for other work gets it, though one thread only may be at work; workers
//! end with their session, or loom would report them too.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::session::*;
use support::*;

/// A session with one worker, and lazy definitions of `names`, each of which notes that it was run.
fn scene(names: &[&'static str]) -> (Scene, Arc<Mutex<Vec<&'static str>>>) {
    let scene = Scene::with_options(SessionOptions { worker_threads: 1, ..SessionOptions::default() });
    let ran = Arc::new(Mutex::new(Vec::new()));
    for name in names {
        let (noted, name) = (ran.clone(), *name);
        let work = move |r: MaterializationResponsibility| {
            noted.lock().unwrap().push(name);
            make_ready(r);
        };
        scene.main.define(Unit::new(name, work)).unwrap();
    }
    (scene, ran)
}

fn make_ready(responsibility: MaterializationResponsibility) {
    // The session may have ended.
    if resolve(&responsibility).is_ok() {
        let _ = responsibility.notify_emitted(Vec::new());
    }
}

#[test]
fn queueing_work_versus_going_to_sleep() {
    // The second is queued while the worker that ran the first is anywhere between telling and sleeping.
    let allowed = [("ready", "ready", vec!["f", "g"])];
    explore("queueing_work_versus_going_to_sleep", None, 10, allowed, || {
        let (scene, ran) = scene(&["f", "g"]);
        let found = (find(&scene.main, "f"), find(&scene.main, "g"));
        drop(scene);
        let ran = ran.lock().unwrap().clone();
        (found.0, found.1, ran)
    });
}

#[test]
fn queueing_work_versus_the_dismissal_of_workers() {
    // The second is queued while the worker is anywhere between asleep and gone; whoever dismisses does not wait for ever.
    let allowed = [("ready", "ready", vec!["f", "g"])];
    explore("queueing_work_versus_the_dismissal_of_workers", Some(3), 10, allowed, || {
        let (scene, ran) = scene(&["f", "g"]);
        let first = find(&scene.main, "f");
        let session = scene.session.clone();
        let dismissal = loom::thread::spawn(move || session.dismiss_workers());
        let second = find(&scene.main, "g");
        dismissal.join().unwrap();
        drop(scene);
        let ran = ran.lock().unwrap().clone();
        (first, second, ran)
    });
}

#[test]
fn queued_work_versus_the_end_of_the_session() {
    // Run in time, run too late, or dropped.
    let allowed = [Some("ok"), Some("dylib defunct"), None];
    explore("queued_work_versus_the_end_of_the_session", None, 10, allowed, || {
        let (scene, _) = scene(&[]);
        let outcome = Arc::new(Mutex::new(None));
        let written = outcome.clone();
        let work = move |r: MaterializationResponsibility| *written.lock().unwrap() = Some(said(resolve(&r)));
        scene.main.define(Unit::new("f", work)).unwrap();
        scene.session.lookup_then(&scene.order(), &[SymbolRequest::required("f")], RequiredState::Ready, drop);
        scene.session.end().unwrap();
        drop(scene);
        let outcome = *outcome.lock().unwrap();
        outcome
    });
}

#[test]
fn work_that_waits_for_other_work() {
    // Another worker takes its place.
    let allowed = [("ready", vec!["g"])];
    explore("work_that_waits_for_other_work", Some(2), 10, allowed, || {
        let (scene, ran) = scene(&["g"]);
        let work = move |r: MaterializationResponsibility| {
            let dylib = r.dylib();
            assert_eq!(find(&dylib, "g"), "ready");
            drop(dylib);
            make_ready(r);
        };
        scene.main.define(Unit::new("f", work)).unwrap();
        let found = find(&scene.main, "f");
        drop(scene);
        let ran = ran.lock().unwrap().clone();
        (found, ran)
    });
}

#[test]
fn two_that_dismiss_the_workers_at_once() {
    // Neither waits for ever.
    explore("two_that_dismiss_the_workers_at_once", Some(2), 4, ["ready"], || {
        let (scene, _) = scene(&["f"]);
        let found = find(&scene.main, "f");
        let session = scene.session.clone();
        let other = loom::thread::spawn(move || session.dismiss_workers());
        scene.session.dismiss_workers();
        other.join().unwrap();
        found
    });
}
