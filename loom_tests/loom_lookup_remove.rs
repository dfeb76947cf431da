//! Every interleaving of looking a symbol up with removing its tracker or its name.
//!
//! Checks `src/session/lookup/blocking.rs`, `src/session/removal/unpublish.rs` and `src/session/removal/symbol_watch.rs`: a lookup always gets an
//! answer, and exactly one; what its unit recorded is given back; a pin that was got keeps the managers from being told.

#![cfg(loom)]

mod support;

use std::sync::{Arc, Mutex};

use jittison::session::*;
use loom::thread;
use support::*;

#[test]
fn materialising_versus_remove() {
    // What the lookup said, whether the unit's resource was accepted if it ran, symbols left, books.
    let allowed = [
        ("not found", None, 0, (0, 0)),
        ("failed", Some(false), 0, (0, 0)),
        ("failed", Some(true), 0, (1, 0)),
        ("ready", Some(true), 0, (1, 0)),
    ];
    explore("materialising_versus_remove", None, 10, allowed, || {
        let scene = Scene::new();
        let tracker = scene.main.create_tracker().unwrap();
        let accepted = Arc::new(Mutex::new(None));
        let (bank, written) = (scene.bank.clone(), accepted.clone());
        let work = move |r: MaterializationResponsibility| {
            *written.lock().unwrap() = Some(bank.record(&r, 1));
            if resolve(&r).is_ok() {
                let _ = r.notify_emitted(Vec::new());
            }
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let found = find(&scene.main, "f");
        remover.join().unwrap();
        let accepted = *accepted.lock().unwrap();
        (found, accepted, scene.main.symbol_count(), scene.bank.books())
    });
}

#[test]
fn waiting_for_work_elsewhere_versus_remove() {
    // The work is another thread's and goes on at its own pace; the lookup is told by it or by the removal.
    let allowed =
        [("not found", (0, 0)), ("failed", (0, 0)), ("failed", (1, 0)), ("ready", (1, 0)), ("not found", (1, 0))];
    explore("waiting_for_work_elsewhere_versus_remove", Some(2), 10, allowed, || {
        let scene = Scene::new();
        let (tracker, responsibility) = scene.at_work("f");
        let bank = scene.bank.clone();
        let worker = thread::spawn(move || {
            bank.record(&responsibility, 1);
            if resolve(&responsibility).is_ok() {
                let _ = responsibility.notify_emitted(Vec::new());
            }
        });
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let found = find(&scene.main, "f");
        worker.join().unwrap();
        remover.join().unwrap();
        (found, scene.bank.books())
    });
}

#[test]
fn two_lookups_of_one_lazy_unit() {
    explore("two_lookups_of_one_lazy_unit", None, 4, [("ready", "ready", 1)], || {
        let scene = Scene::new();
        let tracker = scene.main.create_tracker().unwrap();
        let bank = scene.bank.clone();
        let work = move |r: MaterializationResponsibility| {
            bank.record(&r, 1);
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let main = scene.main.clone();
        let other = thread::spawn(move || find(&main, "f"));
        let here = find(&scene.main, "f");
        let there = other.join().unwrap();
        let runs = scene.bank.ledger.inspect(tracker.key(), |held| held.len());
        (here, there, runs)
    });
}

#[test]
fn pinning_what_a_lookup_found_versus_remove() {
    // Found, pinned, freed under the pin; complete once the pin is gone.
    let allowed = [("not found", None, true), ("found", None, true), ("found", Some(false), true)];
    explore("pinning_what_a_lookup_found_versus_remove", None, 10, allowed, || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let found = scene.main.lookup(&[SymbolRequest::required("f")], RequiredState::Ready);
        let said = if found.is_ok() { "found" } else { "not found" };
        let symbol = found.ok().and_then(|mut found| found.remove(0).symbol);
        let pin = symbol.and_then(|symbol| scene.session.pin(&symbol));
        let freed = pin.as_ref().map(|_| code.is_freed());
        drop(pin);
        (said, freed, remover.join().unwrap().is_complete())
    });
}

#[test]
fn pinning_a_name_versus_remove() {
    explore("pinning_a_name_versus_remove", None, 4, [(None, true), (Some(false), true)], || {
        let scene = Scene::new();
        let code = Code::managed_in(&scene.session);
        let tracker = scene.loaded("f", 1);
        let remover = thread::spawn(move || tracker.remove().unwrap());
        let pin = scene.main.pin("f");
        let freed = pin.as_ref().map(|_| code.is_freed());
        drop(pin);
        (freed, remover.join().unwrap().is_complete())
    });
}

#[test]
fn materialising_versus_removing_the_name() {
    let allowed = [("not found", "ok", 0), ("ready", "could not be removed", 1), ("ready", "ok", 0)];
    explore("materialising_versus_removing_the_name", None, 4, allowed, || {
        let scene = Scene::new();
        let tracker = scene.main.create_tracker().unwrap();
        let work = |r: MaterializationResponsibility| {
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        tracker.define(Unit::new("f", work)).unwrap();
        let main = scene.main.clone();
        let remover = thread::spawn(move || said(main.remove_symbols(&["f"])));
        let found = find(&scene.main, "f");
        (found, remover.join().unwrap(), scene.main.symbol_count())
    });
}

#[test]
fn looking_a_weak_name_up_versus_the_definition_that_overrides_it() {
    // Defined throughout: it is found, whichever of the two it is.
    let allowed = [("ready", "ok"), ("ready", "duplicate")];
    explore("looking_a_weak_name_up_versus_the_definition_that_overrides_it", None, 4, allowed, || {
        let scene = Scene::new();
        let ready = |r: MaterializationResponsibility| {
            resolve(&r).unwrap();
            r.notify_emitted(Vec::new()).unwrap();
        };
        scene.main.define(Unit::weak("f", ready)).unwrap();
        let main = scene.main.clone();
        let definer = thread::spawn(move || said(main.define(Unit::new("f", ready))));
        let found = find(&scene.main, "f");
        (found, definer.join().unwrap())
    });
}
