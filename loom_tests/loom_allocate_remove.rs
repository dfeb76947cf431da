//! Every interleaving of recording a resource, removing, transferring, pinning and forgetting a tracker.
//!
//! Checks `src/session/pins/tracker_state.rs`, `src/session/removal/remove.rs` and `src/session/types/ledger.rs`: a resource is recorded and given back exactly once,
//! or refused and left with its maker; it is never both, never lost, never under a dead key. After a removal has
//! returned, whoever asked for it, the names are gone.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::base::Name;
use jittison::error::Result;
use jittison::session::*;
use loom::thread;
use support::*;

/// A manager that lets go of its standing pin when it is asked.
struct Lender(Mutex<Option<Pin>>);

impl ResourceManager for Lender {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        Ok(())
    }

    fn release_pins(&self, _: &JitDylib, _: ResourceKey) {
        let pin = self.0.lock().unwrap().take();
        drop(pin);
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

#[test]
fn standing_pin_dropped_versus_remove() {
    // Given back once, by whoever comes last, whether the other's pin goes before or after the manager is asked for its own.
    explore("standing_pin_dropped_versus_remove", None, 4, [(vec![1], true)], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let pin = || scene.main.pin("f").unwrap().1.stand("for the model");
        let (lent, other) = (pin(), pin());
        scene.session.register_manager(Arc::new(Lender(Mutex::new(Some(lent)))));
        let holder = thread::spawn(move || drop(other));
        let removal = tracker.remove().unwrap();
        holder.join().unwrap();
        (scene.bank.given_back(), removal.is_complete())
    });
}

#[test]
fn allocate_versus_remove() {
    let allowed = [(true, true, (1, 0)), (false, true, (0, 0))];
    explore("allocate_versus_remove", None, 4, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().is_complete());
        let accepted = scene.bank.record(&responsibility, 1);
        let complete = remover.join().unwrap();
        (accepted, complete, scene.bank.books())
    });
}

#[test]
fn allocate_versus_transfer() {
    // Accepted; under the destination, not under the source; given back once.
    let allowed = [(true, [1, 0], (1, 0))];
    explore("allocate_versus_transfer", None, 4, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let destination = scene.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || {
            tracker.transfer_to(&into).unwrap();
            tracker.key()
        });
        let accepted = scene.bank.record(&responsibility, 1);
        let dead_key = transferrer.join().unwrap();
        let under = [destination.key(), dead_key].map(|key| scene.bank.ledger.inspect(key, |held| held.len()));
        destination.remove().unwrap();
        (accepted, under, scene.bank.books())
    });
}

#[test]
fn remove_versus_remove() {
    // Neither returns while the name can be found; both tickets complete; given back once.
    let allowed = [([true, true], [true, true], (1, 0))];
    explore("remove_versus_remove", None, 2, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (other, main) = (tracker.clone(), scene.main.clone());
        let remover = thread::spawn(move || {
            let removal = other.remove().unwrap();
            (removal, main.symbol_flags("f").is_none())
        });
        let here = tracker.remove().unwrap();
        let gone_here = scene.main.symbol_flags("f").is_none();
        here.wait().unwrap();
        let (there, gone_there) = remover.join().unwrap();
        ([gone_here, gone_there], [here.is_complete(), there.is_complete()], scene.bank.books())
    });
}

#[test]
fn dropping_the_last_pin_versus_remove() {
    explore("dropping_the_last_pin_versus_remove", None, 2, [(1, 0)], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let holder = thread::spawn(move || drop(pin));
        let removal = tracker.remove().unwrap();
        removal.wait().unwrap();
        holder.join().unwrap();
        scene.bank.books()
    });
}

#[test]
fn forgetting_versus_removing_the_default_tracker() {
    // Whichever comes first: the resource is under a live key, or was given back.
    let allowed = [((1, 0), 0, (1, 0)), ((0, 1), 0, (1, 0))];
    explore("forgetting_versus_removing_the_default_tracker", None, 4, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let default = scene.main.default_tracker().unwrap();
        let key = tracker.key();
        let forgetter = thread::spawn(move || drop(tracker));
        default.remove().unwrap();
        forgetter.join().unwrap();
        let between = scene.bank.books();
        let under_dead = scene.bank.ledger.inspect(key, |held| held.len());
        scene.main.default_tracker().unwrap().remove().unwrap();
        (between, under_dead, scene.bank.books())
    });
}

#[test]
fn forgetting_versus_asking_the_work_for_its_tracker() {
    // The handle is live, and to the tracker that the work belongs to.
    explore("forgetting_versus_asking_the_work_for_its_tracker", None, 4, [(true, true)], || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let forgetter = thread::spawn(move || drop(tracker));
        let found = responsibility.tracker();
        forgetter.join().unwrap();
        let same_key = responsibility.with_resource_key(|key| key == found.key()).unwrap();
        (!found.is_defunct(), same_key)
    });
}

#[test]
fn claiming_a_symbol_versus_transfer() {
    // The work goes on wherever its tracker went.
    explore("claiming_a_symbol_versus_transfer", None, 2, [("ok", 2)], || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let destination = scene.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || tracker.transfer_to(&into).unwrap());
        let claimed = responsibility.define_materializing(&[(Name::new("g"), SymbolFlags::EXPORTED)]);
        transferrer.join().unwrap();
        (said(claimed), scene.main.symbol_count_of(destination.key()))
    });
}
