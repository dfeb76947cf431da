//! A callback of a lookup, a waker or a generator that panics: the operation that calls it goes on, every other lookup is
//! answered, and the error reporter gets the panic.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use jittison::base::Name;
use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// A fixture whose error reporter sends the texts of the errors to a channel.
fn reporting() -> (Fixture, Receiver<String>) {
    let (send, receive) = channel();
    let reporter: ErrorReporter = Arc::new(move |error| send.send(error.to_string()).unwrap());
    (Fixture::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() }), receive)
}

#[track_caller]
fn assert_reported(reports: &Receiver<String>, expected: &[&str]) {
    let reported: Vec<_> = reports.try_iter().collect();
    assert_eq!(reported.len(), expected.len(), "{reported:?}");
    reported.iter().zip(expected).for_each(|(text, expected)| assert!(text.contains(expected), "{reported:?}"));
}

/// Starts a lookup of `name` whose callback panics.
fn look_up_and_panic(fixture: &Fixture, name: &str) {
    let order = [(fixture.main.clone(), Visibility::All)];
    let panic = |_: Result<Vec<LookupResult>>| panic!("a bug in a callback");
    fixture.session.lookup_then(&order, &[SymbolRequest::required(name)], RequiredState::Ready, panic);
}

/// Runs `body` on a thread of its own and returns its result. Panics if it takes more than a minute.
fn within_a_minute<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = channel();
    let _thread = thread::spawn(move || send.send(body()));
    receive.recv_timeout(Duration::from_secs(60)).expect("within a minute")
}

#[test]
fn a_removal_completes_although_a_callback_of_a_failed_lookup_panics() {
    type Remove = fn(&Fixture, &ResourceTracker) -> bool;
    let removals: [Remove; 5] = [
        |_, tracker| tracker.remove().unwrap().is_complete(),
        |_, tracker| tracker.try_remove().unwrap().is_complete(),
        |_, tracker| tracker.remove_cascade().unwrap().is_complete(),
        |_, tracker| ResourceTracker::remove_all([tracker]).unwrap()[0].is_complete(),
        |fixture, _| fixture.session.remove_dylib(&fixture.main).unwrap().is_empty(),
    ];
    for remove in removals {
        let (fixture, reports) = reporting();
        let tracker = fixture.loaded("freed", 7);
        let _held = define_held_under(&tracker, &["foo"]);
        look_up_and_panic(&fixture, "foo");
        let answer = fixture.look_up(&["foo"], RequiredState::Ready);
        assert!(remove(&fixture, &tracker));
        assert_eq!(failed_symbols(&answer.error()), ["foo"]);
        assert_eq!(fixture.manager.take_freed(), [7]);
        assert_eq!(fixture.session.pending_removals().len(), 0);
        assert_reported(&reports, &["a bug in a callback"]);
    }
}

#[test]
fn an_emission_succeeds_although_a_callback_panics() {
    let (fixture, reports) = reporting();
    let (r, answer) = fixture.claim(&["foo", "bar"], RequiredState::Ready);
    look_up_and_panic(&fixture, "foo");
    look_up_and_panic(&fixture, "bar");
    r.notify_resolved(|_| Some(address(3))).unwrap();
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&["foo", "bar"]), [READY, READY]);
    assert_eq!(answer.addresses(), [3, 3]);
    assert_reported(&reports, &["a bug in a callback"; 2]);
}

#[test]
fn a_failed_emission_fails_its_other_symbols_although_a_callback_panics() {
    let (fixture, reports) = reporting();
    let (r, _resolved) = fixture.claim(&["foo", "bar"], RequiredState::Resolved);
    let answer = fixture.look_up(&["bar"], RequiredState::Ready);
    look_up_and_panic(&fixture, "foo");
    r.notify_resolved(|_| Some(address(3))).unwrap();
    let group = |name| DependencyGroup { symbols: vec![Name::new(name)], dependencies: Vec::new() };
    assert!(r.notify_emitted_groups(vec![group("foo"), group("foo")]).is_err());
    assert_eq!(failed_symbols(&answer.error()), ["bar", "foo"]);
    assert_eq!(fixture.states(&["foo", "bar"]), [None, None]);
    assert_reported(&reports, &["a bug in a callback"]);
}

#[test]
fn a_callback_that_panics_while_its_thread_unwinds_does_not_abort() {
    let (fixture, reports) = reporting();
    let held = fixture.define_held(&["foo"]);
    look_up_and_panic(&fixture, "foo");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _dropped_by_unwinding = held.take();
        panic!("outer");
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"outer"));
    assert_reported(&reports, &["a bug in a callback"]);
}

