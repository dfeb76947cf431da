//! Symbols that are looked up again and again are answered without their dylib's lock; they must go, change and hide like
//! any other. Each test looks its symbols up often enough first.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::base::Name;
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

/// Defines absolute symbols under a tracker of their own and looks each up until it is answered the short way.
fn popular(world: &World, names: &[&str], at: u64) -> ResourceTracker {
    let tracker = world.main.create_tracker().unwrap();
    tracker.define_absolute(names.iter().map(|name| (Name::new(name), address(at), EXPORTED))).unwrap();
    for name in names {
        for _ in 0..3 {
            assert_eq!(world.main.lookup_address(name).unwrap(), address(at));
        }
    }
    tracker
}

fn is_missing(world: &World, name: &str) -> bool {
    let error = world.main.lookup_address(name).expect_err("the symbol is gone");
    matches!(error.kind(), ErrorKind::SymbolsNotFound { symbols, .. } if *symbols == [name])
}

#[test]
fn a_symbol_that_was_looked_up_often_goes_with_its_tracker() {
    let world = World::new();
    let tracker = popular(&world, &["foo"], 0x10);
    tracker.remove().unwrap();
    assert!(is_missing(&world, "foo"));
}

#[test]
fn a_symbol_that_was_looked_up_often_goes_by_name() {
    let world = World::new();
    let _tracker = popular(&world, &["foo", "bar"], 0x10);
    world.main.remove_symbols(&["foo"]).unwrap();
    assert!(is_missing(&world, "foo"));
    assert_eq!(world.main.lookup_address("bar").unwrap(), address(0x10));
}

#[test]
fn hundreds_of_symbols_that_were_looked_up_often_go_with_one_removal() {
    let world = World::new();
    let names: Vec<String> = (0..1_000).map(|index| format!("symbol_{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tracker = popular(&world, &names, 0x10);
    tracker.remove().unwrap();
    assert!(names.iter().all(|name| is_missing(&world, name)));
}

#[test]
fn a_new_definition_of_a_name_that_was_looked_up_often_has_the_new_address() {
    let world = World::new();
    for at in [0x10, 0x20, 0x30] {
        popular(&world, &["foo"], at).remove().unwrap();
    }
}

#[test]
fn a_symbol_that_was_looked_up_often_stays_when_its_tracker_is_merged_and_goes_with_the_other() {
    let world = World::new();
    let tracker = popular(&world, &["foo"], 0x10);
    let other = world.main.create_tracker().unwrap();
    tracker.transfer_to(&other).unwrap();
    assert_eq!(world.main.lookup_address("foo").unwrap(), address(0x10));
    other.remove().unwrap();
    assert!(is_missing(&world, "foo"));
}

#[test]
fn a_hidden_symbol_that_was_looked_up_often_stays_hidden_from_other_dylibs() {
    let world = World::new();
    let tracker = world.main.create_tracker().unwrap();
    tracker.define_absolute([(Name::new("foo"), address(0x10), SymbolFlags::NONE)]).unwrap();
    let next = world.session.create_dylib("next").unwrap();
    next.define_absolute([(Name::new("foo"), address(0x20), EXPORTED)]).unwrap();
    let seen_from_outside = [(world.main.clone(), Visibility::ExportedOnly), (next, Visibility::ExportedOnly)];
    for _ in 0..5 {
        assert_eq!(world.main.lookup_address("foo").unwrap(), address(0x10));
        assert_eq!(world.session.lookup_address(&seen_from_outside, "foo").unwrap(), address(0x20));
        let twice = [SymbolRequest::required("foo"); 2];
        let found = world.session.lookup(&seen_from_outside, &twice, RequiredState::Ready).unwrap();
        assert!(found.iter().all(|result| result.address == address(0x20)), "{found:?}");
    }
}

#[test]
fn a_symbol_that_was_looked_up_often_goes_with_its_dylib() {
    let world = World::new();
    let _tracker = popular(&world, &["foo"], 0x10);
    world.session.remove_dylib(&world.main).unwrap();
    let error = world.main.lookup_address("foo").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
}

#[test]
fn the_definition_behind_a_symbol_that_was_looked_up_often_is_the_one_in_the_table() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 0x10)).unwrap();
    let request = [SymbolRequest::required("foo")];
    let found: Vec<_> = (0..4).map(|_| world.main.lookup(&request, RequiredState::Ready).unwrap().remove(0)).collect();
    for result in &found {
        assert_eq!(result.address, address(0x10));
        assert!(world.session.pin(result.symbol.as_ref().expect("linked code has a definition")).is_some());
    }
    world.main.default_tracker().unwrap().remove().unwrap();
    assert!(found.iter().all(|result| world.session.pin(result.symbol.as_ref().unwrap()).is_none()));
}

#[test]
fn a_reader_beside_redefinitions_sees_an_address_that_was_current() {
    const ROUNDS: u64 = 20_000;
    let world = World::new();
    let (start, done) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                let mut newest = 0;
                while !done.load(Ordering::Relaxed) {
                    let Ok(found) = world.main.lookup_address("foo") else { continue };
                    assert!(found.value() >= newest, "an older definition came back");
                    newest = found.value();
                }
            });
        }
        // At a failed assertion too, or the readers would never end.
        let _end = StoreOnDrop(&done);
        start.wait();
        for round in 1..=ROUNDS {
            let tracker = world.main.create_tracker().unwrap();
            tracker.define_absolute([(Name::new("foo"), address(round), EXPORTED)]).unwrap();
            assert_eq!(world.main.lookup_address("foo").unwrap(), address(round));
            tracker.remove().unwrap();
        }
    });
}

struct StoreOnDrop<'a>(&'a AtomicBool);

impl Drop for StoreOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
