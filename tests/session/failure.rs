//! Failure: which lookups it answers, which symbols stay in the table, how far it spreads (ORC: CoreAPIsTest).

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

#[test]
fn a_failed_lookup_names_the_symbols_and_keeps_the_root_cause() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::exported(&["foo", "bar"], |r| r.fail(Error::other("no disk")))).unwrap();
    let error = fixture.look_up(&["foo", "bar"], RequiredState::Ready).error();
    assert_eq!(failed_symbols(&error), ["bar", "foo"]);
    assert_eq!(error.root_cause().to_string(), "no disk");
    assert!(error.to_string().contains("`main`"), "{error}");
}

#[test]
fn a_failed_unit_takes_its_unqueried_siblings_with_it() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::exported(&["foo", "bar"], |r| r.fail(Error::other("no")))).unwrap();
    fixture.look_up(&["foo"], RequiredState::Ready).error();
    assert_not_found(fixture.find("bar"));
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn failing_after_resolving_fails_ready_lookups() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let ready = fixture.look_up(&["foo"], RequiredState::Ready);
    let resolved = fixture.look_up(&["foo"], RequiredState::Resolved);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    r.fail(Error::other("no"));
    assert_eq!(resolved.addresses(), [1]);
    assert_eq!(failed_symbols(&ready.error()), ["foo"]);
}

#[test]
fn a_query_over_one_good_and_one_failing_symbol_fails_once() {
    let fixture = Fixture::new();
    let (held_foo, held_bar) = (fixture.define_held(&["foo"]), fixture.define_held(&["bar"]));
    let answer = fixture.look_up(&["foo", "bar"], RequiredState::Ready);
    held_bar.take().fail(Error::other("no"));
    assert_eq!(failed_symbols(&answer.error()), ["bar"]);
    finish(held_foo.take(), 1);
    assert_eq!(fixture.find("foo").unwrap(), 1, "the other symbol becomes ready");
}

#[test]
fn a_blocking_lookup_of_two_failing_symbols_returns_the_first_failure() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let fail_both = move |r: MaterializationResponsibility| {
        r.fail(Error::other("no"));
        held.take().fail(Error::other("no either"));
    };
    fixture.main.define(Unit::exported(&["bar"], fail_both)).unwrap();
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    let error = fixture.main.lookup(&requests, RequiredState::Ready).unwrap_err();
    assert_eq!(failed_symbols(&error), ["bar"]);
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}

#[test]
fn a_failing_symbol_fails_only_its_own_query_if_nothing_depends_on_it() {
    let fixture = Fixture::new();
    let (held_foo, held_bar) = (fixture.define_held(&["foo"]), fixture.define_held(&["bar"]));
    let (foo, bar) = (fixture.look_up(&["foo"], RequiredState::Ready), fixture.look_up(&["bar"], RequiredState::Ready));
    held_bar.take().fail(Error::other("no"));
    assert_eq!(failed_symbols(&bar.error()), ["bar"]);
    assert!(foo.is_pending());
    held_foo.take().notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(failed_symbols(&foo.error()), ["foo"], "dropping the responsibility fails it");
}

#[test]
fn emitting_with_a_dependency_on_a_failed_symbol_is_refused() {
    let fixture = Fixture::new();
    let (held_foo, held_bar) = (fixture.define_held(&["foo"]), fixture.define_held(&["bar"]));
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let link = fixture.look_up(&["bar"], RequiredState::Resolved);
    let r_bar = held_bar.take();
    r_bar.notify_resolved(|_| Some(address(2))).unwrap();
    let bar_reference = link.results()[0].symbol.clone().unwrap();
    r_bar.fail(Error::other("no"));

    let r = held_foo.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    let error = r.notify_emitted(vec![bar_reference]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DependencyRemoved { .. }), "{error}");
    assert!(error.to_string().contains("`bar`") && error.to_string().contains("`foo`"), "{error}");
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn failing_a_symbol_fails_emitted_symbols_that_wait_for_it() {
    let fixture = Fixture::new();
    let held_bar = fixture.define_held(&["bar"]);
    fixture.main.define(Unit::depending("foo", &["bar"], &fixture.manager, 1)).unwrap();
    fixture.main.define(Unit::depending("baz", &["foo"], &fixture.manager, 2)).unwrap();
    let answers = ["foo", "bar", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    let r = held_bar.take();
    r.notify_resolved(|_| Some(address(3))).unwrap();
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Emitted));
    assert_eq!(fixture.main.symbol_state("baz"), Some(SymbolState::Emitted));

    r.fail(Error::other("no"));

    for answer in &answers {
        assert_eq!(answer.error().root_cause().to_string(), "no");
    }
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn a_dropped_responsibility_fails_its_symbols_and_names_its_unit() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::exported(&["foo", "bar"], drop)).unwrap();
    let error = fixture.look_up(&["foo"], RequiredState::Ready).error();
    let cause = error.root_cause();
    assert!(matches!(cause.kind(), ErrorKind::ResponsibilityDropped { .. }), "{cause}");
    assert!(cause.to_string().contains("unit of foo") && cause.to_string().contains("`bar`"), "{cause}");
}