#[test]
fn a_removal_completes_although_a_waker_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a bug in a waker");
        }
    }
    let (fixture, reports) = reporting();
    let tracker = fixture.tracker();
    let _held = define_held_under(&tracker, &["foo"]);
    let order = [(fixture.main.clone(), Visibility::All)];
    let lookup = fixture.session.lookup_async(&order, &[SymbolRequest::required("foo")], RequiredState::Ready);
    let mut lookup = pin!(lookup);
    assert!(lookup.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
    assert!(tracker.remove().unwrap().is_complete());
    assert!(lookup.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_reported(&reports, &["a bug in a waker"]);
}

#[test]
fn an_emission_succeeds_although_an_applied_part_panics() {
    let (fixture, reports) = reporting();
    let held = fixture.define_held(&["foo"]);
    let part = |_: &[LookupResult]| panic!("a bug in a part");
    let parts = LookupAndApply::new().apply(&[SymbolRequest::required("foo")], part);
    parts.start(&fixture.session, &fixture.main.search_order(), RequiredState::Ready, |_| ());
    finish(held.take(), 4);
    assert_eq!(fixture.find("foo").unwrap(), 4);
    assert_reported(&reports, &["a bug in a part"]);
}

#[test]
fn a_removal_completes_although_a_callback_starts_a_unit_that_panics() {
    let (fixture, reports) = reporting();
    let (tracker, other) = (fixture.tracker(), fixture.tracker());
    let _held = define_held_under(&tracker, &["foo"]);
    other.define(Unit::exported(&["bar"], |_| panic!("a bug in a unit"))).unwrap();
    let (session, order) = (fixture.session.clone(), [(fixture.main.clone(), Visibility::All)]);
    let bar = Answer::default();
    let on_bar = bar.callback();
    let start_bar = {
        let (session, order) = (session.clone(), order.clone());
        move |_| session.lookup_then(&order, &[SymbolRequest::required("bar")], RequiredState::Ready, on_bar)
    };
    session.lookup_then(&order, &[SymbolRequest::required("foo")], RequiredState::Ready, start_bar);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(failed_symbols(&bar.error()), ["bar"]);
    assert_reported(&reports, &["a bug in a unit"]);
}

#[test]
fn a_removal_completes_although_the_drop_of_a_lazy_unit_panics() {
    struct PanicsAtDrop([(Name, SymbolFlags); 1]);
    impl MaterializationUnit for PanicsAtDrop {
        fn name(&self) -> &str {
            "panics at drop"
        }
        fn symbols(&self) -> &[(Name, SymbolFlags)] {
            &self.0
        }
        fn materialize(self: Box<Self>, _: MaterializationResponsibility) {}
    }
    impl Drop for PanicsAtDrop {
        fn drop(&mut self) {
            panic!("a bug in a destructor");
        }
    }
    let (fixture, reports) = reporting();
    let tracker = fixture.loaded("freed", 7);
    for name in ["foo", "bar"] {
        tracker.define(PanicsAtDrop([(Name::new(name), EXPORTED)])).unwrap();
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [7]);
    assert_reported(&reports, &["a bug in a destructor"; 2]);
}

#[test]
fn a_callback_of_a_failed_lookup_may_wait_for_a_symbol_that_fails_with_it() {
    // Symptom: the callback ran before the symbols that depend on the removed one failed.
    within_a_minute(|| {
        let fixture = Fixture::new();
        let (tracker, dependant) = (fixture.tracker(), fixture.tracker());
        let base = define_held_under(&tracker, &["base"]);
        let user = define_held_under(&dependant, &["user"]);
        let found = Arc::new(Mutex::new(None));
        let (session, main, seen) = (fixture.session.clone(), fixture.main.clone(), found.clone());
        let order = [(fixture.main.clone(), Visibility::All)];
        fixture.session.lookup_then(&order, &[SymbolRequest::required("base")], RequiredState::Ready, move |_| {
            *seen.lock().unwrap() = Some(find_in(&session, &[&main], "user"));
        });
        let _user = fixture.look_up(&["user"], RequiredState::Ready);
        let (base, user) = (base.take(), user.take());
        base.notify_resolved(|_| Some(address(1))).unwrap();
        user.notify_resolved(|_| Some(address(2))).unwrap();
        user.notify_emitted(fixture.references(&["base"])).unwrap();
        tracker.remove().unwrap();
        assert_not_found(found.lock().unwrap().take().expect("the callback has run"));
    });
}

#[test]
fn a_callback_of_an_emitted_group_may_wait_for_a_symbol_that_fails_in_the_same_emission() {
    // Symptom: the callback ran before the other symbols failed.
    within_a_minute(|| {
        let fixture = Fixture::new();
        let (r, _resolved) = fixture.claim(&["foo", "bar"], RequiredState::Resolved);
        r.notify_resolved(|_| Some(address(3))).unwrap();
        let found = Arc::new(Mutex::new(None));
        let (session, main, seen) = (fixture.session.clone(), fixture.main.clone(), found.clone());
        let order = [(fixture.main.clone(), Visibility::All)];
        fixture.session.lookup_then(&order, &[SymbolRequest::required("foo")], RequiredState::Ready, move |_| {
            *seen.lock().unwrap() = Some(find_in(&session, &[&main], "bar"));
        });
        let (gone, _) = fixture.claim(&["gone"], RequiredState::Resolved);
        gone.notify_resolved(|_| Some(address(4))).unwrap();
        let removed = fixture.references(&["gone"]);
        gone.fail(Error::other("gone"));
        let group = |name, dependencies| DependencyGroup { symbols: vec![Name::new(name)], dependencies };
        assert!(r.notify_emitted_groups(vec![group("foo", Vec::new()), group("bar", removed)]).is_err());
        assert_not_found(found.lock().unwrap().take().expect("the callback has run"));
        assert_eq!(fixture.states(&["foo", "bar"]), [READY, None]);
    });
}
