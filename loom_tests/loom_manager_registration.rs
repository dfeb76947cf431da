//! Model: a manager is registered or deregistered while a tracker is removed or transferred.
//!
//! Runs `src/session/core/execution_session.rs`, `src/session/removal/reclaim.rs` and
//! `src/session/removal/transfer.rs`. A manager that has a resource recorded under a key is called for everything
//! that happens to the key from then on. No manager is called twice for one removal.
//!
//! Seeded bug: `managers_listed_before_the_gates`.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn registration_versus_remove() {
    // The early manager is called once for the key, the late one at most once.
    let allowed = [(1, 0), (1, 1)];
    explore("registration_versus_remove", None, 4, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let late = Arc::new(LedgerManager::default());
        // Recorded without a gate, so that a call is visible.
        late.ledger.record(tracker.key(), 2);
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        fixture.session.register_manager(late.clone());
        remover.join().unwrap();
        (fixture.manager.freed().len(), late.freed().len())
    });
}

#[test]
fn registration_and_recording_versus_remove() {
    // Accepted and freed once, or refused.
    let allowed = [(true, (1, 0)), (false, (0, 0))];
    explore("registration_and_recording_versus_remove", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let late = Arc::new(LedgerManager::default());
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        fixture.session.register_manager(late.clone());
        let accepted = late.record(&responsibility, 2);
        remover.join().unwrap();
        (accepted, late.counts())
    });
}

#[test]
fn registration_and_recording_versus_transfer() {
    // Nothing stays under the dead key. The resource is freed once, with the destination.
    let allowed = [(true, [1, 0], (1, 0))];
    explore("registration_and_recording_versus_transfer", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let destination = fixture.main.create_tracker().unwrap();
        let late = Arc::new(LedgerManager::default());
        let into = destination.clone();
        let transferrer = thread::spawn(move || {
            tracker.transfer_to(&into).unwrap();
            tracker.key()
        });
        fixture.session.register_manager(late.clone());
        let accepted = late.record(&responsibility, 2);
        let dead_key = transferrer.join().unwrap();
        let under = [destination.key(), dead_key].map(|key| late.ledger.inspect(key, |held| held.len()));
        destination.remove().unwrap();
        (accepted, under, late.counts())
    });
}

#[test]
fn deregistration_versus_remove() {
    // The other manager is called in every case.
    let allowed = [(1, (0, 1)), (1, (1, 0))];
    explore("deregistration_versus_remove", None, 4, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let leaving = Arc::new(LedgerManager::default());
        leaving.ledger.record(tracker.key(), 2);
        let manager: Arc<dyn ResourceManager> = leaving.clone();
        fixture.session.register_manager(manager.clone());
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        fixture.session.deregister_manager(&manager);
        remover.join().unwrap();
        (fixture.manager.freed().len(), leaving.counts())
    });
}

#[test]
fn two_registrations() {
    explore("two_registrations", None, 2, [(1, 1, 1)], || {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("f", 1);
        let late = [Arc::new(LedgerManager::default()), Arc::new(LedgerManager::default())];
        late.iter().for_each(|manager| manager.ledger.record(tracker.key(), 2));
        let (session, first) = (fixture.session.clone(), late[0].clone());
        let other = thread::spawn(move || session.register_manager(first));
        fixture.session.register_manager(late[1].clone());
        other.join().unwrap();
        tracker.remove().unwrap();
        (fixture.manager.counts().0, late[0].counts().0, late[1].counts().0)
    });
}
