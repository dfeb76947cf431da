//! Model: a transfer of a tracker races with removal of the source or the destination, with the opposite transfer, with
//! a pin, and with a third thread that records a resource.
//!
//! Runs `src/session/pins/tracker_state.rs` (`merge`) and `src/session/removal/transfer.rs`. Exactly
//! one of a transfer and a removal of the same tracker succeeds. Its resources and pins are where the tracker went.
//!
//! Seeded bug: `transfer_opens_the_source_gate`.

#![cfg(loom)]

mod support;

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn remove_versus_transfer() {
    // Removed, transferred, the destination lives; counts before and after the destination is removed.
    let allowed = [(true, false, true, (1, 0), (1, 0)), (false, true, true, (0, 1), (1, 0))];
    explore("remove_versus_transfer", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let destination = fixture.main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let removed = tracker.remove().is_ok();
        let transferred = transferrer.join().unwrap();
        let (between, destination_is_live) = (fixture.manager.counts(), !destination.is_defunct());
        destination.remove().unwrap();
        (removed, transferred, destination_is_live, between, fixture.manager.counts())
    });
}

#[test]
fn transfer_versus_remove_of_the_destination() {
    // Transferred, the source lives, remaining symbols; then counts.
    let allowed = [(true, false, 0, (1, 0)), (false, true, 1, (0, 1))];
    explore("transfer_versus_remove_of_the_destination", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let remover = thread::spawn(move || destination.remove().unwrap().is_complete());
        let transferred = tracker.transfer_to(&into).is_ok();
        assert!(remover.join().unwrap());
        (transferred, !tracker.is_defunct(), fixture.main.symbol_count(), fixture.manager.counts())
    });
}

#[test]
fn transfer_versus_transfer_the_other_way() {
    // Exactly one succeeds. The remaining tracker has two symbols and one key with resources.
    let allowed = [([true, false], 2, 1), ([false, true], 2, 1)];
    explore("transfer_versus_transfer_the_other_way", None, 2, allowed, || {
        let fixture = Fixture::new();
        let (a, b) = (fixture.loaded("f", 1), fixture.loaded("g", 2));
        let (from, into) = (b.clone(), a.clone());
        let other = thread::spawn(move || from.transfer_to(&into).is_ok());
        let here = a.transfer_to(&b).is_ok();
        let there = other.join().unwrap();
        let remaining = if here { &b } else { &a };
        ([here, there], fixture.main.symbol_count_of(remaining.key()), fixture.manager.counts().1)
    });
}

#[test]
fn pin_versus_transfer() {
    // The pin holds the destination, whichever tracker it was made on. Nothing else does.
    let allowed = [((1, 0), false, true)];
    explore("pin_versus_transfer", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || tracker.transfer_to(&into).unwrap());
        let (_, pin) = fixture.main.pin("f").unwrap();
        transferrer.join().unwrap();
        let removal = destination.remove().unwrap();
        let (blockers, early) = (removal.blockers(), removal.is_complete());
        drop(pin);
        (blockers, early, removal.is_complete())
    });
}

#[test]
fn allocate_versus_remove_versus_transfer() {
    // Accepted, removed, transferred; counts before and after the destination is removed. Refused only if removed.
    let allowed = [
        (true, true, false, (1, 0), (1, 0)),
        (true, false, true, (0, 1), (1, 0)),
        (false, true, false, (0, 0), (0, 0)),
    ];
    explore("allocate_versus_remove_versus_transfer", Some(2), 20, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let destination = fixture.main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let remover = thread::spawn(move || tracker.remove().is_ok());
        let accepted = fixture.manager.record(&responsibility, 1);
        let transferred = transferrer.join().unwrap();
        let removed = remover.join().unwrap();
        let between = fixture.manager.counts();
        destination.remove().unwrap();
        (accepted, removed, transferred, between, fixture.manager.counts())
    });
}
