//! Model: a transfer of a tracker races with removal of the source or the destination, with the opposite transfer, with
//! a pin, and with a third thread that records a resource.
//!
//! Runs `src/session/pins/tracker_state.rs` (`merge`), `src/session/removal/transfer.rs`, `src/session/removal/remove.rs` and
//! `src/session/symbols/symbol_table/unfinished.rs`. Exactly one of a transfer and a removal of the same tracker succeeds. Its
//! resources and pins are where the tracker went. A cascade follows a dependant that is transferred. Symbols that a transfer moves
//! one by one go where their new owner goes.
//!
//! Seeded bugs: `transfer_opens_the_source_gate`, `removal_skips_symbols_of_a_transfer`, `transfer_leaves_an_earlier_one_behind`.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

/// A tracker with two symbols. A transfer moves them one by one.
fn with_two_symbols(fixture: &Fixture) -> ResourceTracker {
    let tracker = fixture.main.create_tracker().unwrap();
    let symbols = ["f", "g"].map(|name| (Name::new(name), ExecutorAddr::new(1), SymbolFlags::EXPORTED));
    tracker.define_absolute(symbols).unwrap();
    tracker
}

#[test]
fn transfer_symbol_by_symbol_versus_remove_of_the_destination() {
    // Transferred; the symbols that are left.
    explore("transfer_symbol_by_symbol_versus_remove_of_the_destination", Some(3), 2, [(true, 0), (false, 2)], || {
        let fixture = Fixture::new();
        let tracker = with_two_symbols(&fixture);
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let remover = thread::spawn(move || destination.remove().unwrap().is_complete());
        let transferred = tracker.transfer_to(&into).is_ok();
        assert!(remover.join().unwrap());
        (transferred, fixture.main.symbol_count())
    });
}

#[test]
fn transfer_symbol_by_symbol_versus_transfer_of_the_destination() {
    // Whether the first transfer was made before the second; the symbols of the last tracker.
    explore(
        "transfer_symbol_by_symbol_versus_transfer_of_the_destination",
        Some(3),
        2,
        [(true, 2), (false, 0)],
        || {
            let fixture = Fixture::new();
            let tracker = with_two_symbols(&fixture);
            let [second, last] = [(); 2].map(|()| fixture.main.create_tracker().unwrap());
            let (into, to_last) = (second.clone(), last.clone());
            let other = thread::spawn(move || second.transfer_to(&to_last).unwrap());
            let is_first = tracker.transfer_to(&into).is_ok();
            other.join().unwrap();
            (is_first, fixture.main.symbol_count_of(last.key()))
        },
    );
}

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

/// Removes a tracker while another thread transfers it. Returns whether it was removed, whether it was transferred, and the
/// counts before and after the destination is removed. If the tracker was removed, the removal is complete.
fn race_with_transfer(
    remove: impl FnOnce(&ResourceTracker) -> jittison::error::Result<Removal>,
) -> (bool, bool, (usize, usize), (usize, usize)) {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("f", 1);
    let destination = fixture.main.create_tracker().unwrap();
    let (source, into) = (tracker.clone(), destination.clone());
    let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
    let is_complete = remove(&tracker).map(|removal| removal.is_complete());
    let transferred = transferrer.join().unwrap();
    let between = fixture.manager.counts();
    destination.remove().unwrap();
    assert_ne!(is_complete.as_ref().ok(), Some(&false), "the ticket of a tracker that was not removed");
    (is_complete.is_ok(), transferred, between, fixture.manager.counts())
}

const REMOVED_OR_TRANSFERRED: [(bool, bool, (usize, usize), (usize, usize)); 2] =
    [(true, false, (1, 0), (1, 0)), (false, true, (0, 1), (1, 0))];

#[test]
fn remove_all_versus_transfer() {
    explore("remove_all_versus_transfer", None, 2, REMOVED_OR_TRANSFERRED, || {
        race_with_transfer(|tracker| ResourceTracker::remove_all([tracker]).map(|removals| removals[0].clone()))
    });
}

#[test]
fn forced_removal_versus_transfer() {
    explore("forced_removal_versus_transfer", None, 2, REMOVED_OR_TRANSFERRED, || race_with_transfer(remove_now));
}

#[test]
fn cascade_versus_transfer_of_a_dependant() {
    // Counts after the cascade: the dependant is removed before its transfer, or with the destination.
    explore("cascade_versus_transfer_of_a_dependant", None, 2, [(true, (2, 0)), (false, (2, 0))], || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let dependant = fixture.main.create_tracker().unwrap();
        let (manager, reference) = (fixture.manager.clone(), fixture.reference("base"));
        let emit = move |r: MaterializationResponsibility| {
            assert!(manager.record(&r, 2));
            resolve(&r).unwrap();
            r.notify_emitted(vec![reference]).unwrap();
        };
        dependant.define(Unit::new("user", emit)).unwrap();
        assert_eq!(find(&fixture.main, "user"), "ready");
        let destination = fixture.main.create_tracker().unwrap();
        let (source, into) = (dependant.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let removal = base.remove_cascade().unwrap();
        let transferred = transferrer.join().unwrap();
        assert!(removal.is_complete(), "a dependant is left");
        (transferred, fixture.manager.counts())
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
