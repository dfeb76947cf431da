//! The error reporter: which errors it gets, which it does not get, and how it is called (ORC: CoreAPIsTest, ErrorReporter).

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// A fixture whose reporter sends each error to a channel.
fn reporting(reclaim: ReclaimPolicy) -> (Fixture, Receiver<Error>) {
    let (send, receive) = channel();
    let reporter: ErrorReporter = Arc::new(move |error| send.send(error).unwrap());
    (
        Fixture::with_options(SessionOptions { reclaim, error_reporter: Some(reporter), ..SessionOptions::default() }),
        receive,
    )
}

fn messages(reports: &Receiver<Error>) -> Vec<String> {
    reports.try_iter().map(|error| error.root_cause().to_string()).collect()
}

#[test]
fn a_reported_error_reaches_the_reporter_which_is_dropped_with_the_session() {
    /// Collects errors, and copies them to `at_drop` when it is dropped.
    struct Collector {
        errors: Mutex<Vec<String>>,
        at_drop: Arc<Mutex<Vec<String>>>,
    }
    impl Drop for Collector {
        fn drop(&mut self) {
            *self.at_drop.lock().unwrap() = std::mem::take(&mut *self.errors.lock().unwrap());
        }
    }
    let at_drop = Arc::new(Mutex::new(Vec::new()));
    let collector = Collector { errors: Mutex::default(), at_drop: at_drop.clone() };
    let reporter: ErrorReporter = Arc::new(move |error: Error| {
        // The closure owns the entire collector, and not only one field.
        let collector = &collector;
        collector.errors.lock().unwrap().push(error.to_string());
    });
    let session =
        ExecutionSession::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    session.report_error(Error::other("one"));
    session.clone().report_error(Error::other("two"));
    drop(session);
    assert_eq!(*at_drop.lock().unwrap(), ["one", "two"], "the reporter is dropped with the session");
}

#[test]
fn without_a_reporter_an_error_is_dropped() {
    let fixture = Fixture::new();
    fixture.session.report_error(Error::other("dropped"));
    fixture.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
    assert_eq!(failed_symbols(&fixture.find("foo").unwrap_err()), ["foo"]);
}

#[test]
fn a_failure_that_no_lookup_waits_for_is_reported_with_its_cause() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    let held = fixture.define_held(&["foo", "bar"]);
    let foo = fixture.look_up(&["foo"], RequiredState::Resolved);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(foo.addresses(), [1]);
    r.fail(Error::other("no disk"));
    let error = reports.try_recv().expect("no lookup waits");
    assert_eq!(
        (failed_symbols(&error), error.root_cause().to_string()),
        (vec!["bar".into(), "foo".into()], "no disk".into())
    );
    assert!(reports.try_recv().is_err(), "once");
}

#[test]
fn a_failure_that_a_lookup_receives_is_not_reported() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    fixture.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
    fixture.find("foo").unwrap_err();
    // No lookup waits for `bar`, but one waits for a dependant of `bar`.
    let held = fixture.define_held(&["bar"]);
    fixture.main.define(Unit::depending("user", &["bar"], &fixture.manager, 1)).unwrap();
    let user = fixture.look_up(&["user"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(2))).unwrap();
    r.fail(Error::other("no bar"));
    assert_eq!(user.error().root_cause().to_string(), "no bar");
    assert_eq!(messages(&reports), [""; 0]);
}

#[test]
fn the_second_failure_of_one_lookup_is_reported() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    for name in ["foo", "bar"] {
        fixture.main.define(Unit::exported(&[name], move |r| r.fail(Error::other(format!("no {name}"))))).unwrap();
    }
    let answer = fixture.look_up(&["foo", "bar"], RequiredState::Ready);
    assert_eq!(answer.error().root_cause().to_string(), "no foo");
    assert_eq!(messages(&reports), ["no bar"]);
}

#[test]
fn an_abandoned_responsibility_and_a_refused_emission_are_reported_if_no_lookup_waits() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    for refuse in [false, true] {
        let held = fixture.define_held(&["foo"]);
        let _resolved = fixture.look_up(&["foo"], RequiredState::Resolved);
        let target = fixture.loaded("target", 2);
        let dependencies = fixture.references(&["target"]);
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
    assert_eq!(messages(&reports), [""; 0]);
}

#[test]
fn removal_during_materialisation_is_not_reported() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    let steps: [fn(MaterializationResponsibility); 3] =
        [drop, |r| r.fail(Error::other("late")), |r| assert_tracker_defunct(r.notify_emitted(Vec::new()))];
    for step in steps {
        let tracker = fixture.tracker();
        let held = define_held_under(&tracker, &["foo"]);
        let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
        tracker.remove().unwrap();
        step(held.take());
    }
    assert_eq!(messages(&reports), [""; 0]);
}

