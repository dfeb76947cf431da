//! The index of ready symbols, which answers repeated lookups without the lock of the dylib, and the negative cache, which
//! skips dylibs that lack a name. Indexed symbols can be removed, redefined and hidden like all others. Each test first looks
//! its symbols up so often that they are in the index, or their absence in the cache.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::base::Name;
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

/// Defines absolute symbols under a new tracker, and looks each up until it is in the index.
fn indexed(fixture: &Fixture, names: &[&str], at: u64) -> ResourceTracker {
    let tracker = fixture.main.create_tracker().unwrap();
    tracker.define_absolute(names.iter().map(|name| (Name::new(name), address(at), EXPORTED))).unwrap();
    for name in names {
        for _ in 0..3 {
            assert_eq!(fixture.main.lookup_address(name).unwrap(), address(at));
        }
    }
    tracker
}

fn is_missing(fixture: &Fixture, name: &str) -> bool {
    let error = fixture.main.lookup_address(name).expect_err("the symbol is gone");
    matches!(error.kind(), ErrorKind::SymbolsNotFound { symbols, .. } if *symbols == [name])
}

#[test]
fn an_indexed_symbol_is_removed_with_its_tracker() {
    let fixture = Fixture::new();
    let tracker = indexed(&fixture, &["foo"], 0x10);
    tracker.remove().unwrap();
    assert!(is_missing(&fixture, "foo"));
}

#[test]
fn an_indexed_symbol_can_be_removed_by_name() {
    let fixture = Fixture::new();
    let _tracker = indexed(&fixture, &["foo", "bar"], 0x10);
    fixture.main.remove_symbols(&["foo"]).unwrap();
    assert!(is_missing(&fixture, "foo"));
    assert_eq!(fixture.main.lookup_address("bar").unwrap(), address(0x10));
}

#[test]
fn one_removal_removes_hundreds_of_indexed_symbols() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..sized(1_000, 40)).map(|index| format!("symbol_{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tracker = indexed(&fixture, &names, 0x10);
    tracker.remove().unwrap();
    assert!(names.iter().all(|name| is_missing(&fixture, name)));
}

#[test]
fn a_new_definition_of_an_indexed_name_has_the_new_address() {
    let fixture = Fixture::new();
    for at in [0x10, 0x20, 0x30] {
        indexed(&fixture, &["foo"], at).remove().unwrap();
    }
}

#[test]
fn an_indexed_symbol_follows_a_transfer_of_its_tracker() {
    let fixture = Fixture::new();
    let tracker = indexed(&fixture, &["foo"], 0x10);
    let other = fixture.main.create_tracker().unwrap();
    tracker.transfer_to(&other).unwrap();
    assert_eq!(fixture.main.lookup_address("foo").unwrap(), address(0x10));
    other.remove().unwrap();
    assert!(is_missing(&fixture, "foo"));
}

#[test]
fn an_indexed_hidden_symbol_stays_hidden_from_other_dylibs() {
    let fixture = Fixture::new();
    let tracker = fixture.main.create_tracker().unwrap();
    tracker.define_absolute([(Name::new("foo"), address(0x10), SymbolFlags::NONE)]).unwrap();
    let next = fixture.session.create_dylib("next").unwrap();
    next.define_absolute([(Name::new("foo"), address(0x20), EXPORTED)]).unwrap();
    let exported_only = [(fixture.main.clone(), Visibility::ExportedOnly), (next, Visibility::ExportedOnly)];
    for _ in 0..5 {
        assert_eq!(fixture.main.lookup_address("foo").unwrap(), address(0x10));
        assert_eq!(fixture.session.lookup_address(&exported_only, "foo").unwrap(), address(0x20));
        let twice = [SymbolRequest::required("foo"); 2];
        let found = fixture.session.lookup(&exported_only, &twice, RequiredState::Ready).unwrap();
        assert!(found.iter().all(|result| result.address == address(0x20)), "{found:?}");
    }
}

#[test]
fn an_indexed_symbol_is_removed_with_its_dylib() {
    let fixture = Fixture::new();
    let _tracker = indexed(&fixture, &["foo"], 0x10);
    fixture.session.remove_dylib(&fixture.main).unwrap();
    let error = fixture.main.lookup_address("foo").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
}

#[test]
fn the_definition_of_an_indexed_symbol_is_the_one_in_the_symbol_table() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 0x10)).unwrap();
    let request = [SymbolRequest::required("foo")];
    let found: Vec<_> =
        (0..4).map(|_| fixture.main.lookup(&request, RequiredState::Ready).unwrap().remove(0)).collect();
    for result in &found {
        assert_eq!(result.address, address(0x10));
        assert!(fixture.session.pin(result.symbol.as_ref().expect("linked code has a definition")).is_some());
    }
    fixture.main.default_tracker().unwrap().remove().unwrap();
    assert!(found.iter().all(|result| fixture.session.pin(result.symbol.as_ref().unwrap()).is_none()));
}

