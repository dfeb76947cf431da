//! Model: a lookup of a ready symbol, which may insert it into the index of ready symbols, races with the symbol's
//! removal.
//!
//! Runs `src/session/symbols/ready_index.rs`. A lookup that starts after the removal has returned finds nothing,
//! whatever the index held or was about to hold. A name that is defined again is never answered with the old definition.
//!
//! Seeded bug: `indexed_without_the_dylib_lock`.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

fn defined(fixture: &Fixture, at: u64) -> ResourceTracker {
    let tracker = fixture.main.create_tracker().unwrap();
    tracker.define_absolute([(Name::new("f"), ExecutorAddr::new(at), SymbolFlags::EXPORTED)]).unwrap();
    tracker
}

fn address(main: &JitDylib) -> Option<u64> {
    main.lookup_address("f").ok().map(ExecutorAddr::value)
}

#[test]
fn insertion_into_the_index_versus_remove() {
    // The address that the lookup found, and that a lookup after the removal found.
    explore("insertion_into_the_index_versus_remove", None, 2, [(None, None), (Some(1), None)], || {
        let fixture = Fixture::new();
        let tracker = defined(&fixture, 1);
        // The index gets a symbol at its second lookup, which is the one that races.
        address(&fixture.main);
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let found = address(&fixture.main);
        remover.join().unwrap();
        (found, address(&fixture.main))
    });
}

#[test]
fn lookup_through_the_index_versus_remove() {
    explore("lookup_through_the_index_versus_remove", None, 2, [(None, None), (Some(1), None)], || {
        let fixture = Fixture::new();
        let tracker = defined(&fixture, 1);
        address(&fixture.main);
        address(&fixture.main);
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let found = address(&fixture.main);
        remover.join().unwrap();
        (found, address(&fixture.main))
    });
}

#[test]
fn insertion_into_the_index_versus_a_new_definition() {
    let allowed = [(None, Some(2)), (Some(1), Some(2)), (Some(2), Some(2))];
    explore("insertion_into_the_index_versus_a_new_definition", None, 3, allowed, || {
        let fixture = Fixture::new();
        let tracker = defined(&fixture, 1);
        address(&fixture.main);
        let main = fixture.main.clone();
        let reader = thread::spawn(move || address(&main));
        tracker.remove().unwrap();
        let _new = defined(&fixture, 2);
        let now = address(&fixture.main);
        (reader.join().unwrap(), now)
    });
}
