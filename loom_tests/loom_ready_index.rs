//! Every interleaving of looking a ready symbol up, which may put it into the index of such, with removing it.
//!
//! Checks `src/session/symbols/ready_index.rs`: once a removal has returned, no lookup finds the symbol, whatever the index held
//! or was about to hold; and a name that was defined anew is never answered with the old definition.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

fn defined(scene: &Scene, at: u64) -> ResourceTracker {
    let tracker = scene.main.create_tracker().unwrap();
    tracker.define_absolute([(Name::new("f"), ExecutorAddr::new(at), SymbolFlags::EXPORTED)]).unwrap();
    tracker
}

fn address(main: &JitDylib) -> Option<u64> {
    main.lookup_address("f").ok().map(ExecutorAddr::value)
}

#[test]
fn coming_into_the_index_versus_remove() {
    // What the lookup said, and what one after the removal says.
    explore("coming_into_the_index_versus_remove", None, 2, [(None, None), (Some(1), None)], || {
        let scene = Scene::new();
        let tracker = defined(&scene, 1);
        address(&scene.main);
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let found = address(&scene.main);
        remover.join().unwrap();
        (found, address(&scene.main))
    });
}

#[test]
fn being_in_the_index_versus_remove() {
    explore("being_in_the_index_versus_remove", None, 2, [(None, None), (Some(1), None)], || {
        let scene = Scene::new();
        let tracker = defined(&scene, 1);
        address(&scene.main);
        address(&scene.main);
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let found = address(&scene.main);
        remover.join().unwrap();
        (found, address(&scene.main))
    });
}

#[test]
fn coming_into_the_index_versus_a_new_definition() {
    let allowed = [(None, Some(2)), (Some(1), Some(2)), (Some(2), Some(2))];
    explore("coming_into_the_index_versus_a_new_definition", None, 3, allowed, || {
        let scene = Scene::new();
        let tracker = defined(&scene, 1);
        address(&scene.main);
        let main = scene.main.clone();
        let reader = thread::spawn(move || address(&main));
        tracker.remove().unwrap();
        let _new = defined(&scene, 2);
        let now = address(&scene.main);
        (reader.join().unwrap(), now)
    });
}