#[test]
fn a_unit_without_an_address_for_a_promised_symbol_is_an_interface_mismatch() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Resolved);
    let r = held.take();
    let error = r.notify_resolved(|claimed| (claimed.name.as_str() == "foo").then(|| address(1))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InterfaceMismatch { .. }), "{error}");
    assert!(answer.is_pending(), "no symbol is resolved");
    r.fail(error);
    assert_eq!(failed_symbols(&answer.error()), ["bar", "foo"]);
}

#[test]
fn a_failed_side_effects_only_symbol_fails_its_lookup() {
    let fixture = Fixture::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    fixture.main.define(Unit::new(&[("init", flags)], |r| r.fail(Error::other("no")))).unwrap();
    assert_eq!(failed_symbols(&fixture.find("init").unwrap_err()), ["init"]);
    assert_not_found(fixture.find("init"));
}

#[test]
fn an_error_outlives_its_session_and_can_be_printed() {
    let error = {
        let fixture = Fixture::new();
        fixture.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no disk")))).unwrap();
        fixture.find("foo").unwrap_err()
    };
    assert!(error.to_string().contains("`foo`") && error.to_string().contains("no disk"), "{error}");
}

#[test]
fn a_unit_that_panics_fails_its_query_before_the_panic_leaves_the_lookup() {
    // Symptom: the answer stayed in the queue of the panicking thread.
    let fixture = Fixture::new();
    fixture.main.define(Unit::exported(&["foo", "bar"], |_r| panic!("unit"))).unwrap();
    let answer = Answer::default();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let order = [(fixture.main.clone(), Visibility::All)];
        let requests = [SymbolRequest::required("foo")];
        fixture.session.lookup_then(&order, &requests, RequiredState::Ready, answer.callback());
    }));
    assert!(panicked.is_err(), "the panic is passed on");
    assert_eq!(failed_symbols(&answer.error()), ["bar", "foo"]);
    assert_not_found(fixture.find("bar"));
}

#[test]
fn code_without_an_address_never_becomes_ready() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::exported(&["foo"], |r| drop(r.notify_emitted(vec![])))).unwrap();
    let error = fixture.find("foo").unwrap_err();
    assert!(
        matches!(error.root_cause().kind(), ErrorKind::InterfaceMismatch { symbol, .. } if symbol == "foo"),
        "{error}"
    );
    assert_not_found(fixture.find("foo"));
}

#[test]
fn code_without_an_address_is_refused_before_it_waits_for_other_code() {
    let fixture = Fixture::new();
    let (held_base, held) = (fixture.define_held(&["base"]), fixture.define_held(&["foo"]));
    let (of_base, of_foo) =
        (fixture.look_up(&["base"], RequiredState::Ready), fixture.look_up(&["foo"], RequiredState::Ready));
    let base = held_base.take();
    base.notify_resolved(|_| Some(address(1))).unwrap();

    let refused = held.take().notify_emitted(fixture.references(&["base"])).unwrap_err();

    assert!(matches!(refused.kind(), ErrorKind::InterfaceMismatch { symbol, .. } if symbol == "foo"), "{refused}");
    assert_eq!(failed_symbols(&of_foo.error()), ["foo"]);
    base.notify_emitted(Vec::new()).unwrap();
    assert_eq!(of_base.addresses(), [1]);
    assert_not_found(fixture.find("foo"));
}