#[test]
fn a_reader_during_redefinitions_never_sees_an_older_address() {
    const ROUNDS: u64 = sized(20_000, 6);
    let fixture = Fixture::new();
    let (start, done) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                let mut newest = 0;
                while !done.load(Ordering::Relaxed) {
                    let Ok(found) = fixture.main.lookup_address("foo") else { continue };
                    assert!(found.value() >= newest, "an older definition was found");
                    newest = found.value();
                }
            });
        }
        // Ends the readers, also after a failed assertion.
        let _end = jittison_test_tools::SetOnDrop(&done);
        start.wait();
        for round in 1..=ROUNDS {
            let tracker = fixture.main.create_tracker().unwrap();
            tracker.define_absolute([(Name::new("foo"), address(round), EXPORTED)]).unwrap();
            assert_eq!(fixture.main.lookup_address("foo").unwrap(), address(round));
            tracker.remove().unwrap();
        }
    });
}

// ---- the negative cache ---------------------------------------------------------------------------------

/// A search order of `front` and then `main`. `name` and `other` are in `main`, and were looked up until `front` caches their
/// absence.
fn cached_absent(fixture: &Fixture) -> (JitDylib, Vec<(JitDylib, Visibility)>) {
    fixture.main.define_absolute(["name", "other"].map(|name| (Name::new(name), address(1), EXPORTED))).unwrap();
    let front = fixture.session.create_dylib("front").unwrap();
    let order = vec![(front.clone(), Visibility::All), (fixture.main.clone(), Visibility::All)];
    for _ in 0..4 {
        assert_eq!(both(fixture, &order), [1, 1]);
    }
    (front, order)
}

fn both(fixture: &Fixture, order: &[(JitDylib, Visibility)]) -> Vec<u64> {
    let requests = ["name", "other"].map(SymbolRequest::required);
    let found = fixture.session.lookup(order, &requests, RequiredState::Ready).unwrap();
    found.iter().map(|result| result.address.value()).collect()
}

#[test]
fn a_cached_absent_name_is_found_once_it_is_defined() {
    type Define = fn(&ResourceTracker);
    let defines: [Define; 4] = [
        |tracker| tracker.define_absolute([(Name::new("name"), address(2), EXPORTED)]).unwrap(),
        |tracker| tracker.define(Unit::ready(&["name"], 2)).unwrap(),
        |tracker| finish(tracker.define_materializing("given code", [(Name::new("name"), EXPORTED)]).unwrap(), 2),
        |tracker| tracker.define(Unit::new(&[("name", weak())], |r| finish(r, 2))).unwrap(),
    ];
    for define in defines {
        let fixture = Fixture::new();
        let (front, order) = cached_absent(&fixture);
        for _ in 0..2 {
            let tracker = front.create_tracker().unwrap();
            define(&tracker);
            for _ in 0..3 {
                assert_eq!(both(&fixture, &order), [2, 1]);
                let one = fixture.session.lookup_address(&order, "name").unwrap();
                assert_eq!(one, address(2));
            }
            tracker.remove().unwrap();
            for _ in 0..3 {
                assert_eq!(both(&fixture, &order), [1, 1]);
            }
        }
    }
}

struct NameGenerator;

impl DefinitionGenerator for NameGenerator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), jittison::Error> {
        if names_of(missing).contains(&"name") {
            dylib.define_absolute([(Name::new("name"), address(3), EXPORTED)])?;
        }
        Ok(())
    }
}

#[test]
fn a_new_generator_is_asked_for_a_cached_absent_name() {
    let fixture = Fixture::new();
    let (front, order) = cached_absent(&fixture);
    front.add_generator(std::sync::Arc::new(NameGenerator));
    assert_eq!(both(&fixture, &order), [3, 1]);
}

#[test]
fn a_removed_dylib_with_cached_absent_names_is_skipped() {
    let fixture = Fixture::new();
    let (front, order) = cached_absent(&fixture);
    let user = fixture.session.create_dylib("user").unwrap();
    user.set_link_order(&order).unwrap();
    fixture.session.remove_dylib(&front).unwrap();
    drop((front, order));
    let next = fixture.session.create_dylib("front").unwrap();
    let order = [(next.clone(), Visibility::All), (fixture.main.clone(), Visibility::All)];
    next.define_absolute([(Name::new("name"), address(4), EXPORTED)]).unwrap();
    assert_eq!(both(&fixture, &order), [4, 1]);
    assert_eq!(both(&fixture, &[vec![(user.clone(), Visibility::All)], user.link_order()].concat()), [1, 1]);
}

#[test]
fn thousands_of_cached_absent_names_are_found_in_later_dylibs_and_once_defined() {
    let fixture = Fixture::new();
    let front = fixture.session.create_dylib("front").unwrap();
    let order = [(front.clone(), Visibility::All), (fixture.main.clone(), Visibility::All)];
    let names: Vec<String> = (0..sized(5_000, 40)).map(|index| format!("symbol_{index}")).collect();
    fixture.main.define_absolute(names.iter().map(|name| (Name::new(name), address(1), EXPORTED))).unwrap();
    let assert_all_at = |expected: u64| {
        for pair in names.chunks(2) {
            let requests = [&pair[0], &pair[1]].map(|name| SymbolRequest::required(name));
            for _ in 0..3 {
                let found = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
                assert!(found.iter().all(|result| result.address == address(expected)));
            }
        }
    };
    assert_all_at(1);
    let tracker = front.create_tracker().unwrap();
    tracker.define_absolute(names.iter().map(|name| (Name::new(name), address(2), EXPORTED))).unwrap();
    assert_all_at(2);
    tracker.remove().unwrap();
    assert_all_at(1);
}
