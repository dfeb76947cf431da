//! Failure: who is told, what is left in the table, how far it spreads (ORC: CoreAPIsTest).

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

#[test]
fn a_failed_lookup_names_the_symbols_and_keeps_the_root_cause() {
    let world = World::new();
    world.main.define(Unit::exported(&["foo", "bar"], |r| r.fail(Error::other("no disk")))).unwrap();
    let error = world.ask(&["foo", "bar"], RequiredState::Ready).error();
    assert_eq!(failed_symbols(&error), ["bar", "foo"]);
    assert_eq!(error.root_cause().to_string(), "no disk");
    assert!(error.to_string().contains("`main`"), "{error}");
}

#[test]
fn a_failed_unit_takes_its_unqueried_siblings_with_it() {
    let world = World::new();
    world.main.define(Unit::exported(&["foo", "bar"], |r| r.fail(Error::other("no")))).unwrap();
    world.ask(&["foo"], RequiredState::Ready).error();
    assert_not_found(world.find("bar"));
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn failing_after_resolving_still_fails_whoever_wants_it_ready() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let ready = world.ask(&["foo"], RequiredState::Ready);
    let resolved = world.ask(&["foo"], RequiredState::Resolved);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    r.fail(Error::other("no"));
    assert_eq!(resolved.addresses(), [1]);
    assert_eq!(failed_symbols(&ready.error()), ["foo"]);
}

#[test]
fn a_query_over_one_good_and_one_failing_symbol_fails_once() {
    let world = World::new();
    let (foo, held_foo) = Unit::held(&["foo"]);
    let (bar, held_bar) = Unit::held(&["bar"]);
    world.main.define(foo).unwrap();
    world.main.define(bar).unwrap();
    let answer = world.ask(&["foo", "bar"], RequiredState::Ready);
    held_bar.take().fail(Error::other("no"));
    assert_eq!(failed_symbols(&answer.error()), ["bar"]);
    finish(held_foo.take(), 1);
    assert_eq!(world.find("foo").unwrap(), 1, "the good one is good");
}

#[test]
fn a_thread_that_waits_for_two_symbols_is_told_of_the_first_failure_though_the_other_fails_too() {
    let world = World::new();
    let (foo, held) = Unit::held(&["foo"]);
    world.main.define(foo).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let fail_both = move |r: MaterializationResponsibility| {
        r.fail(Error::other("no"));
        held.take().fail(Error::other("no either"));
    };
    world.main.define(Unit::exported(&["bar"], fail_both)).unwrap();
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    let error = world.main.lookup(&requests, RequiredState::Ready).unwrap_err();
    assert_eq!(failed_symbols(&error), ["bar"]);
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}

#[test]
fn a_failing_dependency_fails_only_its_own_query_before_anyone_depends_on_it() {
    let world = World::new();
    let (foo, held_foo) = Unit::held(&["foo"]);
    let (bar, held_bar) = Unit::held(&["bar"]);
    world.main.define(foo).unwrap();
    world.main.define(bar).unwrap();
    let (foo, bar) = (world.ask(&["foo"], RequiredState::Ready), world.ask(&["bar"], RequiredState::Ready));
    held_bar.take().fail(Error::other("no"));
    assert_eq!(failed_symbols(&bar.error()), ["bar"]);
    assert!(foo.is_pending());
    held_foo.take().notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(failed_symbols(&foo.error()), ["foo"], "dropping the responsibility fails it");
}

