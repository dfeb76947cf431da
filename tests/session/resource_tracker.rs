//! ORC's ResourceTrackerTest: what removing and transferring do before, after and while a unit is materialised.

use jittison::session::RequiredState;

use crate::support::*;

#[test]
fn removing_before_materialising_drops_the_unit_unrun() {
    let world = World::new();
    let tracker = world.tracker();
    tracker.define(Unit::never(&["foo"]).logging(&world.log)).unwrap();
    assert_eq!(world.main.symbol_flags("foo"), Some(EXPORTED));

    let removal = tracker.remove().unwrap();

    assert!(removal.is_complete());
    assert!(tracker.is_defunct());
    assert_eq!(world.main.symbol_flags("foo"), None);
    assert_eq!(world.log.take(), ["drop unit of foo", "books removes []"]);
    assert_not_found(world.find("foo"));
}

#[test]
fn removing_after_materialising_gives_back_what_the_key_recorded() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    assert_eq!(world.books.under(tracker.key()), [7]);

    assert!(tracker.remove().unwrap().is_complete());

    assert_eq!(world.log.take(), ["books removes [7]"]);
    assert_eq!(world.books.ledger.key_count(), 0);
    assert_eq!(world.main.symbol_count(), 0);
    assert_not_found(world.find("foo"));
}

#[test]
fn removing_while_materialising_fails_the_query_and_every_later_step() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let responsibility = held.take();

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert_eq!(world.main.symbol_flags("foo"), None);
    assert_eq!(world.log.take(), ["books removes []"]);
    assert_tracker_defunct(responsibility.with_resource_key(|_| panic!("the body must not run")));
    assert_tracker_defunct(responsibility.notify_resolved(|_| Some(address(1))));
    responsibility.fail(jittison::error::Error::other("too late"));
}

