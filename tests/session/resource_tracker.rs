//! Removal and transfer before, during and after materialisation (ORC: ResourceTrackerTest).

use jittison::session::RequiredState;

use crate::support::*;

#[test]
fn removing_before_materialising_drops_the_unit_unrun() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    tracker.define(Unit::never(&["foo"]).logging(&fixture.log)).unwrap();
    assert_eq!(fixture.main.symbol_flags("foo"), Some(EXPORTED));

    let removal = tracker.remove().unwrap();

    assert!(removal.is_complete());
    assert!(tracker.is_defunct());
    assert_eq!(fixture.main.symbol_flags("foo"), None);
    assert_eq!(fixture.log.take(), ["drop unit of foo", "manager removes []"]);
    assert_not_found(fixture.find("foo"));
}

#[test]
fn removing_after_materialising_frees_the_resources_of_the_key() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    assert_eq!(fixture.manager.recorded_under(tracker.key()), [7]);

    assert!(tracker.remove().unwrap().is_complete());

    assert_eq!(fixture.log.take(), ["manager removes [7]"]);
    assert_eq!(fixture.manager.ledger.key_count(), 0);
    assert_eq!(fixture.main.symbol_count(), 0);
    assert_not_found(fixture.find("foo"));
}

#[test]
fn removing_while_materialising_fails_the_query_and_every_later_step() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let (responsibility, answer) = fixture.claim_under(&tracker, &["foo"], RequiredState::Ready);

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert_eq!(fixture.main.symbol_flags("foo"), None);
    assert_eq!(fixture.log.take(), ["manager removes []"]);
    assert_tracker_defunct(responsibility.with_resource_key(|_| panic!("the body must not run")));
    assert_tracker_defunct(responsibility.notify_resolved(|_| Some(address(1))));
    responsibility.fail(jittison::error::Error::other("too late"));
}

#[test]
fn clearing_a_dylib_frees_the_resources_of_two_units_under_one_key() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    fixture.main.define(Unit::recording(&["bar"], &fixture.manager, 2)).unwrap();
    fixture.find("foo").unwrap();
    fixture.find("bar").unwrap();
    assert_eq!(fixture.manager.recorded_under(fixture.main.default_tracker().unwrap().key()), [1, 2]);

    assert!(fixture.main.clear().unwrap().is_empty());

    assert_eq!(fixture.manager.take_freed(), [1, 2]);
    assert_eq!(fixture.manager.ledger.key_count(), 0);
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn transferring_before_materialising_records_under_the_destination() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.tracker(), fixture.tracker());
    foo.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    bar.define(Unit::recording(&["bar"], &fixture.manager, 2)).unwrap();

    bar.transfer_to(&foo).unwrap();

    assert_eq!(fixture.log.take(), ["manager transfers"]);
    assert!(bar.is_defunct() && !foo.is_defunct());
    assert_eq!((fixture.main.symbol_count_of(foo.key()), fixture.main.symbol_count_of(bar.key())), (2, 0));
    fixture.find("foo").unwrap();
    fixture.find("bar").unwrap();
    assert_eq!(fixture.manager.recorded_under(foo.key()), [1, 2]);
    assert_eq!(fixture.manager.ledger.key_count(), 1);
}

#[test]
fn transferring_after_materialising_merges_the_recorded_resources() {
    let fixture = Fixture::new();
    let foo = fixture.loaded("foo", 1);
    let bar = fixture.loaded("bar", 2);

    bar.transfer_to(&foo).unwrap();

    assert!(bar.is_defunct());
    assert_tracker_defunct(bar.remove());
    assert_eq!(fixture.manager.recorded_under(foo.key()), [1, 2]);
    assert_eq!(fixture.manager.recorded_under(bar.key()), [0; 0]);
    foo.remove().unwrap();
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
    assert_not_found(fixture.find("bar"));
}