#[test]
fn emitting_with_a_dependency_on_a_failed_symbol_is_refused() {
    let world = World::new();
    let (foo, held_foo) = Unit::held(&["foo"]);
    let (bar, held_bar) = Unit::held(&["bar"]);
    world.main.define(foo).unwrap();
    world.main.define(bar).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let link = world.ask(&["bar"], RequiredState::Resolved);
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
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn failing_a_symbol_fails_the_emitted_ones_that_wait_for_it() {
    let world = World::new();
    let (bar, held_bar) = Unit::held(&["bar"]);
    world.main.define(bar).unwrap();
    world.main.define(Unit::depending("foo", &["bar"], &world.books, 1)).unwrap();
    world.main.define(Unit::depending("baz", &["foo"], &world.books, 2)).unwrap();
    let answers = ["foo", "bar", "baz"].map(|name| world.ask(&[name], RequiredState::Ready));
    let r = held_bar.take();
    r.notify_resolved(|_| Some(address(3))).unwrap();
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Emitted));
    assert_eq!(world.main.symbol_state("baz"), Some(SymbolState::Emitted));

    r.fail(Error::other("no"));

    for answer in &answers {
        assert_eq!(answer.error().root_cause().to_string(), "no");
    }
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn a_dropped_responsibility_fails_what_it_owes_and_says_who_dropped_it() {
    let world = World::new();
    world.main.define(Unit::exported(&["foo", "bar"], drop)).unwrap();
    let error = world.ask(&["foo"], RequiredState::Ready).error();
    let cause = error.root_cause();
    assert!(matches!(cause.kind(), ErrorKind::ResponsibilityDropped { .. }), "{cause}");
    assert!(cause.to_string().contains("unit of foo") && cause.to_string().contains("`bar`"), "{cause}");
}

#[test]
fn a_unit_that_does_not_know_a_promised_symbol_is_an_interface_mismatch() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Resolved);
    let r = held.take();
    let error = r.notify_resolved(|owed| (owed.name.as_str() == "foo").then(|| address(1))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InterfaceMismatch { .. }), "{error}");
    assert!(answer.is_pending(), "nothing was resolved");
    r.fail(error);
    assert_eq!(failed_symbols(&answer.error()), ["bar", "foo"]);
}

#[test]
fn a_failed_side_effects_only_symbol_fails_its_lookup() {
    let world = World::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    world.main.define(Unit::new(&[("init", flags)], |r| r.fail(Error::other("no")))).unwrap();
    assert_eq!(failed_symbols(&world.find("init").unwrap_err()), ["init"]);
    assert_not_found(world.find("init"));
}

#[test]
fn an_error_outlives_its_session_and_can_be_printed() {
    let error = {
        let world = World::new();
        world.main.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no disk")))).unwrap();
        world.find("foo").unwrap_err()
    };
    assert!(error.to_string().contains("`foo`") && error.to_string().contains("no disk"), "{error}");
}

#[test]
fn a_unit_that_panics_fails_its_query_before_the_panic_leaves_the_lookup() {
    // The answer used to stay in the panicking thread's queue, where nobody fetched it.
    let world = World::new();
    world.main.define(Unit::exported(&["foo", "bar"], |_r| panic!("unit"))).unwrap();
    let answer = Answer::default();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let order = [(world.main.clone(), Visibility::All)];
        let requests = [SymbolRequest::required("foo")];
        world.session.lookup_then(&order, &requests, RequiredState::Ready, answer.callback());
    }));
    assert!(panicked.is_err(), "the panic is passed on");
    assert_eq!(failed_symbols(&answer.error()), ["bar", "foo"]);
    assert_not_found(world.find("bar"));
}

#[test]
fn code_without_an_address_never_becomes_ready() {
    let world = World::new();
    world.main.define(Unit::exported(&["foo"], |r| drop(r.notify_emitted(vec![])))).unwrap();
    let error = world.find("foo").unwrap_err();
    assert!(
        matches!(error.root_cause().kind(), ErrorKind::InterfaceMismatch { symbol, .. } if symbol == "foo"),
        "{error}"
    );
    assert_not_found(world.find("foo"));
}

#[test]
fn code_without_an_address_is_refused_before_it_waits_for_other_code() {
    let world = World::new();
    let (base, held_base) = Unit::held(&["base"]);
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(base).unwrap();
    world.main.define(unit).unwrap();
    let (of_base, of_foo) = (world.ask(&["base"], RequiredState::Ready), world.ask(&["foo"], RequiredState::Ready));
    let base = held_base.take();
    base.notify_resolved(|_| Some(address(1))).unwrap();

    let refused = held.take().notify_emitted(world.references(&["base"])).unwrap_err();

    assert!(matches!(refused.kind(), ErrorKind::InterfaceMismatch { symbol, .. } if symbol == "foo"), "{refused}");
    assert_eq!(failed_symbols(&of_foo.error()), ["foo"]);
    base.notify_emitted(Vec::new()).unwrap();
    assert_eq!(of_base.addresses(), [1]);
    assert_not_found(world.find("foo"));
}