#[test]
fn clearing_a_dylib_gives_back_what_two_units_recorded_under_one_key() {
    let world = World::new();
    world.main.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    world.main.define(Unit::recording(&["bar"], &world.books, 2)).unwrap();
    world.find("foo").unwrap();
    world.find("bar").unwrap();
    assert_eq!(world.books.under(world.main.default_tracker().unwrap().key()), [1, 2]);

    assert!(world.main.clear().unwrap().is_empty());

    assert_eq!(world.books.take_given_back(), [1, 2]);
    assert_eq!(world.books.ledger.key_count(), 0);
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn transferring_before_materialising_records_under_the_destination() {
    let world = World::new();
    let (foo, bar) = (world.tracker(), world.tracker());
    foo.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    bar.define(Unit::recording(&["bar"], &world.books, 2)).unwrap();

    bar.transfer_to(&foo).unwrap();

    assert_eq!(world.log.take(), ["books transfers"]);
    assert!(bar.is_defunct() && !foo.is_defunct());
    assert_eq!((world.main.symbol_count_of(foo.key()), world.main.symbol_count_of(bar.key())), (2, 0));
    world.find("foo").unwrap();
    world.find("bar").unwrap();
    assert_eq!(world.books.under(foo.key()), [1, 2]);
    assert_eq!(world.books.ledger.key_count(), 1);
}

#[test]
fn transferring_after_materialising_merges_what_was_recorded() {
    let world = World::new();
    let foo = world.loaded("foo", 1);
    let bar = world.loaded("bar", 2);

    bar.transfer_to(&foo).unwrap();

    assert!(bar.is_defunct());
    assert_tracker_defunct(bar.remove());
    assert_eq!(world.books.under(foo.key()), [1, 2]);
    assert_eq!(world.books.under(bar.key()), [0; 0]);
    foo.remove().unwrap();
    assert_eq!(world.books.take_given_back(), [1, 2]);
    assert_not_found(world.find("bar"));
}

#[test]
fn transferring_while_materialising_changes_the_key_that_the_work_sees() {
    let world = World::new();
    let (foo, bar) = (world.tracker(), world.tracker());
    let (unit, held) = Unit::held(&["foo"]);
    foo.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let responsibility = held.take();
    let before = responsibility.with_resource_key(|key| {
        world.books.ledger.record(key, 1);
        key
    });
    assert_eq!(before.unwrap(), foo.key());

    foo.transfer_to(&bar).unwrap();

    let after = responsibility.with_resource_key(|key| {
        world.books.ledger.record(key, 2);
        key
    });
    assert_eq!(after.unwrap(), bar.key());
    assert_eq!(world.books.under(bar.key()), [1, 2]);
    finish(responsibility, 0x10);
    assert_eq!(answer.addresses(), [0x10]);
}

#[test]
fn transferring_a_tracker_to_itself_changes_nothing() {
    let world = World::new();
    let tracker = world.loaded("foo", 1);
    tracker.transfer_to(&tracker.clone()).unwrap();
    assert!(!tracker.is_defunct());
    assert_eq!(world.books.under(tracker.key()), [1]);
    assert_eq!(world.log.take(), [""; 0]);
}

#[test]
fn transferring_to_or_from_a_defunct_tracker_moves_nothing() {
    let world = World::new();
    let (live, dead) = (world.loaded("foo", 1), world.tracker());
    dead.remove().unwrap();
    assert_tracker_defunct(live.transfer_to(&dead));
    assert_tracker_defunct(dead.transfer_to(&live));
    assert_tracker_defunct(dead.transfer_to(&dead.clone()));
    assert!(!live.is_defunct());
    assert_eq!(world.books.under(live.key()), [1]);
}

#[test]
fn transferring_to_another_dylibs_tracker_is_refused_by_name() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let (tracker, foreign) = (world.tracker(), other.create_tracker().unwrap());
    let error = tracker.transfer_to(&foreign).unwrap_err();
    assert!(matches!(error.kind(), jittison::error::ErrorKind::ForeignTracker { .. }), "{error}");
    assert!(error.to_string().contains("`other`") && error.to_string().contains("`main`"), "{error}");
    assert!(!tracker.is_defunct() && !foreign.is_defunct());
}

#[test]
fn a_chain_of_transfers_ends_at_the_last_destination() {
    let world = World::new();
    let (a, b, c) = (world.tracker(), world.tracker(), world.tracker());
    let (unit, held) = Unit::held(&["foo"]);
    a.define(unit).unwrap();
    world.ask(&["foo"], RequiredState::Ready);
    a.transfer_to(&b).unwrap();
    b.transfer_to(&c).unwrap();
    let responsibility = held.take();
    assert_eq!(responsibility.with_resource_key(|key| key).unwrap(), c.key());
    assert_eq!(responsibility.tracker().key(), c.key());
    finish(responsibility, 1);
    c.remove().unwrap();
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn keys_are_never_used_twice() {
    let world = World::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..sized(1_000, 50) {
        let tracker = world.tracker();
        assert!(seen.insert(tracker.key()), "{} came back", tracker.key());
        tracker.remove().unwrap();
    }
}

#[test]
fn what_the_default_tracker_owns_can_be_given_to_another_and_is_still_found() {
    // ORC: OrcCAPITest, ResourceTrackerTransfer.
    let world = World::new();
    world.main.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    world.find("foo").unwrap();
    let (default, heir) = (world.main.default_tracker().unwrap(), world.tracker());
    default.transfer_to(&heir).unwrap();
    assert!(default.is_defunct());
    assert_eq!(world.find("foo").unwrap(), 1);
    world.main.define(Unit::recording(&["bar"], &world.books, 2)).unwrap();
    world.find("bar").unwrap();
    heir.remove().unwrap();
    assert_eq!(world.books.take_given_back(), [1]);
    assert_not_found(world.find("foo"));
    assert_eq!(world.find("bar").unwrap(), 2, "there is a new default tracker");
}
