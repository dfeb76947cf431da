//! Model: a search through a long link order, which caches where it found a name, races with definitions and removals of that
//! name in the dylibs of the order.
//!
//! Runs `src/session/symbols/name_watch.rs`, `src/session/core/order_cache.rs` and `src/session/lookup/long_order.rs`. A search that
//! starts after a definition has returned finds the first definition in order, whatever the cache held or was about to hold.
//!
//! Seeded bugs: `watched_after_the_search`, `definition_leaves_the_watch`.

#![cfg(loom)]

mod support;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;
use loom::thread;
use support::*;

/// A dylib that links against two others. Two make a long order in a model.
struct Order {
    own: JitDylib,
    others: [JitDylib; 2],
    _fixture: Fixture,
}

fn order() -> Order {
    let fixture = Fixture::new();
    let others = ["first", "second"].map(|name| fixture.session.create_dylib(name).unwrap());
    fixture.main.set_link_order(&others.each_ref().map(|other| (other.clone(), Visibility::ExportedOnly))).unwrap();
    Order { own: fixture.main.clone(), others, _fixture: fixture }
}

fn define(dylib: &JitDylib, at: u64) -> ResourceTracker {
    let tracker = dylib.create_tracker().unwrap();
    tracker.define_absolute([(Name::new("f"), ExecutorAddr::new(at), SymbolFlags::EXPORTED)]).unwrap();
    tracker
}

fn address(own: &JitDylib) -> Option<u64> {
    own.address_for_models("f").map(ExecutorAddr::value)
}

#[test]
fn first_search_versus_a_definition_in_an_earlier_dylib() {
    // What the racing search found, and what a search after both found.
    let outcomes = [(Some(2), Some(1)), (Some(1), Some(1))];
    explore("first_search_versus_a_definition_in_an_earlier_dylib", Some(2), 2, outcomes, || {
        let order = order();
        let _second = define(&order.others[1], 2);
        let own = order.own.clone();
        let search = thread::spawn(move || address(&own));
        let _first = define(&order.others[0], 1);
        (search.join().unwrap(), address(&order.own))
    });
}

#[test]
fn cached_search_versus_a_definition_in_an_earlier_dylib() {
    let outcomes = [(Some(2), Some(1)), (Some(1), Some(1))];
    explore("cached_search_versus_a_definition_in_an_earlier_dylib", Some(2), 2, outcomes, || {
        let order = order();
        let _second = define(&order.others[1], 2);
        assert_eq!(address(&order.own), Some(2));
        let own = order.own.clone();
        let search = thread::spawn(move || address(&own));
        let _first = define(&order.others[0], 1);
        (search.join().unwrap(), address(&order.own))
    });
}

#[test]
fn cached_search_versus_removal_of_the_definition() {
    let outcomes = [(Some(1), None), (None, None)];
    explore("cached_search_versus_removal_of_the_definition", Some(2), 2, outcomes, || {
        let order = order();
        let tracker = define(&order.others[0], 1);
        assert_eq!(address(&order.own), Some(1));
        let remover = thread::spawn(move || drop(tracker.remove().unwrap()));
        let found = address(&order.own);
        remover.join().unwrap();
        (found, address(&order.own))
    });
}
