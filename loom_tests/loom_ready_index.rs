//! Model: a lookup of a ready symbol, which may insert it into the index of ready symbols, races with the symbol's
//! removal.
//!
//! Runs `src/session/symbols/ready_index.rs` and `src/session/symbols/symbol_table/unfinished.rs`. A lookup that starts after the
//! removal has returned finds nothing, whatever the index held or was about to hold. A name that is defined again is never
//! answered with the old definition.
//!
//! A name that was not found once, because its tracker is being removed symbol by symbol, is not found in the index either.
//!
//! Seeded bugs: `indexed_without_the_dylib_lock`, `hidden_symbol_left_in_the_index`.

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

#[test]
fn lookup_through_the_index_versus_removal_symbol_by_symbol() {
    // Whether the name was absent; the address that the index gave after that, and after the name was defined again.
    let allowed = [(false, None, None), (true, None, Some(2))];
    explore("lookup_through_the_index_versus_removal_symbol_by_symbol", Some(3), 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = defined(&fixture, 1);
        // The removal begins with the symbol that was defined last.
        tracker.define_absolute([(Name::new("g"), ExecutorAddr::new(1), SymbolFlags::EXPORTED)]).unwrap();
        address(&fixture.main);
        address(&fixture.main);
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        // Asks the table, not the index.
        let is_absent = fixture.main.symbol_flags("f").is_none();
        let before = if is_absent { address(&fixture.main) } else { None };
        let new = is_absent.then(|| defined(&fixture, 2));
        let after = if is_absent { address(&fixture.main) } else { None };
        remover.join().unwrap();
        drop(new);
        (is_absent, before, after)
    });
}