#[test]
fn manager_errors_are_returned_by_the_call_that_completes_the_removal() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    let tracker = fixture.loaded("foo", 1);
    fixture.manager.fails.store(true, Ordering::Relaxed);
    assert_eq!(tracker.remove().unwrap_err().to_string(), "manager failed");
    let _bar = fixture.loaded("bar", 2);
    assert!(fixture.main.clear().is_err());
    let _baz = fixture.loaded("baz", 3);
    assert!(fixture.session.end().is_err());
    assert_eq!(messages(&reports), [""; 0]);
}

#[test]
fn manager_errors_are_reported_when_a_dropped_pin_completes_the_removal() {
    for policy in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        let (fixture, reports) = reporting(policy);
        let tracker = fixture.loaded("foo", 1);
        let (_, pin) = fixture.main.pin("foo").unwrap();
        let removal = tracker.remove().unwrap();
        fixture.manager.fails.store(true, Ordering::Relaxed);
        drop(pin);
        if policy == ReclaimPolicy::Explicit {
            assert_eq!(messages(&reports), [""; 0]);
            assert_eq!(fixture.session.reclaim(), 1);
        }
        assert_eq!(messages(&reports), ["manager failed"], "{policy:?}");
        assert_eq!(removal.wait().unwrap_err().to_string(), "manager failed", "the ticket has the error, too");
    }
}

#[test]
fn for_trackers_freed_together_the_caller_gets_its_own_error_and_the_reporter_the_others() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    let base = fixture.loaded("base", 1);
    let user = fixture.linked("user", &["base"], 2);
    assert!(!base.remove().unwrap().is_complete());
    fixture.manager.fails.store(true, Ordering::Relaxed);
    assert_eq!(user.remove().unwrap_err().to_string(), "manager failed");
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
    assert_eq!(messages(&reports), ["manager failed"]);
}

#[test]
fn manager_errors_are_reported_when_the_last_session_handle_is_dropped() {
    let (fixture, reports) = reporting(ReclaimPolicy::OnDrop);
    let _tracker = fixture.loaded("foo", 1);
    fixture.manager.fails.store(true, Ordering::Relaxed);
    drop(fixture.session);
    assert_eq!(messages(&reports), ["manager failed"]);
}

#[test]
fn a_reporter_is_called_with_no_lock_held_and_may_call_back_into_the_session() {
    let dylib: Arc<OnceLock<JitDylib>> = Arc::default();
    let (inside, log) = (dylib.clone(), Log::default());
    let reported = log.clone();
    let reporter: ErrorReporter = Arc::new(move |error| {
        let dylib = inside.get().expect("it is set");
        reported.push(error.root_cause().to_string());
        let tracker = dylib.create_tracker().unwrap();
        tracker.define(Unit::ready(&["made by the reporter"], 5)).unwrap();
        let requests = [SymbolRequest::required("made by the reporter")];
        assert_eq!(dylib.lookup(&requests, RequiredState::Ready).unwrap()[0].address, address(5));
        // The manager may fail here, too. The error is returned here.
        let _ = tracker.remove();
        assert!(tracker.remove().unwrap().is_complete());
        reported.push("done");
    });
    let fixture = Fixture::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    dylib.set(fixture.main.clone()).unwrap();
    let (r, _resolved) = fixture.claim(&["foo"], RequiredState::Resolved);
    r.notify_resolved(|_| Some(address(1))).unwrap();
    r.fail(Error::other("no"));
    let tracker = fixture.loaded("bar", 1);
    let (_, pin) = fixture.main.pin("bar").unwrap();
    tracker.remove().unwrap();
    fixture.manager.fails.store(true, Ordering::Relaxed);
    drop(pin);
    assert_eq!(log.take(), ["no", "done", "manager failed", "done"]);
}

#[test]
fn a_panic_of_the_reporter_is_contained() {
    let reporter: ErrorReporter = Arc::new(|_| panic!("reporter"));
    let fixture = Fixture::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    fixture.session.report_error(Error::other("the reporter panics"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (unit, held) = Unit::held_with(&[("foo", EXPORTED)]);
        fixture.main.define(unit).unwrap();
        let _resolved = fixture.look_up(&["foo"], RequiredState::Resolved);
        let r = held.take();
        r.notify_resolved(|_| Some(address(1))).unwrap();
        // The drop reports during unwinding. A second panic there would abort the process.
        panic!("{} fails with {:?}", r.unit_name(), Name::new("foo"));
    }));
    assert!(outcome.is_err());
    assert_eq!(fixture.main.symbol_count(), 0);
}
