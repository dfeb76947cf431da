//! Model: recording a resource, removing, transferring and pinning a tracker, and dropping its last handle, race with
//! each other.
//!
//! Runs `src/session/pins/tracker_state.rs`, `src/session/removal/remove.rs` and `src/session/types/ledger.rs`. A
//! resource is recorded and freed exactly once, or it is refused and stays with its maker. It is never both, never lost,
//! and never under a dead key. When `remove` returns to any caller, the names are unpublished.
//!
//! Seeded bugs: `record_outside_gate`, `key_marked_under_a_later_lock`, `retired_before_the_dylib_lock`.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::base::Name;
use jittison::error::Result;
use jittison::session::*;
use loom::thread;
use support::*;

/// A manager that drops its standing pin in `release_pins`.
struct PinHolder(Mutex<Option<Pin>>);

impl ResourceManager for PinHolder {
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
    // Freed once, whether the other pin is dropped before or after the manager's own pin.
    explore("standing_pin_dropped_versus_remove", None, 4, [(vec![1], true)], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let pin = || fixture.main.pin("f").unwrap().1.into_revocable("for the model");
        let (managed, other) = (pin(), pin());
        fixture.session.register_manager(Arc::new(PinHolder(Mutex::new(Some(managed)))));
        let holder = thread::spawn(move || drop(other));
        let removal = tracker.remove().unwrap();
        holder.join().unwrap();
        (fixture.manager.freed(), removal.is_complete())
    });
}

#[test]
fn allocate_versus_remove() {
    let allowed = [(true, true, (1, 0)), (false, true, (0, 0))];
    explore("allocate_versus_remove", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().is_complete());
        let accepted = fixture.manager.record(&responsibility, 1);
        let complete = remover.join().unwrap();
        (accepted, complete, fixture.manager.counts())
    });
}

#[test]
fn allocate_versus_transfer() {
    // Accepted; under the destination and not under the source; freed once.
    let allowed = [(true, [1, 0], (1, 0))];
    explore("allocate_versus_transfer", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || {
            tracker.transfer_to(&into).unwrap();
            tracker.key()
        });
        let accepted = fixture.manager.record(&responsibility, 1);
        let dead_key = transferrer.join().unwrap();
        let under = [destination.key(), dead_key].map(|key| fixture.manager.ledger.inspect(key, |held| held.len()));
        destination.remove().unwrap();
        (accepted, under, fixture.manager.counts())
    });
}

#[test]
fn remove_versus_remove() {
    // No call returns while the name can be found. Both removals complete. Freed once.
    let allowed = [([true, true], [true, true], (1, 0))];
    explore("remove_versus_remove", None, 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (other, main) = (tracker.clone(), fixture.main.clone());
        let remover = thread::spawn(move || {
            let removal = other.remove().unwrap();
            (removal, main.symbol_flags("f").is_none())
        });
        let here = tracker.remove().unwrap();
        let gone_here = fixture.main.symbol_flags("f").is_none();
        here.wait().unwrap();
        let (there, gone_there) = remover.join().unwrap();
        ([gone_here, gone_there], [here.is_complete(), there.is_complete()], fixture.manager.counts())
    });
}

#[test]
fn dropping_the_last_pin_versus_remove() {
    explore("dropping_the_last_pin_versus_remove", None, 2, [(1, 0)], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let holder = thread::spawn(move || drop(pin));
        let removal = tracker.remove().unwrap();
        removal.wait().unwrap();
        holder.join().unwrap();
        fixture.manager.counts()
    });
}

#[test]
fn last_handle_dropped_versus_removal_of_the_default_tracker() {
    // In both orders the resource is under a live key or freed.
    let allowed = [((1, 0), 0, (1, 0)), ((0, 1), 0, (1, 0))];
    explore("last_handle_dropped_versus_removal_of_the_default_tracker", None, 4, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let default = fixture.main.default_tracker().unwrap();
        let key = tracker.key();
        let dropper = thread::spawn(move || drop(tracker));
        default.remove().unwrap();
        dropper.join().unwrap();
        let between = fixture.manager.counts();
        let under_dead = fixture.manager.ledger.inspect(key, |held| held.len());
        fixture.main.default_tracker().unwrap().remove().unwrap();
        (between, under_dead, fixture.manager.counts())
    });
}

#[test]
fn last_handle_dropped_versus_the_tracker_of_running_work() {
    // The handle refers to a live tracker, and the work belongs to that tracker.
    explore("last_handle_dropped_versus_the_tracker_of_running_work", None, 4, [(true, true)], || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let dropper = thread::spawn(move || drop(tracker));
        let found = responsibility.tracker();
        dropper.join().unwrap();
        let same_key = responsibility.with_resource_key(|key| key == found.key()).unwrap();
        (!found.is_defunct(), same_key)
    });
}

#[test]
fn claiming_a_symbol_versus_transfer() {
    // The work continues under the destination.
    explore("claiming_a_symbol_versus_transfer", None, 2, [("ok", 2)], || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || tracker.transfer_to(&into).unwrap());
        let claimed = responsibility.define_materializing(&[(Name::new("g"), SymbolFlags::EXPORTED)]);
        transferrer.join().unwrap();
        (describe(claimed), fixture.main.symbol_count_of(destination.key()))
    });
}
