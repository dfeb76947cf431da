//! `ResourceTracker::define_materializing`: symbols whose materialisation is in progress from their definition.

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn begin(tracker: &ResourceTracker, symbols: &[(&str, SymbolFlags)]) -> Result<MaterializationResponsibility, Error> {
    tracker.define_materializing("given code", symbols.iter().map(|(name, flags)| (Name::new(name), *flags)))
}

fn claimed(responsibility: &MaterializationResponsibility) -> Vec<&str> {
    responsibility.symbols().iter().map(|claimed| claimed.name.as_str()).collect()
}

#[test]
fn lookups_wait_until_symbols_in_progress_are_emitted() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED), ("bar", EXPORTED)]).unwrap();
    assert_eq!((claimed(&r), r.unit_name()), (vec!["foo", "bar"], "given code"));
    let answer = fixture.look_up(&["bar"], RequiredState::Ready);
    assert!(answer.is_pending());
    assert_eq!(r.requested_symbols(), [Name::new("bar")]);
    finish(r, 7);
    assert_eq!((answer.addresses(), fixture.find("foo").unwrap()), (vec![7], 7));
    assert!(tracker.remove().unwrap().is_complete());
    assert_not_found(fixture.find("foo"));
}

#[test]
fn failed_symbols_report_their_cause_and_can_be_defined_again() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED)]).unwrap();
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    r.fail(Error::other("no disk"));
    assert_eq!(answer.error().root_cause().to_string(), "no disk");
    drop(begin(&tracker, &[("foo", EXPORTED)]).unwrap());
    assert_not_found(fixture.find("foo"));
    finish(begin(&tracker, &[("foo", EXPORTED)]).unwrap(), 3);
    assert_eq!(fixture.find("foo").unwrap(), 3);
}

#[test]
fn a_duplicate_is_refused_and_its_siblings_are_not_defined() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::never(&["taken"])).unwrap();
    let tracker = fixture.tracker();
    for symbols in [[("free", EXPORTED), ("taken", EXPORTED)], [("taken", EXPORTED), ("free", weak())]] {
        let error = begin(&tracker, &symbols).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
        assert!(error.to_string().contains("`taken`") && error.to_string().contains("given code"), "{error}");
        assert_eq!(fixture.main.symbol_count(), 1);
    }
}

#[test]
fn weak_symbols_whose_names_are_taken_are_not_claimed() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    fixture.main.define(Unit::ready(&["taken"], 1)).unwrap();
    fixture.find("taken").unwrap();
    let r = begin(&tracker, &[("taken", weak()), ("free", weak()), ("strong", EXPORTED)]).unwrap();
    assert_eq!(claimed(&r), ["free", "strong"]);
    finish(r, 2);
    assert_eq!((fixture.find("taken").unwrap(), fixture.find("free").unwrap()), (1, 2));
    assert!(claimed(&begin(&tracker, &[("taken", weak())]).unwrap()).is_empty());
}

#[test]
fn a_name_that_is_listed_twice_is_one_symbol() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED), ("foo", EXPORTED), ("bar", EXPORTED)]).unwrap();
    assert_eq!((claimed(&r), fixture.main.symbol_count()), (vec!["foo", "bar"], 2));
    finish(r, 5);
    assert_eq!((fixture.find("foo").unwrap(), fixture.find("bar").unwrap()), (5, 5));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn the_next_step_reports_that_the_tracker_was_removed() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let r = begin(&tracker, &[("foo", EXPORTED)]).unwrap();
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    assert!(tracker.remove().unwrap().is_complete());
    answer.error();
    assert_tracker_defunct(r.notify_resolved(|_| Some(address(1))));
    drop(r);
    assert_tracker_defunct(begin(&tracker, &[("foo", EXPORTED)]));
    assert_eq!(fixture.main.symbol_count(), 0);
}
