//! Model: a lookup or a pin of a symbol races with removal of its tracker or its name.
//!
//! Runs `src/session/lookup/begin.rs`, `src/session/removal/unpublish.rs` and `src/session/removal/symbol_watch.rs`.
//! Each lookup gets exactly one answer. A resource that its unit recorded is freed once. A pin keeps the managers from
//! being called.
//!
//! Seeded bugs: `pinned_after_the_gate_was_left`, `held_without_a_pin`.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn materialising_versus_remove() {
    // The outcome of the lookup; whether the resource was accepted, if the unit ran; remaining symbols; counts.
    let allowed = [
        ("not found", None, 0, (0, 0)),
        ("failed", Some(false), 0, (0, 0)),
        ("failed", Some(true), 0, (1, 0)),
        ("ready", Some(true), 0, (1, 0)),
    ];
    explore("materialising_versus_remove", None, 10, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.main.create_tracker().unwrap();
        let accepted = Arc::new(Mutex::new(None));
        let (manager, written) = (fixture.manager.clone(), accepted.clone());
        let work = move |r: MaterializationResponsibility| {
            *written.lock().unwrap() = Some(manager.record(&r, 1));
            if resolve(&r).is_ok() {
                let _ = r.notify_emitted(Vec::new());
            }
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let found = find(&fixture.main, "f");
        remover.join().unwrap();
        let accepted = *accepted.lock().unwrap();
        (found, accepted, fixture.main.symbol_count(), fixture.manager.counts())
    });
}

#[test]
fn waiting_for_work_elsewhere_versus_remove() {
    // Another thread does the work. The work or the removal answers the lookup.
    let allowed =
        [("not found", (0, 0)), ("failed", (0, 0)), ("failed", (1, 0)), ("ready", (1, 0)), ("not found", (1, 0))];
    explore("waiting_for_work_elsewhere_versus_remove", Some(2), 10, allowed, || {
        let fixture = Fixture::new();
        let (tracker, responsibility) = fixture.materializing("f");
        let manager = fixture.manager.clone();
        let worker = thread::spawn(move || {
            manager.record(&responsibility, 1);
            if resolve(&responsibility).is_ok() {
                let _ = responsibility.notify_emitted(Vec::new());
            }
        });
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let found = find(&fixture.main, "f");
        worker.join().unwrap();
        remover.join().unwrap();
        (found, fixture.manager.counts())
    });
}

#[test]
fn two_lookups_of_one_lazy_unit() {
    explore("two_lookups_of_one_lazy_unit", None, 4, [("ready", "ready", 1)], || {
        let fixture = Fixture::new();
        let tracker = fixture.main.create_tracker().unwrap();
        let manager = fixture.manager.clone();
        let work = move |r: MaterializationResponsibility| {
            manager.record(&r, 1);
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let main = fixture.main.clone();
        let other = thread::spawn(move || find(&main, "f"));
        let here = find(&fixture.main, "f");
        let there = other.join().unwrap();
        let runs = fixture.manager.ledger.inspect(tracker.key(), |held| held.len());
        (here, there, runs)
    });
}

#[test]
fn pinning_a_found_symbol_versus_remove() {
    // Found; freed under the pin, if pinned; complete after the pin is dropped.
    let allowed = [("not found", None, true), ("found", None, true), ("found", Some(false), true)];
    explore("pinning_a_found_symbol_versus_remove", None, 10, allowed, || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let found = fixture.main.lookup(&[SymbolRequest::required("f")], RequiredState::Ready);
        let outcome = if found.is_ok() { "found" } else { "not found" };
        let symbol = found.ok().and_then(|mut found| found.remove(0).symbol);
        let pin = symbol.and_then(|symbol| fixture.session.pin(&symbol));
        let freed = pin.as_ref().map(|_| code.is_freed());
        drop(pin);
        (outcome, freed, remover.join().unwrap().is_complete())
    });
}

#[test]
fn pinning_a_name_versus_remove() {
    explore("pinning_a_name_versus_remove", None, 4, [(None, true), (Some(false), true)], || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let pin = fixture.main.pin("f");
        let freed = pin.as_ref().map(|_| code.is_freed());
        drop(pin);
        (freed, remover.join().unwrap().is_complete())
    });
}

#[test]
fn holding_a_name_through_the_index_versus_remove() {
    explore("holding_a_name_through_the_index_versus_remove", None, 4, [(None, true), (Some(false), true)], || {
        let fixture = Fixture::new();
        let code = Code::managed_in(&fixture.session);
        let tracker = fixture.loaded("f", 1);
        // From the second lookup on, handles share a pin, and the index has it.
        drop([fixture.main.hold_for_models("f"), fixture.main.hold_for_models("f")]);
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let held = fixture.main.hold_for_models("f");
        let freed = held.as_ref().map(|_| code.is_freed());
        // Loom does not see the count of an `Arc`. The dylib's lock, which the remover takes before it drops its reference,
        // stands for the release of the count.
        fixture.main.symbol_count();
        drop(held);
        (freed, remover.join().unwrap().is_complete())
    });
}

#[test]
fn materialising_versus_removing_the_name() {
    let allowed = [("not found", "ok", 0), ("ready", "could not be removed", 1), ("ready", "ok", 0)];
    explore("materialising_versus_removing_the_name", None, 4, allowed, || {
        let fixture = Fixture::new();
        let tracker = fixture.main.create_tracker().unwrap();
        let work = |r: MaterializationResponsibility| {
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let main = fixture.main.clone();
        let remover = thread::spawn(move || describe(main.remove_symbols(&["f"])));
        let found = find(&fixture.main, "f");
        (found, remover.join().unwrap(), fixture.main.symbol_count())
    });
}

#[test]
fn lookup_of_a_weak_name_versus_the_definition_that_overrides_it() {
    // One of the two definitions exists at every moment, so the lookup finds one.
    let allowed = [("ready", "ok"), ("ready", "duplicate")];
    explore("lookup_of_a_weak_name_versus_the_definition_that_overrides_it", None, 4, allowed, || {
        let fixture = Fixture::new();
        let ready = |r: MaterializationResponsibility| {
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        fixture.main.define(Unit::weak("f", ready)).unwrap();
        let main = fixture.main.clone();
        let definer = thread::spawn(move || describe(main.define(Unit::new("f", ready))));
        let found = find(&fixture.main, "f");
        (found, definer.join().unwrap())
    });
}
