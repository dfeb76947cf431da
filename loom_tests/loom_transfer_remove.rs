//! Every interleaving of transferring a tracker with removing it, with removing its destination, with the transfer the
//! other way round, with pinning, and with recording by a third thread.
//!
//! Checks `src/session/pins/tracker_state.rs` (`merge`) and `src/session/core/resource_tracker.rs` (`transfer`): exactly one of a
//! transfer and a removal moves a tracker; what was recorded and what was pinned is where the tracker went.

#![cfg(loom)]

mod support;

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn remove_versus_transfer() {
    // Removed, transferred, the heir lives; books before and after the heir is removed.
    let allowed = [(true, false, true, (1, 0), (1, 0)), (false, true, true, (0, 1), (1, 0))];
    explore("remove_versus_transfer", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let destination = scene.main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let removed = tracker.remove().is_ok();
        let transferred = transferrer.join().unwrap();
        let (between, heir_is_live) = (scene.bank.books(), !destination.is_defunct());
        destination.remove().unwrap();
        (removed, transferred, heir_is_live, between, scene.bank.books())
    });
}

#[test]
fn transfer_versus_remove_of_the_destination() {
    // Transferred, the source lives, symbols left; then books.
    let allowed = [(true, false, 0, (1, 0)), (false, true, 1, (0, 1))];
    explore("transfer_versus_remove_of_the_destination", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let destination = scene.main.create_tracker().unwrap();
        let into = destination.clone();
        let remover = thread::spawn(move || destination.remove().unwrap().is_complete());
        let transferred = tracker.transfer_to(&into).is_ok();
        assert!(remover.join().unwrap());
        (transferred, !tracker.is_defunct(), scene.main.symbol_count(), scene.bank.books())
    });
}

#[test]
fn transfer_versus_transfer_the_other_way() {
    // Exactly one succeeds; two symbols and two resources under the one that is left.
    let allowed = [([true, false], 2, 1), ([false, true], 2, 1)];
    explore("transfer_versus_transfer_the_other_way", None, 2, allowed, || {
        let scene = Scene::new();
        let (a, b) = (scene.loaded("f", 1), scene.loaded("g", 2));
        let (from, into) = (b.clone(), a.clone());
        let other = thread::spawn(move || from.transfer_to(&into).is_ok());
        let here = a.transfer_to(&b).is_ok();
        let there = other.join().unwrap();
        let left = if here { &b } else { &a };
        ([here, there], scene.main.symbol_count_of(left.key()), scene.bank.books().1)
    });
}

#[test]
fn pin_versus_transfer() {
    // The pin holds the destination, whichever tracker it was made on, and nothing else does.
    let allowed = [((1, 0), false, true)];
    explore("pin_versus_transfer", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let destination = scene.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || tracker.transfer_to(&into).unwrap());
        let (_, pin) = scene.main.pin("f").unwrap();
        transferrer.join().unwrap();
        let removal = destination.remove().unwrap();
        let (blockers, early) = (removal.blockers(), removal.is_complete());
        drop(pin);
        (blockers, early, removal.is_complete())
    });
}

#[test]
fn allocate_versus_remove_versus_transfer() {
    // Accepted, removed, transferred; books before and after the destination is removed. Refused only if removed.
    let allowed = [
        (true, true, false, (1, 0), (1, 0)),
        (true, false, true, (0, 1), (1, 0)),
        (false, true, false, (0, 0), (0, 0)),
    ];
    explore("allocate_versus_remove_versus_transfer", Some(2), 20, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let destination = scene.main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let remover = thread::spawn(move || tracker.remove().is_ok());
        let accepted = scene.bank.record(&responsibility, 1);
        let transferred = transferrer.join().unwrap();
        let removed = remover.join().unwrap();
        let between = scene.bank.books();
        destination.remove().unwrap();
        (accepted, removed, transferred, between, scene.bank.books())
    });
}
