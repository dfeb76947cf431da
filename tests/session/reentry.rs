//! Code that the session calls may call the session: look up, define, create a tracker, remove another tracker. One test for
//! each kind of call that the session makes with no lock held (S5). The test for the error reporter is in `reporter.rs`, and
//! those for initialisers, finalisers and exit handlers are in `tests/platform/reentry.rs`.

use std::sync::{Arc, Mutex};

use jittison::base::Name;
use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// What a callback needs: a session in which `known` is ready, and the tracker of `victim`.
#[derive(Clone)]
struct Caller {
    session: ExecutionSession,
    dylib: JitDylib,
    victim: Arc<Mutex<Option<ResourceTracker>>>,
    log: Log,
}

fn caller() -> (Fixture, Caller) {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["known"], 1)).unwrap();
    fixture.find("known").unwrap();
    let victim = fixture.loaded("victim", 66);
    let caller = Caller {
        session: fixture.session.clone(),
        dylib: fixture.main.clone(),
        victim: Arc::new(Mutex::new(Some(victim))),
        log: Log::default(),
    };
    (fixture, caller)
}

impl Caller {
    /// Makes all calls on the first use, and logs that.
    fn call_back(&self) {
        let Some(victim) = self.victim.lock().unwrap().take() else { return };
        assert_eq!(find_in(&self.session, &[&self.dylib], "known").unwrap(), 1);
        assert_not_found(find_in(&self.session, &[&self.dylib], "unknown"));
        self.dylib.define(Unit::ready(&["lazy"], 2)).unwrap();
        let tracker = self.dylib.create_tracker().unwrap();
        tracker.define(Unit::ready(&["own"], 3)).unwrap();
        assert_eq!(find_in(&self.session, &[&self.dylib], "own").unwrap(), 3);
        assert_eq!(find_in(&self.session, &[&self.dylib], "lazy").unwrap(), 2);
        assert!(tracker.remove().unwrap().is_complete());
        let (pin, removal) = (self.dylib.pin("victim").unwrap().1, victim.remove().unwrap());
        assert!(!removal.is_complete());
        drop(pin);
        assert!(removal.is_complete());
        assert_not_found(find_in(&self.session, &[&self.dylib], "victim"));
        let other = self.session.create_dylib("made by a callback").unwrap();
        self.session.remove_dylib(&other).unwrap();
        self.log.push("called back");
    }

    #[track_caller]
    fn assert_called_back(&self, fixture: &Fixture) {
        assert_eq!(self.log.take(), ["called back"]);
        assert!(fixture.manager.take_freed().contains(&66));
        assert_eq!(fixture.find("lazy").unwrap(), 2);
        assert_not_found(fixture.find("own"));
    }
}

#[test]
fn a_definition_generator_may_call_back() {
    struct Generator(Caller);
    impl DefinitionGenerator for Generator {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            // The lookups of `call_back` reach this generator, too.
            let names = names_of(missing);
            if names != ["foo"] {
                return Ok(());
            }
            self.0.call_back();
            dylib.define(Unit::ready(&names, 5))
        }
    }
    let (fixture, caller) = caller();
    fixture.main.add_generator(Arc::new(Generator(caller.clone())));
    assert_eq!(fixture.find("foo").unwrap(), 5);
    caller.assert_called_back(&fixture);
    // The generator holds the session, so the session is ended explicitly.
    fixture.session.end().unwrap();
}

#[test]
fn a_generator_that_is_removed_with_its_dylib_may_call_back_when_it_is_dropped() {
    struct Generator(Caller);
    impl DefinitionGenerator for Generator {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> Result<()> {
            Ok(())
        }
    }
    impl Drop for Generator {
        fn drop(&mut self) {
            self.0.call_back();
        }
    }
    let (fixture, caller) = caller();
    let other = fixture.session.create_dylib("other").unwrap();
    other.add_generator(Arc::new(Generator(caller.clone())));
    fixture.session.remove_dylib(&other).unwrap();
    caller.assert_called_back(&fixture);
}

