//! Every interleaving of claiming symbols in the middle of the work, or giving them back, with removing the tracker.
//!
//! Checks `src/session/materialize/responsibility.rs` (`define_materializing`, `replace`) and `src/session/symbols/symbol_table.rs`: what was
//! claimed goes with its tracker, and a claim that comes too late is refused.

#![cfg(loom)]

mod support;

use jittison::base::Name;
use jittison::session::*;
use loom::thread;
use support::*;

fn claim(responsibility: &mut MaterializationResponsibility, name: &str) -> &'static str {
    said(responsibility.define_materializing(&[(Name::new(name), SymbolFlags::EXPORTED)]))
}

#[test]
fn claim_versus_remove() {
    // Nothing is left in the table, although the work has not let go of its symbols yet.
    let allowed = [("ok", 0, (0, 0)), ("tracker defunct", 0, (0, 0))];
    explore("claim_versus_remove", None, 2, allowed, || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let claimed = claim(&mut responsibility, "g");
        remover.join().unwrap();
        (claimed, scene.main.symbol_count(), scene.bank.books())
    });
}

#[test]
fn claim_versus_remove_of_a_pinned_tracker() {
    // As above; the removed tracker is still in its dylib's books, since a ready symbol of it is pinned.
    let allowed = [("ok", 0, false), ("tracker defunct", 0, false)];
    explore("claim_versus_remove_of_a_pinned_tracker", None, 2, allowed, || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let loaded = scene.loaded("e", 1);
        loaded.transfer_to(&tracker).unwrap();
        let (_, pin) = scene.main.pin("e").unwrap();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let claimed = claim(&mut responsibility, "g");
        let removal = remover.join().unwrap();
        let outcome = (claimed, scene.main.symbol_count(), removal.is_complete());
        drop(pin);
        outcome
    });
}

#[test]
fn claim_versus_remove_versus_lookup_of_the_claimed() {
    // The lookup is answered in any case: nobody will ever resolve the claimed symbol.
    let allowed = [("ok", "failed"), ("ok", "not found"), ("tracker defunct", "not found")];
    explore("claim_versus_remove_versus_lookup_of_the_claimed", Some(2), 10, allowed, || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let main = scene.main.clone();
        let looker = thread::spawn(move || find(&main, "g"));
        let claimed = claim(&mut responsibility, "g");
        remover.join().unwrap();
        (claimed, looker.join().unwrap())
    });
}

#[test]
fn claim_versus_definition_of_the_same_name() {
    let allowed = [("ok", "duplicate", 2), ("duplicate", "ok", 2)];
    explore("claim_versus_definition_of_the_same_name", None, 2, allowed, || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let main = scene.main.clone();
        let definer = thread::spawn(move || said(main.define(Unit::new("g", drop))));
        let claimed = claim(&mut responsibility, "g");
        let defined = definer.join().unwrap();
        let count = scene.main.symbol_count();
        drop(tracker);
        (claimed, defined, count)
    });
}

#[test]
fn giving_symbols_back_versus_remove() {
    // Somebody waits for the symbol, so the unit that it is given back to runs at once, or learns that it is too late.
    let allowed = [("ok", 0, (0, 0)), ("ok", 0, (1, 0)), ("tracker defunct", 0, (0, 0))];
    explore("giving_symbols_back_versus_remove", None, 4, allowed, || {
        let scene = Scene::new();
        let (tracker, mut responsibility) = scene.at_work("f");
        let bank = scene.bank.clone();
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let replaced = responsibility.replace(Unit::new("f", move |r| drop(bank.record(&r, 1))));
        remover.join().unwrap();
        (said(replaced), scene.main.symbol_count(), scene.bank.books())
    });
}
