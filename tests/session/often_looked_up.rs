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
    let names: Vec<String> = (0..sized(1_000, 40)).map(|index| format!("symbol_{index}")).collect();
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
    const ROUNDS: u64 = sized(20_000, 6);
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

// ---- names that a dylib is passed by with ---------------------------------------------------------------

/// A session with `front` ahead of `main` in an order; `name` and `other` are in `main`, and were looked for through `front` until
/// that is not locked any more.
fn passed_by(world: &World) -> (JitDylib, Vec<(JitDylib, Visibility)>) {
    world.main.define_absolute(["name", "other"].map(|name| (Name::new(name), address(1), EXPORTED))).unwrap();
    let front = world.session.create_dylib("front").unwrap();
    let order = vec![(front.clone(), Visibility::All), (world.main.clone(), Visibility::All)];
    for _ in 0..4 {
        assert_eq!(both(world, &order), [1, 1]);
    }
    (front, order)
}

fn both(world: &World, order: &[(JitDylib, Visibility)]) -> Vec<u64> {
    let requests = ["name", "other"].map(SymbolRequest::required);
    let found = world.session.lookup(order, &requests, RequiredState::Ready).unwrap();
    found.iter().map(|result| result.address.value()).collect()
}

#[test]
fn a_name_that_a_dylib_was_passed_by_with_is_found_in_it_once_it_is_defined() {
    type Define = fn(&ResourceTracker);
    let defines: [Define; 4] = [
        |tracker| tracker.define_absolute([(Name::new("name"), address(2), EXPORTED)]).unwrap(),
        |tracker| tracker.define(Unit::ready(&["name"], 2)).unwrap(),
        |tracker| finish(tracker.define_materializing("at hand", [(Name::new("name"), EXPORTED)]).unwrap(), 2),
        |tracker| tracker.define(Unit::new(&[("name", weak())], |r| finish(r, 2))).unwrap(),
    ];
    for define in defines {
        let world = World::new();
        let (front, order) = passed_by(&world);
        for _ in 0..2 {
            let tracker = front.create_tracker().unwrap();
            define(&tracker);
            for _ in 0..3 {
                assert_eq!(both(&world, &order), [2, 1]);
                let one = world.session.lookup_address(&order, "name").unwrap();
                assert_eq!(one, address(2));
            }
            tracker.remove().unwrap();
            for _ in 0..3 {
                assert_eq!(both(&world, &order), [1, 1]);
            }
        }
    }
}

struct Generates;

impl DefinitionGenerator for Generates {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), jittison::Error> {
        if names_of(missing).contains(&"name") {
            dylib.define_absolute([(Name::new("name"), address(3), EXPORTED)])?;
        }
        Ok(())
    }
}

#[test]
fn a_name_that_a_dylib_was_passed_by_with_is_asked_of_its_generators_once_it_has_one() {
    let world = World::new();
    let (front, order) = passed_by(&world);
    front.add_generator(std::sync::Arc::new(Generates));
    assert_eq!(both(&world, &order), [3, 1]);
}

#[test]
fn a_dylib_that_was_passed_by_is_passed_by_removed_too() {
    let world = World::new();
    let (front, order) = passed_by(&world);
    let user = world.session.create_dylib("user").unwrap();
    user.set_link_order(&order);
    world.session.remove_dylib(&front).unwrap();
    drop((front, order));
    let next = world.session.create_dylib("front").unwrap();
    let order = [(next.clone(), Visibility::All), (world.main.clone(), Visibility::All)];
    next.define_absolute([(Name::new("name"), address(4), EXPORTED)]).unwrap();
    assert_eq!(both(&world, &order), [4, 1]);
    assert_eq!(both(&world, &[vec![(user.clone(), Visibility::All)], user.link_order()].concat()), [1, 1]);
}

#[test]
fn thousands_of_names_that_a_dylib_is_passed_by_with_are_found_behind_it_and_defined_in_it() {
    let world = World::new();
    let front = world.session.create_dylib("front").unwrap();
    let order = [(front.clone(), Visibility::All), (world.main.clone(), Visibility::All)];
    let names: Vec<String> = (0..sized(5_000, 40)).map(|index| format!("symbol_{index}")).collect();
    world.main.define_absolute(names.iter().map(|name| (Name::new(name), address(1), EXPORTED))).unwrap();
    let look = |expected: u64| {
        for pair in names.chunks(2) {
            let requests = [&pair[0], &pair[1]].map(|name| SymbolRequest::required(name));
            for _ in 0..3 {
                let found = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
                assert!(found.iter().all(|result| result.address == address(expected)));
            }
        }
    };
    look(1);
    let tracker = front.create_tracker().unwrap();
    tracker.define_absolute(names.iter().map(|name| (Name::new(name), address(2), EXPORTED))).unwrap();
    look(2);
    tracker.remove().unwrap();
    look(1);
}
