//! Symbols that are being materialised from the start, by who defines them (`ResourceTracker::define_materializing`).

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn begin(tracker: &ResourceTracker, symbols: &[(&str, SymbolFlags)]) -> Result<MaterializationResponsibility, Error> {
    tracker.define_materializing("code at hand", symbols.iter().map(|(name, flags)| (Name::new(name), *flags)))
}

fn owed(responsibility: &MaterializationResponsibility) -> Vec<&str> {
    responsibility.symbols().iter().map(|owed| owed.name.as_str()).collect()
}

#[test]
fn lookups_wait_for_them_and_find_them_once_they_are_emitted() {
    let world = World::new();
    let tracker = world.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED), ("bar", EXPORTED)]).unwrap();
    assert_eq!((owed(&r), r.unit_name()), (vec!["foo", "bar"], "code at hand"));
    let answer = world.ask(&["bar"], RequiredState::Ready);
    assert!(answer.is_pending());
    assert_eq!(r.requested_symbols(), [Name::new("bar")]);
    finish(r, 7);
    assert_eq!((answer.addresses(), world.find("foo").unwrap()), (vec![7], 7));
    assert!(tracker.remove().unwrap().is_complete());
    assert_not_found(world.find("foo"));
}

#[test]
fn they_fail_with_their_cause_and_may_be_defined_again() {
    let world = World::new();
    let tracker = world.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED)]).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    r.fail(Error::other("no disk"));
    assert_eq!(answer.error().root_cause().to_string(), "no disk");
    drop(begin(&tracker, &[("foo", EXPORTED)]).unwrap());
    assert_not_found(world.find("foo"));
    finish(begin(&tracker, &[("foo", EXPORTED)]).unwrap(), 3);
    assert_eq!(world.find("foo").unwrap(), 3);
}

#[test]
fn a_duplicate_is_refused_and_nothing_of_its_mates_is_left() {
    let world = World::new();
    world.main.define(Unit::never(&["taken"])).unwrap();
    let tracker = world.tracker();
    for symbols in [[("free", EXPORTED), ("taken", EXPORTED)], [("taken", EXPORTED), ("free", weak())]] {
        let error = begin(&tracker, &symbols).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
        assert!(error.to_string().contains("`taken`") && error.to_string().contains("code at hand"), "{error}");
        assert_eq!(world.main.symbol_count(), 1);
    }
}

#[test]
fn weak_ones_whose_names_are_taken_are_not_owed() {
    let world = World::new();
    let tracker = world.tracker();
    world.main.define(Unit::ready(&["taken"], 1)).unwrap();
    world.find("taken").unwrap();
    let r = begin(&tracker, &[("taken", weak()), ("free", weak()), ("strong", EXPORTED)]).unwrap();
    assert_eq!(owed(&r), ["free", "strong"]);
    finish(r, 2);
    assert_eq!((world.find("taken").unwrap(), world.find("free").unwrap()), (1, 2));
    assert!(owed(&begin(&tracker, &[("taken", weak())]).unwrap()).is_empty());
}

#[test]
fn a_name_that_is_given_twice_is_one_symbol() {
    let world = World::new();
    let tracker = world.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED), ("foo", EXPORTED), ("bar", EXPORTED)]).unwrap();
    assert_eq!((owed(&r), world.main.symbol_count()), (vec!["foo", "bar"], 2));
    finish(r, 5);
    assert_eq!((world.find("foo").unwrap(), world.find("bar").unwrap()), (5, 5));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn removal_of_their_tracker_is_told_to_the_one_at_work() {
    let world = World::new();
    let tracker = world.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED)]).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    assert!(tracker.remove().unwrap().is_complete());
    answer.error();
    assert_tracker_defunct(r.notify_resolved(|_| Some(address(1))));
    drop(r);
    assert_tracker_defunct(begin(&tracker, &[("foo", EXPORTED)]));
    assert_eq!(world.main.symbol_count(), 0);
}
