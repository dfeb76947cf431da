//! Every interleaving of a transfer in which a manager panics with removing either tracker, and with a further transfer.
//!
//! Checks `src/session/removal/unmoved.rs` and `src/session/core/resource_tracker.rs` (`transfer`): what the manager left under the source's key
//! is given back once, with the tracker that owns everything now.

#![cfg(loom)]

mod support;

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use jittison::error::Result;
use jittison::session::*;
use loom::thread;
use support::*;

/// A manager that transfers nothing, and panics instead.
#[derive(Default)]
struct Faulty {
    ledger: Ledger<u32>,
    given_back: Mutex<Vec<u32>>,
}

impl Faulty {
    fn given_back(&self) -> Vec<u32> {
        let mut given_back = self.given_back.lock().unwrap().clone();
        given_back.sort_unstable();
        given_back
    }
}

impl ResourceManager for Faulty {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.given_back.lock().unwrap().extend(taken);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {
        // Without a word on the standard error.
        resume_unwind(Box::new("a bug"));
    }
}

/// A tracker with a resource.
fn tracker(scene: &Scene, faulty: &Faulty, resource: u32) -> ResourceTracker {
    let tracker = scene.main.create_tracker().unwrap();
    tracker.with_resource_key(|key| faulty.ledger.record(key, resource)).unwrap();
    tracker
}

fn scene() -> (Scene, Arc<Faulty>) {
    let scene = Scene::new();
    let faulty = Arc::new(Faulty::default());
    scene.session.register_manager(faulty.clone());
    (scene, faulty)
}

const PANICKED: &str = "another error";
const DEFUNCT: &str = "tracker defunct";

#[test]
fn panicking_transfer_versus_remove_of_the_destination() {
    // What the transfer said; given back by then; given back once the source has gone, too.
    let allowed = [(PANICKED, vec![1, 2], vec![1, 2], 0), (DEFUNCT, vec![2], vec![1, 2], 0)];
    explore("panicking_transfer_versus_remove_of_the_destination", None, 2, allowed, || {
        let (scene, faulty) = scene();
        let (source, destination) = (tracker(&scene, &faulty, 1), tracker(&scene, &faulty, 2));
        let into = destination.clone();
        let remover = thread::spawn(move || assert!(destination.remove().unwrap().is_complete()));
        let transferred = said(source.transfer_to(&into));
        remover.join().unwrap();
        let between = faulty.given_back();
        let _ = source.remove();
        (transferred, between, faulty.given_back(), faulty.ledger.key_count())
    });
}

#[test]
fn panicking_transfer_versus_remove_of_the_source() {
    // What the transfer and the removal said; given back by then, and once the destination has gone, too.
    let allowed = [(PANICKED, DEFUNCT, vec![], vec![1, 2]), (DEFUNCT, "ok", vec![1], vec![1, 2])];
    explore("panicking_transfer_versus_remove_of_the_source", None, 2, allowed, || {
        let (scene, faulty) = scene();
        let (source, destination) = (tracker(&scene, &faulty, 1), tracker(&scene, &faulty, 2));
        let (from, into) = (source.clone(), destination.clone());
        let transferrer = thread::spawn(move || said(from.transfer_to(&into)));
        let removed = said(source.remove());
        let transferred = transferrer.join().unwrap();
        let between = faulty.given_back();
        destination.remove().unwrap();
        (transferred, removed, between, faulty.given_back())
    });
}

#[test]
fn panicking_transfer_versus_transfer_of_the_destination() {
    // What the two said; given back with the last; left on the books when the first, if it lives, has gone, too.
    let allowed = [(PANICKED, PANICKED, vec![1, 2, 3], 0), (DEFUNCT, PANICKED, vec![2, 3], 0)];
    explore("panicking_transfer_versus_transfer_of_the_destination", None, 2, allowed, || {
        let (scene, faulty) = scene();
        let [first, second, last] = [1, 2, 3].map(|resource| tracker(&scene, &faulty, resource));
        let (from, into) = (second.clone(), last.clone());
        let further = thread::spawn(move || said(from.transfer_to(&into)));
        let transferred = said(first.transfer_to(&second));
        let further = further.join().unwrap();
        last.remove().unwrap();
        let given_back = faulty.given_back();
        let _ = first.remove();
        (transferred, further, given_back, faulty.ledger.key_count())
    });
}

#[test]
fn panicking_transfer_versus_drop_of_the_last_handle() {
    // Removed or merged into the default tracker, and all of it goes with the dylib.
    let allowed = [(PANICKED, vec![1, 2], 0), (DEFUNCT, vec![1, 2], 0)];
    explore("panicking_transfer_versus_drop_of_the_last_handle", None, 2, allowed, || {
        let (scene, faulty) = scene();
        let (source, destination) = (tracker(&scene, &faulty, 1), tracker(&scene, &faulty, 2));
        let remover = {
            let main = scene.main.clone();
            thread::spawn(move || drop(main.clear().unwrap()))
        };
        let transferred = said(source.transfer_to(&destination));
        drop((source, destination));
        remover.join().unwrap();
        scene.main.clear().unwrap();
        (transferred, faulty.given_back(), faulty.ledger.key_count())
    });
}
