//! The error reporter: what it hears, what it does not, and how it is called (ORC: CoreAPIsTest, ErrorReporter).

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// A world whose reporter sends on.
fn reporting(reclaim: ReclaimPolicy) -> (World, Receiver<Error>) {
    let (send, receive) = channel();
    let reporter: ErrorReporter = Arc::new(move |error| send.send(error).unwrap());
    (
        World::with_options(SessionOptions { reclaim, error_reporter: Some(reporter), ..SessionOptions::default() }),
        receive,
    )
}

fn told(reports: &Receiver<Error>) -> Vec<String> {
    reports.try_iter().map(|error| error.root_cause().to_string()).collect()
}

#[test]
fn a_reported_error_reaches_the_reporter_which_may_own_what_nobody_else_has() {
    struct Unique(Mutex<Vec<String>>, Arc<Mutex<Vec<String>>>);
    impl Drop for Unique {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = std::mem::take(&mut *self.0.lock().unwrap());
        }
    }
    let left = Arc::new(Mutex::new(Vec::new()));
    let unique = Unique(Mutex::default(), left.clone());
    let reporter: ErrorReporter = Arc::new(move |error: Error| {
        let unique = &unique;
        unique.0.lock().unwrap().push(error.to_string());
    });
    let session =
        ExecutionSession::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    session.report_error(Error::other("one"));
    session.clone().report_error(Error::other("two"));
    drop(session);
    assert_eq!(*left.lock().unwrap(), ["one", "two"], "and it goes with the session");
}

#[test]
fn without_a_reporter_an_error_is_dropped() {
    let world = World::new();
    world.session.report_error(Error::other("unheard"));
    world.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
    assert_eq!(failed_symbols(&world.find("foo").unwrap_err()), ["foo"]);
}

#[test]
fn a_failure_that_no_lookup_waits_for_is_reported_with_its_cause() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let foo = world.ask(&["foo"], RequiredState::Resolved);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(foo.addresses(), [1]);
    r.fail(Error::other("no disk"));
    let error = reports.try_recv().expect("nobody waits any more");
    assert_eq!(
        (failed_symbols(&error), error.root_cause().to_string()),
        (vec!["bar".into(), "foo".into()], "no disk".into())
    );
    assert!(reports.try_recv().is_err(), "once");
}

#[test]
fn a_failure_that_a_lookup_is_told_of_is_not_reported() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    world.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
    world.find("foo").unwrap_err();
    // Nobody waits for bar itself, but somebody for what depends on it.
    let (bar, held) = Unit::held(&["bar"]);
    world.main.define(bar).unwrap();
    world.main.define(Unit::depending("user", &["bar"], &world.books, 1)).unwrap();
    let user = world.ask(&["user"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(2))).unwrap();
    r.fail(Error::other("no bar"));
    assert_eq!(user.error().root_cause().to_string(), "no bar");
    assert_eq!(told(&reports), [""; 0]);
}

#[test]
fn of_two_failures_in_one_lookup_the_second_is_reported_as_the_lookup_has_its_answer() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    for name in ["foo", "bar"] {
        world.main.define(Unit::exported(&[name], move |r| r.fail(Error::other(format!("no {name}"))))).unwrap();
    }
    let answer = world.ask(&["foo", "bar"], RequiredState::Ready);
    assert_eq!(answer.error().root_cause().to_string(), "no foo");
    assert_eq!(told(&reports), ["no bar"]);
}

#[test]
fn an_abandoned_responsibility_and_a_refused_emission_are_reported_when_nobody_waits() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    for refuse in [false, true] {
        let (unit, held) = Unit::held(&["foo"]);
        world.main.define(unit).unwrap();
        let _resolved = world.ask(&["foo"], RequiredState::Resolved);
        let target = world.loaded("target", 2);
        let dependencies = world.references(&["target"]);
        target.remove().unwrap();
        let r = held.take();
        r.notify_resolved(|_| Some(address(1))).unwrap();
        if refuse {
            r.notify_emitted(dependencies).unwrap_err();
        } else {
            drop(r);
        }
        let error = reports.try_recv().expect("reported");
        match error.root_cause().kind() {
            ErrorKind::DependencyRemoved { .. } if refuse => {}
            ErrorKind::ResponsibilityDropped { .. } if !refuse => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(told(&reports), [""; 0]);
}

#[test]
fn removing_what_is_under_way_is_no_error_to_report() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    let steps: [fn(MaterializationResponsibility); 3] =
        [drop, |r| r.fail(Error::other("late")), |r| assert_tracker_defunct(r.notify_emitted(Vec::new()))];
    for step in steps {
        let tracker = world.tracker();
        let (unit, held) = Unit::held(&["foo"]);
        tracker.define(unit).unwrap();
        let _answer = world.ask(&["foo"], RequiredState::Ready);
        tracker.remove().unwrap();
        step(held.take());
    }
    assert_eq!(told(&reports), [""; 0]);
}

