//! ORC's reproduced defects that this room could repeat, one test each, named after the symptom that must not show.

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

#[test]
fn a_symbol_claimed_mid_flight_does_not_survive_its_tracker() {
    let world = World::new();
    let tracker = world.tracker();
    let unit = Unit::exported(&["foo"], |mut r| {
        r.define_materializing(&[(Name::new("bar"), EXPORTED), (Name::new("auto"), weak())]).unwrap();
        finish(r, 1);
    });
    tracker.define(unit).unwrap();
    world.find("foo").unwrap();
    assert_eq!(world.main.symbol_count_of(tracker.key()), 3);
    tracker.remove().unwrap();
    for name in ["foo", "bar", "auto"] {
        assert_not_found(world.find(name));
    }
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn removing_the_tracker_of_an_overridden_weak_symbol_does_not_take_the_strong_one() {
    let world = World::new();
    let (weak_owner, strong_owner) = (world.tracker(), world.tracker());
    weak_owner.define(Unit::new(&[("foo", weak())], |_| panic!("was run"))).unwrap();
    strong_owner.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(world.main.symbol_count_of(weak_owner.key()), 0);

    weak_owner.remove().unwrap();

    assert_eq!(world.find("foo").unwrap(), 2);
    strong_owner.remove().unwrap();
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn a_query_on_a_dependant_does_not_hang_when_an_unqueried_dependency_is_removed() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    tracker.define(unit).unwrap();
    let foo = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    world.main.define(Unit::depending("baz", &["bar"], &world.books, 2)).unwrap();
    let baz = world.ask(&["baz"], RequiredState::Ready);
    assert_eq!(world.main.symbol_state("baz"), Some(SymbolState::Emitted));

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&foo.error()), ["bar", "foo"]);
    assert_eq!(failed_symbols(&baz.error()), ["baz"]);
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn a_redefined_symbol_is_not_made_ready_by_what_its_predecessor_waited_for() {
    let world = World::new();
    let (bar, held_bar) = Unit::held(&["bar"]);
    world.main.define(bar).unwrap();
    let tracker = world.tracker();
    tracker.define(Unit::depending("foo", &["bar"], &world.books, 1)).unwrap();
    let first = world.ask(&["foo"], RequiredState::Ready);
    let r_bar = held_bar.take();
    r_bar.notify_resolved(|_| Some(address(2))).unwrap();
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Emitted));
    tracker.remove().unwrap();
    assert_eq!(failed_symbols(&first.error()), ["foo"]);

    let (again, held_again) = Unit::held(&["foo"]);
    world.main.define(again).unwrap();
    let second = world.ask(&["foo"], RequiredState::Ready);
    r_bar.notify_emitted(Vec::new()).unwrap();

    assert!(second.is_pending());
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Materializing));
    finish(held_again.take(), 3);
    assert_eq!(second.addresses(), [3]);
}

#[test]
fn linking_against_a_ready_symbol_that_is_removed_meanwhile_is_an_error_not_a_dangling_address() {
    for redefined in [false, true] {
        let world = World::new();
        let target = world.loaded("target", 1);
        let (unit, held) = Unit::held(&["foo"]);
        world.main.define(unit).unwrap();
        let answer = world.ask(&["foo"], RequiredState::Ready);
        let r = held.take();
        let dependencies = world.references(&["target"]);
        target.remove().unwrap();
        let _second = redefined.then(|| world.loaded("target", 2));
        r.notify_resolved(|_| Some(address(3))).unwrap();

        let error = r.notify_emitted(dependencies).unwrap_err();

        assert!(matches!(error.kind(), ErrorKind::DependencyRemoved { .. }), "{error}");
        assert_eq!(failed_symbols(&answer.error()), ["foo"]);
        assert_not_found(world.find("foo"));
    }
}

#[test]
fn defining_under_a_defunct_tracker_is_refused_and_no_lookup_hangs() {
    let world = World::new();
    let (removed, merged) = (world.tracker(), world.tracker());
    removed.remove().unwrap();
    merged.transfer_to(&world.main.default_tracker().unwrap()).unwrap();
    for tracker in [removed, merged] {
        assert_tracker_defunct(tracker.define(Unit::never(&["foo"])));
        assert_tracker_defunct(tracker.define_absolute([(Name::new("foo"), address(1), EXPORTED)]));
    }
    assert_not_found(world.find("foo"));
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn a_removed_dylib_is_forgotten_by_the_link_orders_that_named_it() {
    let world = World::new();
    let library = world.session.create_dylib("library").unwrap();
    world.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]);
    world.session.remove_dylib(&library).unwrap();
    assert!(world.main.link_order().is_empty(), "though a handle to it is left");
    drop(library);
    assert!(world.main.link_order().is_empty());
    assert_eq!(world.main.search_order().len(), 1);
    let error =
        world.session.lookup(&world.main.search_order(), &[SymbolRequest::required("foo")], RequiredState::Ready);
    assert_not_found(error);
}

#[test]
fn twenty_thousand_names_defined_and_removed_leave_nothing_behind() {
    let world = World::new();
    let count = sized(20_000, 10);
    for i in 0..count {
        let tracker = world.tracker();
        let name = format!("unique{i}");
        tracker.define(Unit::recording(&[&name], &world.books, i)).unwrap();
        if i % 2 == 0 {
            world.find(&name).unwrap();
        }
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(world.main.symbol_flags(&name), None);
    }
    assert_eq!(world.main.symbol_count(), 0);
    assert_eq!(world.books.ledger.key_count(), 0);
    assert_eq!(world.books.take_given_back().len() as u64, count / 2);
}

#[test]
fn lazy_units_are_freed_with_their_tracker() {
    let world = World::new();
    let witness = std::sync::Arc::new(());
    for i in 0..100 {
        let held = witness.clone();
        let tracker = world.tracker();
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
    let world = World::new();
    let tracker = world.tracker();
    for _ in 0..3 {
        tracker.define(Unit::exported(&["foo"], |r| r.fail(Error::other("no")))).unwrap();
        assert_eq!(failed_symbols(&world.find("foo").unwrap_err()), ["foo"]);
        assert_not_found(world.find("foo"));
        assert_eq!(world.main.symbol_flags("foo"), None);
    }
    tracker.define(Unit::ready(&["foo"], 4)).unwrap();
    assert_eq!(world.find("foo").unwrap(), 4);
    assert_eq!(world.main.symbol_count_of(tracker.key()), 1);
}
