//! Model: running work claims symbols, or returns symbols with `replace`, while its tracker is removed.
//!
//! Runs `src/session/materialize/responsibility.rs` (`define_materializing`, `replace`) and
//! `src/session/symbols/symbol_table.rs`. A claimed symbol is removed with its tracker. A claim after the removal is
//! refused.
//!
//! Seeded bug: `claimed_under_a_later_lock`.

#![cfg(loom)]

mod support;

use jittison::base::Name;
use jittison::session::*;
use loom::thread;
use support::*;

fn claim(responsibility: &mut MaterializationResponsibility, name: &str) -> &'static str {
    describe(responsibility.define_materializing(&[(Name::new(name), SymbolFlags::EXPORTED)]))
}

#[test]
fn claim_versus_remove() {
    // The table is empty, although the work still holds its responsibility.
    let allowed = [("ok", 0, (0, 0)), ("tracker defunct", 0, (0, 0))];
    explore("claim_versus_remove", None, 2, allowed, || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let claimed = claim(&mut responsibility, "g");
        remover.join().unwrap();
        (claimed, fixture.main.symbol_count(), fixture.manager.counts())
    });
}

#[test]
fn claim_versus_remove_of_a_pinned_tracker() {
    // As above. The dylib still lists the removed tracker, because one of its ready symbols is pinned.
    let allowed = [("ok", 0, false), ("tracker defunct", 0, false)];
    explore("claim_versus_remove_of_a_pinned_tracker", None, 2, allowed, || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let loaded = fixture.loaded("e", 1);
        loaded.transfer_to(&tracker).unwrap();
        let (_, pin) = fixture.main.pin("e").unwrap();
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let claimed = claim(&mut responsibility, "g");
        let removal = remover.join().unwrap();
        let outcome = (claimed, fixture.main.symbol_count(), removal.is_complete());
        drop(pin);
        outcome
    });
}

#[test]
fn claim_versus_remove_versus_lookup_of_the_claimed_symbol() {
    // The lookup is answered in every case, although nothing resolves the claimed symbol.
    let allowed = [("ok", "failed"), ("ok", "not found"), ("tracker defunct", "not found")];
    explore("claim_versus_remove_versus_lookup_of_the_claimed_symbol", Some(2), 10, allowed, || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let main = fixture.main.clone();
        let lookup = thread::spawn(move || find(&main, "g"));
        let claimed = claim(&mut responsibility, "g");
        remover.join().unwrap();
        (claimed, lookup.join().unwrap())
    });
}

#[test]
fn claim_versus_definition_of_the_same_name() {
    let allowed = [("ok", "duplicate", 2), ("duplicate", "ok", 2)];
    explore("claim_versus_definition_of_the_same_name", None, 2, allowed, || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let main = fixture.main.clone();
        let definer = thread::spawn(move || describe(main.define(Unit::new("g", drop))));
        let claimed = claim(&mut responsibility, "g");
        let defined = definer.join().unwrap();
        let count = fixture.main.symbol_count();
        drop(tracker);
        (claimed, defined, count)
    });
}

#[test]
fn replace_versus_remove() {
    // A lookup waits for the symbol. So the replacing unit runs at once, or its resource is refused.
    let allowed = [("ok", 0, (0, 0)), ("ok", 0, (1, 0)), ("tracker defunct", 0, (0, 0))];
    explore("replace_versus_remove", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (tracker, mut responsibility) = fixture.materializing("f");
        let manager = fixture.manager.clone();
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let replaced = responsibility.replace(Unit::new("f", move |r| drop(manager.record(&r, 1))));
        remover.join().unwrap();
        (describe(replaced), fixture.main.symbol_count(), fixture.manager.counts())
    });
}
