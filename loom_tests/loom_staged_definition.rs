//! Model: a definition of many symbols, which enter the table in pieces, races with a search, with another definition of one of the
//! names, with another such definition, and with removal and transfer of its tracker.
//!
//! Runs `src/session/materialize/staged.rs`, `src/session/symbols/symbol_table/staged.rs` and
//! `src/session/symbols/symbol_table/unfinished.rs`. Other threads see all symbols of the definition or none. Of two definitions of one
//! name, one is made. No symbol outlives its tracker.
//!
//! Seeded bugs: `symbols_seen_before_their_definition_ends`, `overtaken_definition_ends`.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

/// Defines symbols of these names. Three and more enter the table in pieces. Returns whether they were defined.
fn define(tracker: &ResourceTracker, names: &[&str]) -> bool {
    let symbol = |name: &&str| (Name::new(name), ExecutorAddr::new(1), SymbolFlags::EXPORTED);
    tracker.define_absolute(names.iter().map(symbol)).is_ok()
}

const NAMES: [&str; 3] = ["f", "g", "h"];

#[test]
fn definition_in_pieces_versus_two_searches() {
    // Whether the first name was found, and then the last one.
    let allowed = [(false, false), (false, true), (true, true)];
    explore("definition_in_pieces_versus_two_searches", Some(3), 3, allowed, || {
        let fixture = Fixture::new();
        let (dylib, tracker) = (fixture.main.clone(), fixture.main.create_tracker().unwrap());
        let definer = thread::spawn(move || {
            assert!(define(&tracker, &NAMES));
            tracker
        });
        let found = (dylib.symbol_flags("f").is_some(), dylib.symbol_flags("h").is_some());
        let tracker = definer.join().unwrap();
        assert_eq!(dylib.symbol_count_of(tracker.key()), NAMES.len());
        found
    });
}

#[test]
fn definition_in_pieces_versus_a_definition_of_one_of_its_names() {
    // Whether each was made; the symbols.
    let allowed = [(true, false, 3), (false, true, 1)];
    explore("definition_in_pieces_versus_a_definition_of_one_of_its_names", Some(3), 2, allowed, || {
        let fixture = Fixture::new();
        let [tracker, other] = [(); 2].map(|()| fixture.main.create_tracker().unwrap());
        let definer = thread::spawn(move || (define(&tracker, &NAMES), tracker));
        let other_is_defined = define(&other, &["f"]);
        let (is_defined, _tracker) = definer.join().unwrap();
        (is_defined, other_is_defined, fixture.main.symbol_count())
    });
}

#[test]
fn two_definitions_in_pieces_with_a_common_name() {
    let allowed = [(true, false, 3), (false, true, 3)];
    explore("two_definitions_in_pieces_with_a_common_name", Some(2), 2, allowed, || {
        let fixture = Fixture::new();
        let [tracker, other] = [(); 2].map(|()| fixture.main.create_tracker().unwrap());
        let definer = thread::spawn(move || (define(&tracker, &NAMES), tracker));
        let other_is_defined = define(&other, &["h", "i", "k"]);
        let (is_defined, _tracker) = definer.join().unwrap();
        (is_defined, other_is_defined, fixture.main.symbol_count())
    });
}

#[test]
fn definition_in_pieces_versus_removal_of_its_tracker() {
    let allowed = [(true, 0), (false, 0)];
    explore("definition_in_pieces_versus_removal_of_its_tracker", Some(3), 2, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.main.create_tracker().unwrap();
        let removed = tracker.clone();
        let remover = thread::spawn(move || removed.remove().unwrap().is_complete());
        let is_defined = define(&tracker, &NAMES);
        assert!(remover.join().unwrap());
        (is_defined, fixture.main.symbol_count())
    });
}

#[test]
fn definition_in_pieces_versus_transfer_of_its_tracker() {
    // Whether it was made; the symbols of the destination.
    let allowed = [(true, 3), (false, 0)];
    explore("definition_in_pieces_versus_transfer_of_its_tracker", Some(3), 2, allowed, || {
        let fixture = Fixture::new();
        let [tracker, destination] = [(); 2].map(|()| fixture.main.create_tracker().unwrap());
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).unwrap());
        let is_defined = define(&tracker, &NAMES);
        transferrer.join().unwrap();
        (is_defined, fixture.main.symbol_count_of(destination.key()))
    });
}
