//! Every interleaving of registering or deregistering a manager with a removal or a transfer.
//!
//! Checks `src/session/core/execution_session.rs`, `src/session/removal/reclaim.rs` and `src/session/core/resource_tracker.rs`: a manager
//! that had something recorded is told of what happens to the key from then on; no manager is told twice.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn registration_versus_remove() {
    // How often the late manager saw the key does not matter as long as it is at most once; the early one saw it once.
    let allowed = [(1, 0), (1, 1)];
    explore("registration_versus_remove", None, 4, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let late = Arc::new(Bank::default());
        // As if recorded at an earlier time, so that being told shows.
        late.ledger.record(tracker.key(), 2);
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        scene.session.register_manager(late.clone());
        remover.join().unwrap();
        (scene.bank.given_back().len(), late.given_back().len())
    });
}

#[test]
fn registration_and_recording_versus_remove() {
    // Accepted and given back once, or refused.
    let allowed = [(true, (1, 0)), (false, (0, 0))];
    explore("registration_and_recording_versus_remove", None, 4, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let late = Arc::new(Bank::default());
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        scene.session.register_manager(late.clone());
        let accepted = late.record(&responsibility, 2);
        remover.join().unwrap();
        (accepted, late.books())
    });
}

#[test]
fn registration_and_recording_versus_transfer() {
    // Nothing is left under the dead key; given back once with the destination.
    let allowed = [(true, [1, 0], (1, 0))];
    explore("registration_and_recording_versus_transfer", None, 4, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let destination = scene.main.create_tracker().unwrap();
        let late = Arc::new(Bank::default());
        let into = destination.clone();
        let transferrer = thread::spawn(move || {
            tracker.transfer_to(&into).unwrap();
            tracker.key()
        });
        scene.session.register_manager(late.clone());
        let accepted = late.record(&responsibility, 2);
        let dead_key = transferrer.join().unwrap();
        let under = [destination.key(), dead_key].map(|key| late.ledger.inspect(key, |held| held.len()));
        destination.remove().unwrap();
        (accepted, under, late.books())
    });
}

#[test]
fn deregistration_versus_remove() {
    // The other manager is told in any case.
    let allowed = [(1, (0, 1)), (1, (1, 0))];
    explore("deregistration_versus_remove", None, 4, allowed, || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let leaving = Arc::new(Bank::default());
        leaving.ledger.record(tracker.key(), 2);
        let manager: Arc<dyn ResourceManager> = leaving.clone();
        scene.session.register_manager(manager.clone());
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        scene.session.deregister_manager(&manager);
        remover.join().unwrap();
        (scene.bank.given_back().len(), leaving.books())
    });
}

#[test]
fn two_registrations() {
    explore("two_registrations", None, 2, [(1, 1, 1)], || {
        let scene = Scene::new();
        let tracker = scene.loaded("f", 1);
        let late = [Arc::new(Bank::default()), Arc::new(Bank::default())];
        late.iter().for_each(|bank| bank.ledger.record(tracker.key(), 2));
        let (session, first) = (scene.session.clone(), late[0].clone());
        let other = thread::spawn(move || session.register_manager(first));
        scene.session.register_manager(late[1].clone());
        other.join().unwrap();
        tracker.remove().unwrap();
        (scene.bank.books().0, late[0].books().0, late[1].books().0)
    });
}