#[test]
fn transferring_while_materialising_changes_the_key_that_the_work_sees() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.tracker(), fixture.tracker());
    let (responsibility, answer) = fixture.claim_under(&foo, &["foo"], RequiredState::Ready);
    let before = responsibility.with_resource_key(|key| {
        fixture.manager.ledger.record(key, 1);
        key
    });
    assert_eq!(before.unwrap(), foo.key());

    foo.transfer_to(&bar).unwrap();

    let after = responsibility.with_resource_key(|key| {
        fixture.manager.ledger.record(key, 2);
        key
    });
    assert_eq!(after.unwrap(), bar.key());
    assert_eq!(fixture.manager.recorded_under(bar.key()), [1, 2]);
    finish(responsibility, 0x10);
    assert_eq!(answer.addresses(), [0x10]);
}

#[test]
fn transferring_a_tracker_to_itself_changes_nothing() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    tracker.transfer_to(&tracker.clone()).unwrap();
    assert!(!tracker.is_defunct());
    assert_eq!(fixture.manager.recorded_under(tracker.key()), [1]);
    assert_eq!(fixture.log.take(), [""; 0]);
}

#[test]
fn transferring_to_or_from_a_defunct_tracker_moves_nothing() {
    let fixture = Fixture::new();
    let (live, dead) = (fixture.loaded("foo", 1), fixture.tracker());
    dead.remove().unwrap();
    assert_tracker_defunct(live.transfer_to(&dead));
    assert_tracker_defunct(dead.transfer_to(&live));
    assert_tracker_defunct(dead.transfer_to(&dead.clone()));
    assert!(!live.is_defunct());
    assert_eq!(fixture.manager.recorded_under(live.key()), [1]);
}

#[test]
fn transferring_to_another_dylibs_tracker_is_refused_by_name() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let (tracker, foreign) = (fixture.tracker(), other.create_tracker().unwrap());
    let error = tracker.transfer_to(&foreign).unwrap_err();
    assert!(matches!(error.kind(), jittison::error::ErrorKind::ForeignTracker { .. }), "{error}");
    assert!(error.to_string().contains("`other`") && error.to_string().contains("`main`"), "{error}");
    assert!(!tracker.is_defunct() && !foreign.is_defunct());
}

#[test]
fn a_chain_of_transfers_ends_at_the_last_destination() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.tracker(), fixture.tracker(), fixture.tracker());
    let held = define_held_under(&a, &["foo"]);
    fixture.look_up(&["foo"], RequiredState::Ready);
    a.transfer_to(&b).unwrap();
    b.transfer_to(&c).unwrap();
    let responsibility = held.take();
    assert_eq!(responsibility.with_resource_key(|key| key).unwrap(), c.key());
    assert_eq!(responsibility.tracker().key(), c.key());
    finish(responsibility, 1);
    c.remove().unwrap();
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn keys_are_never_reused() {
    let fixture = Fixture::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..sized(1_000, 50) {
        let tracker = fixture.tracker();
        assert!(seen.insert(tracker.key()), "{} was reused", tracker.key());
        tracker.remove().unwrap();
    }
}

#[test]
fn symbols_of_the_default_tracker_can_be_transferred_and_are_still_found() {
    // ORC: OrcCAPITest, ResourceTrackerTransfer.
    let fixture = Fixture::new();
    fixture.main.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    fixture.find("foo").unwrap();
    let (default, destination) = (fixture.main.default_tracker().unwrap(), fixture.tracker());
    default.transfer_to(&destination).unwrap();
    assert!(default.is_defunct());
    assert_eq!(fixture.find("foo").unwrap(), 1);
    fixture.main.define(Unit::recording(&["bar"], &fixture.manager, 2)).unwrap();
    fixture.find("bar").unwrap();
    destination.remove().unwrap();
    assert_eq!(fixture.manager.take_freed(), [1]);
    assert_not_found(fixture.find("foo"));
    assert_eq!(fixture.find("bar").unwrap(), 2, "a new default tracker owns it");
}
