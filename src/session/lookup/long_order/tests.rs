//! Tests of searches through long link orders: their steps at two sizes, and that the cache never gives a stale answer.

use super::*;
use crate::base::{ExecutorAddr, sized, steps_of};
use crate::error::{ErrorKind, Result};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::lookup::ready_lookup::try_lookup;
use crate::session::{
    DefinitionGenerator, ExecutionSession, MaterializationResponsibility, RequiredState, ResourceTracker, SymbolFlags,
    SymbolRequest,
};
use crate::sync::Mutex;

const EXPORTED: SymbolFlags = SymbolFlags::EXPORTED;

/// A dylib that links against `count` others.
struct Fixture {
    session: ExecutionSession,
    own: JitDylib,
    others: Vec<JitDylib>,
}

fn fixture(count: usize) -> Fixture {
    let session = ExecutionSession::new();
    let own = session.create_dylib("own").unwrap();
    let others: Vec<_> = (0..count).map(|number| session.create_dylib(&format!("other {number}")).unwrap()).collect();
    let order: Vec<_> = others.iter().map(|other| (other.clone(), Visibility::ExportedOnly)).collect();
    own.set_link_order(&order).unwrap();
    Fixture { session, own, others }
}

fn define(dylib: &JitDylib, name: &str, address: u64, flags: SymbolFlags) -> ResourceTracker {
    let tracker = dylib.create_tracker().unwrap();
    tracker.define_absolute([(Name::new(name), ExecutorAddr::new(address), flags)]).unwrap();
    tracker
}

impl Fixture {
    fn address(&self, name: &str) -> Option<u64> {
        self.own.find_address(name).ok().map(|(address, _)| address.value())
    }

    /// What a link finds at once.
    fn linked(&self, name: &str) -> Option<u64> {
        let found = try_lookup(self.own.inner(), &[name.as_bytes()], RequiredState::Resolved)?;
        Some(found.symbols[0].address.value())
    }

    /// What a link finds that may wait and call generators.
    fn awaited(&self, name: &str) -> Option<u64> {
        let tracker = self.own.create_tracker().unwrap();
        let unit = tracker.define_materializing("unit", []).unwrap();
        // Without worker threads, the lookup is complete when the call returns.
        let received = Arc::new(Mutex::new(None));
        let sender = received.clone();
        let requests = [SymbolRequest::weak(name)];
        let on_complete = move |_: MaterializationResponsibility, found: Result<Vec<crate::session::LookupResult>>| {
            *sender.lock() = Some(found.unwrap()[0].address.value());
        };
        unit.lookup(&requests, RequiredState::Ready, on_complete);
        let address = received.lock().take().unwrap();
        Some(address).filter(|address| *address != 0)
    }

    /// What all kinds of lookup find, which must agree.
    #[track_caller]
    fn found(&self, name: &str) -> Option<u64> {
        let address = self.address(name);
        assert_eq!((self.awaited(name), self.address(name)), (address, address), "`{name}`");
        assert_eq!(self.linked(name).or(address), address);
        address
    }

    /// What the dylibs say, one by one.
    fn expected(&self, name: &str) -> Option<u64> {
        let of = |dylib: &JitDylib, visibility: Visibility| {
            let state = dylib.inner().state.lock();
            let symbol = state.table.symbol(state.find_visible(name, visibility)?)?;
            Some(symbol.address().value())
        };
        let others = || self.others.iter().find_map(|other| of(other, Visibility::ExportedOnly));
        of(&self.own, Visibility::All).or_else(others)
    }
}

#[test]
fn a_search_takes_the_same_steps_behind_any_number_of_dylibs() {
    let steps = [sized(10, 5), sized(1000, 12)].map(|count| {
        let f = fixture(count);
        define(&f.own, "own", 1, SymbolFlags::NONE);
        define(&f.others[count - 1], "last", 2, EXPORTED);
        let names = ["own", "last", "nowhere"];
        let addresses = || names.map(|name| f.address(name));
        let first = steps_of(|| assert_eq!(addresses(), [Some(1), Some(2), None]));
        assert!(first >= count, "the first search goes through all");
        let links = || ["own", "last"].map(|name| f.linked(name));
        addresses();
        links();
        let _awaited = names.map(|name| f.awaited(name));
        let warm = [
            steps_of(|| assert_eq!(addresses(), [Some(1), Some(2), None])),
            steps_of(|| assert_eq!(links(), [Some(1), Some(2)])),
            steps_of(|| assert_eq!(names.map(|name| f.awaited(name)), [Some(1), Some(2), None])),
        ];
        assert!(warm.iter().all(|steps| *steps <= 24), "{warm:?}");
        warm
    });
    assert_eq!(steps[0], steps[1]);
}

#[test]
fn a_name_of_the_dylib_itself_is_found_without_a_walk_of_its_order() {
    let steps = [10, sized(1000, 12)].map(|count| {
        let f = fixture(count);
        define(&f.own, "own", 1, SymbolFlags::NONE);
        steps_of(|| assert_eq!(f.address("own"), Some(1)))
    });
    assert_eq!(steps[0], steps[1]);
}

