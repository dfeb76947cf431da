//! Whoever the session calls may call the session: look up, define, create a tracker, remove another tracker. One test
//! for each kind of call that it makes with no lock held (S5); the error reporter's is in `reporter.rs`, and those of
//! initialisers, finalisers and exit handlers are in `tests/platform/reentry.rs`.

use std::sync::{Arc, Mutex};

use jittison::base::Name;
use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// A session with `known`, ready, and a tracker of `victim`, for the one who calls back.
#[derive(Clone)]
struct Inside {
    session: ExecutionSession,
    dylib: JitDylib,
    victim: Arc<Mutex<Option<ResourceTracker>>>,
    log: Log,
}

fn inside() -> (World, Inside) {
    let world = World::new();
    world.main.define(Unit::ready(&["known"], 1)).unwrap();
    world.find("known").unwrap();
    let victim = world.loaded("victim", 66);
    let inside = Inside {
        session: world.session.clone(),
        dylib: world.main.clone(),
        victim: Arc::new(Mutex::new(Some(victim))),
        log: Log::default(),
    };
    (world, inside)
}

impl Inside {
    /// Does everything once, and says so.
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
        let other = self.session.create_dylib("made inside").unwrap();
        self.session.remove_dylib(&other).unwrap();
        self.log.push("called back");
    }

    #[track_caller]
    fn assert_called_back(&self, world: &World) {
        assert_eq!(self.log.take(), ["called back"]);
        assert!(world.books.take_given_back().contains(&66));
        assert_eq!(world.find("lazy").unwrap(), 2);
        assert_not_found(world.find("own"));
    }
}

#[test]
fn a_definition_generator_may_call_back() {
    struct Generator(Inside);
    impl DefinitionGenerator for Generator {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            // Its own lookups come here too.
            let names = names_of(missing);
            if names != ["foo"] {
                return Ok(());
            }
            self.0.call_back();
            dylib.define(Unit::ready(&names, 5))
        }
    }
    let (world, inside) = inside();
    world.main.add_generator(Arc::new(Generator(inside.clone())));
    assert_eq!(world.find("foo").unwrap(), 5);
    inside.assert_called_back(&world);
    // The generator holds its session, which must be told that it ends.
    world.session.end().unwrap();
}

#[test]
fn a_generator_that_is_removed_with_its_dylib_may_call_back_when_it_is_dropped() {
    struct Generator(Inside);
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
    let (world, inside) = inside();
    let other = world.session.create_dylib("other").unwrap();
    other.add_generator(Arc::new(Generator(inside.clone())));
    world.session.remove_dylib(&other).unwrap();
    inside.assert_called_back(&world);
}

