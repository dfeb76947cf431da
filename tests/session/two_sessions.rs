//! Two sessions share nothing: what belongs to one is refused by the other, and a manager may serve both.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

use Visibility::All;

/// Checks that a dylib with this name was refused because it is of another session.
#[track_caller]
fn assert_foreign<T: std::fmt::Debug>(outcome: Result<T, Error>, name: &str) {
    let error = outcome.expect_err("it is of another session");
    assert!(matches!(error.kind(), ErrorKind::ForeignSession { dylib } if dylib == name), "{error}");
}

/// Two sessions. The first has a dylib `main`; the second has a dylib `other` with a ready symbol `symbol`.
fn two() -> (Fixture, ExecutionSession, JitDylib) {
    let (own, session) = (Fixture::new(), ExecutionSession::new());
    let other = session.create_dylib("other").unwrap();
    other.define(Unit::ready(&["symbol"], 8)).unwrap();
    other.lookup_address("symbol").unwrap();
    (own, session, other)
}

#[test]
fn dylibs_and_keys_of_two_sessions_differ() {
    let (own, _session, other) = two();
    let (tracker, foreign) = (own.tracker(), other.create_tracker().unwrap());
    assert!(own.main.id() != other.id() && tracker.key() != foreign.key());
    assert_ne!(tracker.key().to_string(), foreign.key().to_string());
}

/// The keys of two sessions were equal, and the removal in one session freed the resources of the other.
#[test]
fn a_manager_of_two_sessions_frees_only_what_was_removed() {
    let (own, session, other) = two();
    session.register_manager(own.manager.clone());
    let (tracker, foreign) = (own.loaded("code", 1), other.create_tracker().unwrap());
    foreign.with_resource_key(|key| own.manager.ledger.record(key, 2)).unwrap();
    tracker.remove().unwrap();
    assert_eq!(own.manager.take_freed(), [1]);
    foreign.remove().unwrap();
    assert_eq!(own.manager.take_freed(), [2]);
}

#[test]
fn a_link_order_refuses_dylibs_of_another_session_and_is_unchanged() {
    let (own, _session, other) = two();
    let dylib = own.session.create_dylib("dylib").unwrap();
    own.main.set_link_order(&[(dylib.clone(), All)]).unwrap();
    assert_foreign(own.main.set_link_order(&[(own.main.clone(), All), (other.clone(), All)]), "other");
    assert_foreign(own.main.add_to_link_order(&[(other.clone(), All)]), "other");
    assert_foreign(own.main.replace_in_link_order(&dylib, &other, All), "other");
    assert_eq!(own.main.link_order(), [(dylib.clone(), All)]);
    assert!(!own.main.remove_from_link_order(&other));
}

#[test]
fn every_lookup_refuses_a_dylib_of_another_session_even_if_its_symbol_is_ready() {
    let (own, _session, other) = two();
    let (session, order) = (&own.session, [(other.clone(), All)]);
    let (ready, request) = (RequiredState::Ready, [SymbolRequest::required("symbol")]);
    assert_foreign(session.lookup(&order, &request, ready), "other");
    assert_foreign(session.lookup_address(&order, "symbol"), "other");
    assert_foreign(session.lookup_flags(&order, &request), "other");
    assert_foreign(Answer::of(session, &other, &["symbol"], ready).outcome(), "other");
    let mut future = pin!(session.lookup_async(&order, &request, ready));
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => assert_foreign(outcome, "other"),
        Poll::Pending => panic!("the lookup is refused at once"),
    }
    let (responsibility, _answer) = own.claim(&["own"], ready);
    let answer = Answer::default();
    let callback = answer.callback();
    responsibility.lookup_in(&order, &request, ready, |r, outcome| {
        callback(outcome);
        finish(r, 1);
    });
    assert_foreign(answer.outcome(), "other");
}

#[test]
fn names_of_another_session_cannot_be_re_exported() {
    let (own, _session, other) = two();
    let alias = Alias { name: "symbol".into(), aliasee: "symbol".into(), flags: EXPORTED };
    assert_foreign(own.tracker().reexport(&other, &[alias]), "other");
    own.main.add_generator(Arc::new(ReexportsGenerator::new(&other, |_| true)));
    assert_foreign(own.main.lookup_address("symbol"), "other");
}

/// The tracker of the other session was pinned in a graph that its own session does not read.
#[test]
fn code_cannot_depend_on_a_symbol_of_another_session() {
    let (own, session, other) = two();
    let found = session.lookup(&[(other.clone(), All)], &[SymbolRequest::required("symbol")], RequiredState::Ready);
    let symbol = found.unwrap()[0].symbol.clone().unwrap();
    let (responsibility, answer) = own.claim(&["code"], RequiredState::Ready);
    responsibility.notify_resolved(|_| Some(address(1))).unwrap();
    assert_foreign(responsibility.notify_emitted(vec![symbol.clone()]), "other");
    assert!(answer.error().to_string().contains("`other` belongs to another session"), "{}", answer.error());
    own.loaded("pinned", 2);
    let (_, pin) = own.main.pin("pinned").unwrap();
    assert_foreign(pin.add_dependency(&symbol), "other");
    assert!(other.default_tracker().unwrap().dependents().is_empty());
}

/// The session removed the dylib of its own that had the same id.
#[test]
fn a_session_does_not_remove_a_dylib_of_another_session() {
    let (own, session, other) = two();
    assert_foreign(own.session.remove_dylib(&other), "other");
    assert!(!other.is_defunct() && own.session.dylibs() == [own.main.clone()] && session.dylibs() == [other.clone()]);
    assert_eq!(other.lookup_address("symbol").unwrap().value(), 8);
}