#[test]
fn the_error_of_a_missing_name_names_the_first_dylibs_of_a_long_order() {
    let f = fixture(40);
    let error = f.own.find_address("nowhere").unwrap_err();
    let ErrorKind::SymbolsNotFound { symbols, searched, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((symbols.len(), searched.len(), &*searched[0], &*searched[16]), (1, 17, "own", "and 25 more"));
}

#[test]
fn a_definition_in_an_earlier_dylib_wins_as_soon_as_it_is_there() {
    let f = fixture(20);
    define(&f.others[19], "name", 19, EXPORTED);
    assert_eq!(f.found("name"), Some(19));
    for earlier in [10, 3, 0] {
        define(&f.others[earlier], "name", earlier as u64 + 100, EXPORTED);
        assert_eq!(f.found("name"), Some(earlier as u64 + 100));
    }
    define(&f.own, "name", 7, SymbolFlags::NONE);
    assert_eq!(f.found("name"), Some(7));
}

#[test]
fn a_hidden_definition_in_an_earlier_dylib_does_not_count_and_an_exported_one_after_it_does() {
    let f = fixture(20);
    define(&f.others[19], "name", 19, EXPORTED);
    let hidden = define(&f.others[2], "name", 2, SymbolFlags::NONE);
    assert_eq!(f.found("name"), Some(19));
    hidden.remove().unwrap();
    assert_eq!(f.found("name"), Some(19));
    define(&f.others[2], "name", 3, EXPORTED);
    assert_eq!(f.found("name"), Some(3));
}

#[test]
fn a_removed_definition_is_not_found_and_the_next_one_in_order_is() {
    let f = fixture(20);
    let trackers = [5, 12].map(|at| define(&f.others[at], "name", at as u64, EXPORTED));
    assert_eq!(f.found("name"), Some(5));
    trackers[0].remove().unwrap();
    assert_eq!(f.found("name"), Some(12));
    trackers[1].remove().unwrap();
    assert_eq!(f.found("name"), None);
    define(&f.others[5], "name", 6, EXPORTED);
    assert_eq!(f.found("name"), Some(6));
}

struct Defines(u64);

impl DefinitionGenerator for Defines {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let wanted = missing.iter().filter(|request| request.name == "generated");
        dylib.define_absolute(wanted.map(|request| (Name::new(request.name), ExecutorAddr::new(self.0), EXPORTED)))
    }
}

#[test]
fn a_generator_of_an_earlier_dylib_is_called_before_a_later_definition_is_found() {
    let f = fixture(20);
    define(&f.others[19], "generated", 19, EXPORTED);
    define(&f.others[19], "other", 20, EXPORTED);
    assert_eq!((f.found("generated"), f.found("other"), f.found("nowhere")), (Some(19), Some(20), None));
    f.others[4].add_generator(Arc::new(Defines(4)));
    assert_eq!((f.found("generated"), f.found("other"), f.found("nowhere")), (Some(4), Some(20), None));
}

#[test]
fn a_search_past_a_generator_takes_the_same_steps_behind_any_number_of_dylibs() {
    let steps = [10, sized(500, 12)].map(|count| {
        let f = fixture(count);
        f.others[0].add_generator(Arc::new(Defines(4)));
        define(&f.others[count - 1], "last", 2, EXPORTED);
        assert_eq!((f.address("last"), f.address("last"), f.address("nowhere")), (Some(2), Some(2), None));
        steps_of(|| assert_eq!((f.address("last"), f.address("nowhere")), (Some(2), None)))
    });
    assert_eq!(steps[0], steps[1]);
}

#[test]
fn an_edited_link_order_counts_at_once() {
    let f = fixture(20);
    define(&f.others[19], "name", 19, EXPORTED);
    define(&f.others[3], "only", 3, EXPORTED);
    assert_eq!((f.found("name"), f.found("only")), (Some(19), Some(3)));
    let new = f.session.create_dylib("new").unwrap();
    define(&new, "name", 77, EXPORTED);
    assert!(f.own.replace_in_link_order(&f.others[3], &new, Visibility::ExportedOnly).unwrap());
    assert_eq!((f.address("name"), f.address("only"), f.linked("name")), (Some(77), None, Some(77)));
    assert!(f.own.remove_from_link_order(&new));
    assert_eq!((f.address("name"), f.awaited("name")), (Some(19), Some(19)));
}

#[test]
fn removed_dylibs_are_passed_over_and_the_cache_does_not_keep_many_of_them() {
    let f = fixture(40);
    define(&f.others[39], "name", 39, EXPORTED);
    define(&f.others[30], "name", 30, EXPORTED);
    assert_eq!(f.address("name"), Some(30));
    let known: Vec<_> = f.others.iter().map(JitDylib::downgrade).collect();
    let Fixture { session, own, mut others } = f;
    let removed: Vec<_> = others.drain(..35).collect();
    removed.iter().for_each(|dylib| drop(session.remove_dylib(dylib).unwrap()));
    drop(removed);
    assert_eq!(own.find_address("name").unwrap().0.value(), 39);
    // The session keeps a few spares.
    let kept = known.iter().filter(|dylib| dylib.strong_count() > 0).count();
    assert!(kept <= 5 + 4, "{kept} of 40 dylibs");
    assert_eq!(own.find_address("name").unwrap().0.value(), 39);
}

#[test]
fn random_definitions_removals_and_lookups_find_the_first_definition_in_order() {
    let f = fixture(12);
    let names = ["a", "b", "c", "d", "e"];
    let mut defined: Vec<((usize, usize), ResourceTracker)> = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    for round in 0..sized(6000, 60) {
        let (dylib, name) = (random(13), random(names.len()));
        match random(4) {
            0 if !defined.iter().any(|(at, _)| *at == (dylib, name)) => {
                let flags = if random(3) == 0 { SymbolFlags::NONE } else { EXPORTED };
                let into = f.others.get(dylib).unwrap_or(&f.own);
                defined.push(((dylib, name), define(into, names[name], round as u64 + 1, flags)));
            }
            1 if !defined.is_empty() => {
                let (_, tracker) = defined.swap_remove(random(defined.len()));
                tracker.remove().unwrap();
            }
            _ => {
                let expected = f.expected(names[name]);
                assert_eq!(f.found(names[name]), expected, "`{}` in round {round}", names[name]);
            }
        }
    }
}