#[test]
fn what_managers_say_goes_to_the_remover_when_its_call_completes_the_removal() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    let tracker = world.loaded("foo", 1);
    world.books.fails.store(true, Ordering::Relaxed);
    assert_eq!(tracker.remove().unwrap_err().to_string(), "books failed");
    let _bar = world.loaded("bar", 2);
    assert!(world.main.clear().is_err());
    let _baz = world.loaded("baz", 3);
    assert!(world.session.end().is_err());
    assert_eq!(told(&reports), [""; 0]);
}

#[test]
fn what_managers_say_when_a_dropped_pin_completes_a_removal_is_reported() {
    for policy in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        let (world, reports) = reporting(policy);
        let tracker = world.loaded("foo", 1);
        let (_, pin) = world.main.pin("foo").unwrap();
        let removal = tracker.remove().unwrap();
        world.books.fails.store(true, Ordering::Relaxed);
        drop(pin);
        if policy == ReclaimPolicy::Explicit {
            assert_eq!(told(&reports), [""; 0]);
            assert_eq!(world.session.reclaim(), 1);
        }
        assert_eq!(told(&reports), ["books failed"], "{policy:?}");
        assert_eq!(removal.wait().unwrap_err().to_string(), "books failed", "the ticket knows it too");
    }
}

#[test]
fn of_trackers_that_go_together_the_remover_hears_of_its_own_and_the_reporter_of_the_others() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    let base = world.loaded("base", 1);
    let user = world.linked("user", &["base"], 2);
    assert!(!base.remove().unwrap().is_complete());
    world.books.fails.store(true, Ordering::Relaxed);
    assert_eq!(user.remove().unwrap_err().to_string(), "books failed");
    assert_eq!(world.books.take_given_back(), [2, 1]);
    assert_eq!(told(&reports), ["books failed"]);
}

#[test]
fn what_managers_say_when_the_last_session_handle_is_dropped_is_reported() {
    let (world, reports) = reporting(ReclaimPolicy::OnDrop);
    let _tracker = world.loaded("foo", 1);
    world.books.fails.store(true, Ordering::Relaxed);
    drop(world.session);
    assert_eq!(told(&reports), ["books failed"]);
}

#[test]
fn a_reporter_is_called_with_no_lock_held_and_may_call_back_into_the_session() {
    let dylib: Arc<OnceLock<JitDylib>> = Arc::default();
    let (inside, log) = (dylib.clone(), Log::default());
    let heard = log.clone();
    let reporter: ErrorReporter = Arc::new(move |error| {
        let dylib = inside.get().expect("it is set");
        heard.push(error.root_cause().to_string());
        let tracker = dylib.create_tracker().unwrap();
        tracker.define(Unit::ready(&["made by the reporter"], 5)).unwrap();
        let requests = [SymbolRequest::required("made by the reporter")];
        assert_eq!(dylib.lookup(&requests, RequiredState::Ready).unwrap()[0].address, address(5));
        // The manager may fail here too, and says so here.
        let _ = tracker.remove();
        assert!(tracker.remove().unwrap().is_complete());
        heard.push("done");
    });
    let world = World::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    dylib.set(world.main.clone()).unwrap();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let _resolved = world.ask(&["foo"], RequiredState::Resolved);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    r.fail(Error::other("no"));
    let tracker = world.loaded("bar", 1);
    let (_, pin) = world.main.pin("bar").unwrap();
    tracker.remove().unwrap();
    world.books.fails.store(true, Ordering::Relaxed);
    drop(pin);
    assert_eq!(log.take(), ["no", "done", "books failed", "done"]);
}

#[test]
fn a_reporter_that_panics_harms_nobody() {
    let reporter: ErrorReporter = Arc::new(|_| panic!("reporter"));
    let world = World::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    world.session.report_error(Error::other("heard by nobody"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (unit, held) = Unit::held_with(&[("foo", EXPORTED)]);
        world.main.define(unit).unwrap();
        let _resolved = world.ask(&["foo"], RequiredState::Resolved);
        let r = held.take();
        r.notify_resolved(|_| Some(address(1))).unwrap();
        // Its drop reports, from the middle of unwinding: a second panic there would end the process.
        panic!("{} goes down with {:?}", r.unit_name(), Name::new("foo"));
    }));
    assert!(outcome.is_err());
    assert_eq!(world.main.symbol_count(), 0);
}
