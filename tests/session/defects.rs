//! One test for each reproduced defect of ORC that the session could repeat. A name says what must hold instead of the
//! symptom.

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

#[test]
fn a_symbol_claimed_mid_flight_does_not_survive_its_tracker() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let unit = Unit::exported(&["foo"], |mut r| {
        r.define_materializing(&[(Name::new("bar"), EXPORTED), (Name::new("auto"), weak())]).unwrap();
        finish(r, 1);
    });
    tracker.define(unit).unwrap();
    fixture.find("foo").unwrap();
    assert_eq!(fixture.main.symbol_count_of(tracker.key()), 3);
    tracker.remove().unwrap();
    for name in ["foo", "bar", "auto"] {
        assert_not_found(fixture.find(name));
    }
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn removing_the_tracker_of_an_overridden_weak_symbol_leaves_the_strong_one() {
    let fixture = Fixture::new();
    let (weak_owner, strong_owner) = (fixture.tracker(), fixture.tracker());
    weak_owner.define(Unit::new(&[("foo", weak())], |_| panic!("was run"))).unwrap();
    strong_owner.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(fixture.main.symbol_count_of(weak_owner.key()), 0);

    weak_owner.remove().unwrap();

    assert_eq!(fixture.find("foo").unwrap(), 2);
    strong_owner.remove().unwrap();
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn a_query_on_a_dependant_does_not_hang_when_an_unqueried_dependency_is_removed() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo", "bar"]);
    let foo = fixture.look_up(&["foo"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    fixture.main.define(Unit::depending("baz", &["bar"], &fixture.manager, 2)).unwrap();
    let baz = fixture.look_up(&["baz"], RequiredState::Ready);
    assert_eq!(fixture.main.symbol_state("baz"), Some(SymbolState::Emitted));

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&foo.error()), ["bar", "foo"]);
    assert_eq!(failed_symbols(&baz.error()), ["baz"]);
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn a_redefined_symbol_does_not_become_ready_with_its_predecessors_dependency() {
    let fixture = Fixture::new();
    let held_bar = fixture.define_held(&["bar"]);
    let tracker = fixture.tracker();
    tracker.define(Unit::depending("foo", &["bar"], &fixture.manager, 1)).unwrap();
    let first = fixture.look_up(&["foo"], RequiredState::Ready);
    let r_bar = held_bar.take();
    r_bar.notify_resolved(|_| Some(address(2))).unwrap();
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Emitted));
    tracker.remove().unwrap();
    assert_eq!(failed_symbols(&first.error()), ["foo"]);

    let held_again = fixture.define_held(&["foo"]);
    let second = fixture.look_up(&["foo"], RequiredState::Ready);
    r_bar.notify_emitted(Vec::new()).unwrap();

    assert!(second.is_pending());
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Materializing));
    finish(held_again.take(), 3);
    assert_eq!(second.addresses(), [3]);
}

#[test]
fn linking_against_a_symbol_removed_meanwhile_is_an_error() {
    for redefined in [false, true] {
        let fixture = Fixture::new();
        let target = fixture.loaded("target", 1);
        let (r, answer) = fixture.claim(&["foo"], RequiredState::Ready);
        let dependencies = fixture.references(&["target"]);
        target.remove().unwrap();
        let _second = redefined.then(|| fixture.loaded("target", 2));
        r.notify_resolved(|_| Some(address(3))).unwrap();

        let error = r.notify_emitted(dependencies).unwrap_err();

        assert!(matches!(error.kind(), ErrorKind::DependencyRemoved { .. }), "{error}");
        assert_eq!(failed_symbols(&answer.error()), ["foo"]);
        assert_not_found(fixture.find("foo"));
    }
}

#[test]
fn defining_under_a_defunct_tracker_is_refused_and_no_lookup_hangs() {
    let fixture = Fixture::new();
    let (removed, merged) = (fixture.tracker(), fixture.tracker());
    removed.remove().unwrap();
    merged.transfer_to(&fixture.main.default_tracker().unwrap()).unwrap();
    for tracker in [removed, merged] {
        assert_tracker_defunct(tracker.define(Unit::never(&["foo"])));
        assert_tracker_defunct(tracker.define_absolute([(Name::new("foo"), address(1), EXPORTED)]));
    }
    assert_not_found(fixture.find("foo"));
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn a_removed_dylib_leaves_the_link_orders_that_contain_it() {
    let fixture = Fixture::new();
    let library = fixture.session.create_dylib("library").unwrap();
    fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    fixture.session.remove_dylib(&library).unwrap();
    assert!(fixture.main.link_order().is_empty(), "although a handle to it exists");
    drop(library);
    assert!(fixture.main.link_order().is_empty());
    assert_eq!(fixture.main.search_order().len(), 1);
    let error =
        fixture.session.lookup(&fixture.main.search_order(), &[SymbolRequest::required("foo")], RequiredState::Ready);
    assert_not_found(error);
}

#[test]
fn twenty_thousand_names_defined_and_removed_leave_nothing_behind() {
    let fixture = Fixture::new();
    let count = sized(20_000, 10);
    for i in 0..count {
        let tracker = fixture.tracker();
        let name = format!("unique{i}");
        tracker.define(Unit::recording(&[&name], &fixture.manager, i)).unwrap();
        if i % 2 == 0 {
            fixture.find(&name).unwrap();
        }
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(fixture.main.symbol_flags(&name), None);
    }
    assert_eq!(fixture.main.symbol_count(), 0);
    assert_eq!(fixture.manager.ledger.key_count(), 0);
    assert_eq!(fixture.manager.take_freed().len() as u64, count / 2);
}

#[test]
fn lazy_units_are_freed_with_their_tracker() {
    let fixture = Fixture::new();
    let witness = std::sync::Arc::new(());
    for i in 0..100 {
        let held = witness.clone();
        let tracker = fixture.tracker();
        tracker
            .define(Unit::exported(&[&format!("n{i}")], move |r| {
                let _held = held;
                finish(r, 1);
            }))
            .unwrap();
        tracker.remove().unwrap();
    }
    assert_eq!(std::sync::Arc::strong_count(&witness), 1);
}

#[test]
fn a_failed_symbol_is_gone_and_may_be_defined_again_under_the_same_tracker() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    for _ in 0..3 {
        tracker.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
        assert_eq!(failed_symbols(&fixture.find("foo").unwrap_err()), ["foo"]);
        assert_not_found(fixture.find("foo"));
        assert_eq!(fixture.main.symbol_flags("foo"), None);
    }
    tracker.define(Unit::ready(&["foo"], 4)).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 4);
    assert_eq!(fixture.main.symbol_count_of(tracker.key()), 1);
}