#[test]
fn a_resource_manager_may_call_back_from_remove_resources() {
    struct Manager(Caller);
    impl ResourceManager for Manager {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            self.0.call_back();
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let (fixture, caller) = caller();
    let tracker = fixture.loaded("foo", 7);
    let manager: Arc<dyn ResourceManager> = Arc::new(Manager(caller.clone()));
    fixture.session.register_manager(manager.clone());
    assert!(tracker.remove().unwrap().is_complete());
    caller.assert_called_back(&fixture);
    fixture.session.deregister_manager(&manager);
}

#[test]
fn the_callback_of_a_lookup_that_a_removal_fails_may_call_back() {
    let (fixture, caller) = caller();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo"]);
    let callback = caller.clone();
    let order = [(fixture.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    fixture.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert_eq!(failed_symbols(&outcome.unwrap_err()), ["foo"]);
        callback.call_back();
    });
    assert!(tracker.remove().unwrap().is_complete());
    caller.assert_called_back(&fixture);
    assert_tracker_defunct(held.take().notify_emitted(Vec::new()));
}

#[test]
fn the_callback_of_a_lookup_that_succeeds_may_call_back() {
    let (fixture, caller) = caller();
    let held = fixture.define_held(&["foo"]);
    let callback = caller.clone();
    let order = [(fixture.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    fixture.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert_eq!(outcome.unwrap()[0].address, address(4));
        callback.call_back();
    });
    finish(held.take(), 4);
    caller.assert_called_back(&fixture);
}

#[test]
fn a_unit_may_call_back_when_it_is_materialised_and_when_it_fails() {
    for fails in [false, true] {
        let (fixture, caller) = caller();
        let callback = caller.clone();
        let unit = Unit::exported(&["foo"], move |r| {
            callback.call_back();
            if fails { r.fail(Error::other("no")) } else { finish(r, 4) }
        });
        fixture.main.define(unit).unwrap();
        assert_eq!(fixture.find("foo").is_err(), fails);
        caller.assert_called_back(&fixture);
    }
}

/// A lazy unit that calls back when it is dropped, or in `discard`.
struct Lazy {
    symbols: [(Name, SymbolFlags); 2],
    caller: Caller,
    on_discard: bool,
}

impl Lazy {
    fn new(caller: &Caller, on_discard: bool) -> Lazy {
        let symbols = [(Name::new("foo"), weak()), (Name::new("bar"), weak())];
        Lazy { symbols, caller: caller.clone(), on_discard }
    }
}

impl MaterializationUnit for Lazy {
    fn name(&self) -> &str {
        "lazy"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, r: MaterializationResponsibility) {
        finish(r, 8);
    }

    fn discard(&mut self, name: &str) {
        assert_eq!((name, self.on_discard), ("foo", true));
        self.caller.call_back();
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.caller.call_back();
    }
}

#[test]
fn a_lazy_unit_may_call_back_when_its_tracker_is_removed() {
    let (fixture, caller) = caller();
    let tracker = fixture.tracker();
    tracker.define(Lazy::new(&caller, false)).unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    caller.assert_called_back(&fixture);
}

#[test]
fn a_lazy_unit_may_call_back_when_its_last_name_is_removed() {
    let (fixture, caller) = caller();
    fixture.main.define(Lazy::new(&caller, false)).unwrap();
    fixture.main.remove_symbols(&["foo", "bar"]).unwrap();
    caller.assert_called_back(&fixture);
}

#[test]
fn a_unit_may_call_back_when_another_definition_takes_its_name() {
    let (fixture, caller) = caller();
    fixture.main.define(Lazy::new(&caller, true)).unwrap();
    fixture.main.define(Unit::ready(&["foo"], 9)).unwrap();
    assert_eq!(fixture.find("bar").unwrap(), 8);
    caller.assert_called_back(&fixture);
}

#[test]
fn a_unit_may_call_back_when_other_definitions_have_or_take_all_of_its_names() {
    for is_first in [true, false] {
        let (fixture, caller) = caller();
        if is_first {
            fixture.main.define(Lazy::new(&caller, false)).unwrap();
        }
        fixture.main.define(Unit::ready(&["foo", "bar"], 9)).unwrap();
        if !is_first {
            fixture.main.define(Lazy::new(&caller, false)).unwrap();
        }
        caller.assert_called_back(&fixture);
        assert_eq!((fixture.find("foo").unwrap(), fixture.find("bar").unwrap()), (9, 9));
    }
}

/// Calls back when it is dropped.
struct CallsBackOnDrop(Caller);

impl Drop for CallsBackOnDrop {
    fn drop(&mut self) {
        self.0.call_back();
    }
}

#[test]
fn a_value_captured_by_a_refused_record_may_call_back_when_it_is_dropped() {
    let (fixture, caller) = caller();
    let tracker = fixture.tracker();
    let (responsibility, _answer) = fixture.claim_under(&tracker, &["foo"], RequiredState::Ready);
    assert!(tracker.remove().unwrap().is_complete());
    let captured = CallsBackOnDrop(caller.clone());
    assert_tracker_defunct(responsibility.with_resource_key(move |_| drop(captured)));
    caller.assert_called_back(&fixture);
}

#[test]
fn a_value_captured_by_a_refused_unit_may_call_back_when_it_is_dropped() {
    let (fixture, caller) = caller();
    let tracker = fixture.tracker();
    let captured = CallsBackOnDrop(caller.clone());
    let unit = Unit::exported(&["known"], move |_| drop(captured));
    assert!(tracker.define(unit).is_err(), "`known` is already defined");
    caller.assert_called_back(&fixture);
}

#[test]
fn a_value_captured_by_a_refused_replacement_may_call_back_when_it_is_dropped() {
    let (fixture, caller) = caller();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo"]);
    let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let captured = CallsBackOnDrop(caller.clone());
    let unit = Unit::exported(&["other"], move |_| drop(captured));
    assert!(held.take().replace(unit).is_err(), "the symbol is not claimed");
    caller.assert_called_back(&fixture);
}

#[test]
fn the_callback_of_a_removal_may_call_back() {
    let (fixture, caller) = caller();
    let tracker = fixture.loaded("foo", 1);
    let pin = fixture.main.pin("foo").unwrap().1;
    let removal = tracker.remove().unwrap();
    let callback = caller.clone();
    removal.on_complete(move |outcome| {
        outcome.unwrap();
        callback.call_back();
    });
    drop(pin);
    caller.assert_called_back(&fixture);
}
