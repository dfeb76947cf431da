//! Every interleaving of a call that is entered with the replacement of the version that it may be inside of.
//!
//! Checks `src/session/pins/calls.rs`, over `src/session/pins/guards.rs`: a version that a caller reached through a stub's slot is not
//! given back before the call returns, and it is given back then.

#![cfg(loom)]

mod support;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use support::*;

/// A scene whose dylib has versions.
fn scene() -> Scene {
    let scene = Scene::new();
    let main = scene.session.create_version_dylib("versions").unwrap();
    Scene { main, ..scene }
}

#[test]
fn replacing_a_version_versus_a_call_through_its_stub() {
    // The caller is in the old version or in the new one, and the one it is in is there.
    let allowed = [(1, true), (2, true)];
    explore("replacing_a_version_versus_a_call_through_its_stub", None, 4, allowed, || {
        let scene = scene();
        let (old, _new) = (scene.loaded("f1", 1), scene.loaded("f2", 2));
        // What code reads: no lock, no ordering.
        let slot = Arc::new(AtomicU64::new(1));
        let (session, bank, read) = (scene.session.clone(), scene.bank.clone(), slot.clone());
        let caller = thread::spawn(move || {
            let _entry = session.enter_call();
            let version = read.load(Ordering::Relaxed);
            // Loom may run the remover here.
            thread::yield_now();
            assert!(!bank.given_back().contains(&(version as u32)), "version {version} was freed under its caller");
            version
        });
        slot.store(2, Ordering::Relaxed);
        let removal = old.remove().unwrap();
        let version = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(scene.bank.given_back(), [1]);
        (version, complete)
    });
}

#[test]
fn a_call_returning_versus_a_guard_left() {
    // Both hold the version: whoever goes last gives it back, once.
    explore("a_call_returning_versus_a_guard_left", None, 4, [(true, vec![1])], || {
        let scene = scene();
        let tracker = scene.loaded("f", 1);
        let (session, guard) = (scene.session.clone(), scene.session.guard());
        let caller = thread::spawn(move || drop(session.enter_call()));
        let removal = tracker.remove().unwrap();
        assert!(!removal.is_complete(), "this thread's guard is in the way");
        drop(guard);
        caller.join().unwrap();
        (removal.is_complete(), scene.bank.given_back())
    });
}