#[test]
fn a_resource_manager_may_call_back_when_it_is_told_of_a_removal() {
    struct Manager(Inside);
    impl ResourceManager for Manager {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            self.0.call_back();
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let (world, inside) = inside();
    let tracker = world.loaded("foo", 7);
    let manager: Arc<dyn ResourceManager> = Arc::new(Manager(inside.clone()));
    world.session.register_manager(manager.clone());
    assert!(tracker.remove().unwrap().is_complete());
    inside.assert_called_back(&world);
    world.session.deregister_manager(&manager);
}

#[test]
fn the_callback_of_a_lookup_that_a_removal_fails_may_call_back() {
    let (world, inside) = inside();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let caller = inside.clone();
    let order = [(world.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    world.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert_eq!(failed_symbols(&outcome.unwrap_err()), ["foo"]);
        caller.call_back();
    });
    assert!(tracker.remove().unwrap().is_complete());
    inside.assert_called_back(&world);
    assert_tracker_defunct(held.take().notify_emitted(Vec::new()));
}

#[test]
fn the_callback_of_a_lookup_that_succeeds_may_call_back() {
    let (world, inside) = inside();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let caller = inside.clone();
    let order = [(world.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    world.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert_eq!(outcome.unwrap()[0].address, address(4));
        caller.call_back();
    });
    finish(held.take(), 4);
    inside.assert_called_back(&world);
}

#[test]
fn a_unit_may_call_back_when_it_is_materialised_and_when_it_fails() {
    for fails in [false, true] {
        let (world, inside) = inside();
        let caller = inside.clone();
        let unit = Unit::exported(&["foo"], move |r| {
            caller.call_back();
            if fails { r.fail(Error::other("no")) } else { finish(r, 4) }
        });
        world.main.define(unit).unwrap();
        assert_eq!(world.find("foo").is_err(), fails);
        inside.assert_called_back(&world);
    }
}

/// A lazy unit that calls back when it is dropped, or told that another definition counts.
struct Lazy {
    symbols: [(Name, SymbolFlags); 2],
    inside: Inside,
    on_discard: bool,
}

impl Lazy {
    fn new(inside: &Inside, on_discard: bool) -> Lazy {
        let symbols = [(Name::new("foo"), weak()), (Name::new("bar"), weak())];
        Lazy { symbols, inside: inside.clone(), on_discard }
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
        self.inside.call_back();
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.inside.call_back();
    }
}

#[test]
fn a_lazy_unit_may_call_back_when_its_tracker_is_removed() {
    let (world, inside) = inside();
    let tracker = world.tracker();
    tracker.define(Lazy::new(&inside, false)).unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    inside.assert_called_back(&world);
}

#[test]
fn a_lazy_unit_may_call_back_when_its_last_name_is_removed() {
    let (world, inside) = inside();
    world.main.define(Lazy::new(&inside, false)).unwrap();
    world.main.remove_symbols(&["foo", "bar"]).unwrap();
    inside.assert_called_back(&world);
}

#[test]
fn a_unit_may_call_back_when_another_definition_takes_its_name() {
    let (world, inside) = inside();
    world.main.define(Lazy::new(&inside, true)).unwrap();
    world.main.define(Unit::ready(&["foo"], 9)).unwrap();
    assert_eq!(world.find("bar").unwrap(), 8);
    inside.assert_called_back(&world);
}

#[test]
fn a_unit_may_call_back_when_other_definitions_have_or_take_all_of_its_names() {
    for is_first in [true, false] {
        let (world, inside) = inside();
        if is_first {
            world.main.define(Lazy::new(&inside, false)).unwrap();
        }
        world.main.define(Unit::ready(&["foo", "bar"], 9)).unwrap();
        if !is_first {
            world.main.define(Lazy::new(&inside, false)).unwrap();
        }
        inside.assert_called_back(&world);
        assert_eq!((world.find("foo").unwrap(), world.find("bar").unwrap()), (9, 9));
    }
}

/// Calls back when it is dropped.
struct Carried(Inside);

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.call_back();
    }
}

#[test]
fn what_a_refused_record_carries_may_call_back_when_it_is_dropped() {
    let (world, inside) = inside();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let responsibility = held.take();
    assert!(tracker.remove().unwrap().is_complete());
    let carried = Carried(inside.clone());
    assert_tracker_defunct(responsibility.with_resource_key(move |_| drop(carried)));
    inside.assert_called_back(&world);
}

#[test]
fn what_a_refused_unit_carries_may_call_back_when_it_is_dropped() {
    let (world, inside) = inside();
    let tracker = world.tracker();
    let carried = Carried(inside.clone());
    let unit = Unit::exported(&["known"], move |_| drop(carried));
    assert!(tracker.define(unit).is_err(), "it is defined already");
    inside.assert_called_back(&world);
}

#[test]
fn what_a_unit_carries_that_cannot_be_given_back_may_call_back_when_it_is_dropped() {
    let (world, inside) = inside();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let carried = Carried(inside.clone());
    let unit = Unit::exported(&["other"], move |_| drop(carried));
    assert!(held.take().replace(unit).is_err(), "it is not owed");
    inside.assert_called_back(&world);
}

#[test]
fn the_callback_of_a_removal_may_call_back() {
    let (world, inside) = inside();
    let tracker = world.loaded("foo", 1);
    let pin = world.main.pin("foo").unwrap().1;
    let removal = tracker.remove().unwrap();
    let caller = inside.clone();
    removal.on_complete(move |outcome| {
        outcome.unwrap();
        caller.call_back();
    });
    drop(pin);
    inside.assert_called_back(&world);
}
