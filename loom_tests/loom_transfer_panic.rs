//! Model: a transfer in which a manager panics races with removal of either tracker, and with a transfer of the
//! destination.
//!
//! Runs `src/session/types/failed_transfers.rs` and `src/session/removal/transfer.rs`. A resource that the
//! manager left under the source's key is freed once, together with the tracker that owns everything after the transfer.
//!
//! Seeded bug: `unmoved_noted_after_the_gates`.

#![cfg(loom)]

mod support;

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use jittison::error::Result;
use jittison::session::*;
use loom::thread;
use support::*;

/// A manager whose `transfer_resources` panics and moves nothing.
#[derive(Default)]
struct PanickingManager {
    ledger: Ledger<u32>,
    freed: Mutex<Vec<u32>>,
}

impl PanickingManager {
    fn freed(&self) -> Vec<u32> {
        let mut freed = self.freed.lock().unwrap().clone();
        freed.sort_unstable();
        freed
    }
}

impl ResourceManager for PanickingManager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.freed.lock().unwrap().extend(taken);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {
        // `resume_unwind` runs no panic hook, so nothing is printed.
        resume_unwind(Box::new("a bug"));
    }
}

/// A tracker with one resource.
fn tracker(fixture: &Fixture, panicking: &PanickingManager, resource: u32) -> ResourceTracker {
    let tracker = fixture.main.create_tracker().unwrap();
    tracker.with_resource_key(|key| panicking.ledger.record(key, resource)).unwrap();
    tracker
}

fn fixture() -> (Fixture, Arc<PanickingManager>) {
    let fixture = Fixture::new();
    let panicking = Arc::new(PanickingManager::default());
    fixture.session.register_manager(panicking.clone());
    (fixture, panicking)
}

const PANICKED: &str = "another error";
const DEFUNCT: &str = "tracker defunct";

#[test]
fn panicking_transfer_versus_remove_of_the_destination() {
    // The outcome of the transfer; resources freed by then; resources freed after the source is removed, too; keys in use.
    let allowed = [(PANICKED, vec![1, 2], vec![1, 2], 0), (DEFUNCT, vec![2], vec![1, 2], 0)];
    explore("panicking_transfer_versus_remove_of_the_destination", None, 2, allowed, || {
        let (fixture, panicking) = fixture();
        let (source, destination) = (tracker(&fixture, &panicking, 1), tracker(&fixture, &panicking, 2));
        let into = destination.clone();
        let remover = thread::spawn(move || assert!(destination.remove().unwrap().is_complete()));
        let transferred = describe(source.transfer_to(&into));
        remover.join().unwrap();
        let between = panicking.freed();
        let _ = source.remove();
        (transferred, between, panicking.freed(), panicking.ledger.key_count())
    });
}

#[test]
fn panicking_transfer_versus_remove_of_the_source() {
    // The outcomes of the transfer and the removal; resources freed by then, and after the destination is removed.
    let allowed = [(PANICKED, DEFUNCT, vec![], vec![1, 2]), (DEFUNCT, "ok", vec![1], vec![1, 2])];
    explore("panicking_transfer_versus_remove_of_the_source", None, 2, allowed, || {
        let (fixture, panicking) = fixture();
        let (source, destination) = (tracker(&fixture, &panicking, 1), tracker(&fixture, &panicking, 2));
        let (from, into) = (source.clone(), destination.clone());
        let transferrer = thread::spawn(move || describe(from.transfer_to(&into)));
        let removed = describe(source.remove());
        let transferred = transferrer.join().unwrap();
        let between = panicking.freed();
        destination.remove().unwrap();
        (transferred, removed, between, panicking.freed())
    });
}

#[test]
fn panicking_transfer_versus_transfer_of_the_destination() {
    // The outcomes of both transfers; resources freed with the last tracker; keys in use after the first is removed, too.
    let allowed = [(PANICKED, PANICKED, vec![1, 2, 3], 0), (DEFUNCT, PANICKED, vec![2, 3], 0)];
    explore("panicking_transfer_versus_transfer_of_the_destination", None, 2, allowed, || {
        let (fixture, panicking) = fixture();
        let [first, second, last] = [1, 2, 3].map(|resource| tracker(&fixture, &panicking, resource));
        let (from, into) = (second.clone(), last.clone());
        let second_transfer = thread::spawn(move || describe(from.transfer_to(&into)));
        let transferred = describe(first.transfer_to(&second));
        let second_transfer = second_transfer.join().unwrap();
        last.remove().unwrap();
        let freed = panicking.freed();
        let _ = first.remove();
        (transferred, second_transfer, freed, panicking.ledger.key_count())
    });
}

#[test]
fn panicking_transfer_versus_drop_of_the_last_handle() {
    // Removed, or merged into the default tracker. Everything is freed when the dylib is cleared.
    let allowed = [(PANICKED, vec![1, 2], 0), (DEFUNCT, vec![1, 2], 0)];
    explore("panicking_transfer_versus_drop_of_the_last_handle", None, 2, allowed, || {
        let (fixture, panicking) = fixture();
        let (source, destination) = (tracker(&fixture, &panicking, 1), tracker(&fixture, &panicking, 2));
        let remover = {
            let main = fixture.main.clone();
            thread::spawn(move || drop(main.clear().unwrap()))
        };
        let transferred = describe(source.transfer_to(&destination));
        drop((source, destination));
        remover.join().unwrap();
        fixture.main.clear().unwrap();
        (transferred, panicking.freed(), panicking.ledger.key_count())
    });
}
