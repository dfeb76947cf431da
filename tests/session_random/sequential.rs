//! One thread: every step is done to a session and to the model, and both are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::model::{self, Model, Promise, Status};
use crate::unit::{Books, Unit, address};
use crate::{Choices, STEPS};

const SLOTS: usize = 2;
/// Names that only one dylib defines, and that units may depend on; behind them come the shared ones.
const PRIVATE: usize = 7;
const SHARED: usize = 2;
const MOST_HANDLES: usize = 7;
const MOST_PINS: usize = 5;

struct World {
    session: ExecutionSession,
    books: Arc<Books>,
    dylibs: Vec<JitDylib>,
    names: Vec<Name>,
    handles: Vec<ResourceTracker>,
    pins: Vec<(Pin, ResourceKey)>,
    units_made: u64,
    model: Model,
    choices: Choices,
    seen: Seen,
}

/// How often the interesting things came about: a test that never gets there proves nothing.
#[derive(Default, Debug)]
struct Seen {
    ran: usize,
    failed: usize,
    transfers: usize,
    edges: usize,
    held_by_pins: usize,
    held_by_dependants: usize,
    queued: usize,
    duplicates: usize,
    forgotten: usize,
}

pub fn run(seed: u64) {
    let mut choices = Choices::new(seed);
    let mut left = STEPS;
    let mut seen = Seen::default();
    while left > 0 {
        let steps = (1 + choices.below(2_000)).min(left);
        left -= steps;
        let policy = *choices.of(&[ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit]);
        let mut world = World::new(policy, Choices::new(seed ^ (left as u64) << 32), seen);
        for step in 0..steps {
            world.step();
            world.compare(step % 16 == 0);
        }
        seen = world.end();
    }
    let Seen { ran, failed, transfers, edges, held_by_pins, held_by_dependants, queued, duplicates, forgotten } = seen;
    // How often a session is told to queue differs from seed to seed.
    let often =
        [ran / 10, failed, transfers, edges, held_by_pins, held_by_dependants, queued + 20, duplicates, forgotten];
    assert!(often.iter().all(|count| *count >= STEPS / 500), "the test has lost its teeth: {seen:?}");
}

impl World {
    fn new(policy: ReclaimPolicy, choices: Choices, seen: Seen) -> World {
        let session = ExecutionSession::with_policy(policy);
        let books = Arc::new(Books::default());
        session.register_manager(books.clone());
        let dylibs = (0..SLOTS).map(|_| session.create_dylib("dylib").unwrap()).collect();
        let model = Model {
            policy,
            ended: false,
            dylibs: (0..SLOTS).map(|_| model::Dylib::default()).collect(),
            trackers: BTreeMap::new(),
            units: BTreeMap::new(),
            given_back: BTreeSet::new(),
        };
        let names = (0..SLOTS * PRIVATE + SHARED).map(|name| Name::new(&format!("n{name}"))).collect();
        let world =
            World { session, books, dylibs, names, handles: vec![], pins: vec![], units_made: 0, model, choices, seen };
        world.set_link_orders();
        world
    }

    fn order(&self, from: usize) -> Vec<(JitDylib, Visibility)> {
        let others = (0..SLOTS).filter(|slot| *slot != from);
        let others = others.map(|slot| (self.dylibs[slot].clone(), Visibility::ExportedOnly));
        std::iter::once((self.dylibs[from].clone(), Visibility::All)).chain(others).collect()
    }

    fn set_link_orders(&self) {
        (0..SLOTS).for_each(|slot| self.dylibs[slot].set_link_order(&self.order(slot)[1..]));
    }

    fn step(&mut self) {
        let slot = self.choices.below(SLOTS);
        match self.choices.below(64) {
            0..=6 => self.create_tracker(slot),
            7..=23 => self.define(slot),
            24 => self.define_absolute(slot),
            25..=41 => self.look_up(slot),
            42..=44 => self.transfer(),
            45..=49 => self.remove(),
            50 | 51 => self.remove_symbols(slot),
            52 => self.drop_handle(),
            53 | 54 if !self.handles.is_empty() => {
                let again = self.choices.of(&self.handles).clone();
                self.handle(again);
            }
            55..=58 => self.pin(slot),
            59 => self.unpin(),
            60 if self.choices.one_in(4) => self.clear(slot),
            61 if self.choices.one_in(8) => self.replace_dylib(slot),
            62 => {
                let reclaimed = self.session.reclaim();
                assert_eq!(reclaimed, self.model.reclaim());
                self.seen.queued += reclaimed;
            }
            63 => drop(self.default(slot)),
            _ => self.look_up(slot),
        }
        if self.handles.len() > MOST_HANDLES {
            self.drop_defunct_handles();
        }
        if self.handles.len() > MOST_HANDLES {
            self.remove();
        }
    }

    /// Keeps a handle.
    fn handle(&mut self, tracker: ResourceTracker) {
        self.model.trackers.get_mut(&tracker.key()).unwrap().handles += 1;
        self.handles.push(tracker);
    }

    fn create_tracker(&mut self, slot: usize) {
        let tracker = self.dylibs[slot].create_tracker().unwrap();
        self.model.add_tracker(tracker.key(), slot);
        self.handle(tracker);
    }

    fn default(&mut self, slot: usize) -> ResourceTracker {
        let tracker = self.dylibs[slot].default_tracker().unwrap();
        let default = &mut self.model.dylibs[slot].default;
        assert_eq!(tracker.key(), *default.get_or_insert(tracker.key()));
        self.model.add_tracker(tracker.key(), slot);
        tracker
    }

    /// Any that there is a handle to, or the default one.
    fn some_tracker(&mut self, slot: usize) -> ResourceTracker {
        if self.handles.is_empty() || self.choices.one_in(6) {
            return self.default(slot);
        }
        self.choices.of(&self.handles).clone()
    }

    /// Such as `slot` may define.
    fn some_names(&mut self, slot: usize, most: usize) -> Vec<usize> {
        let count = 1 + self.choices.below(most);
        let mut names = BTreeSet::new();
        for _ in 0..count {
            let name = self.choices.below(PRIVATE + SHARED);
            names.insert(if name < PRIVATE { slot * PRIVATE + name } else { (SLOTS - 1) * PRIVATE + name });
        }
        names.into_iter().collect()
    }

    /// Mostly such as are defined.
    fn known_names(&mut self, slot: usize, most: usize) -> Vec<usize> {
        let known: Vec<usize> = self.model.dylibs[slot].names.keys().copied().collect();
        if known.is_empty() || self.choices.one_in(12) {
            return self.some_names(slot, most);
        }
        let count = 1 + self.choices.below(most);
        let names: BTreeSet<usize> = (0..count).map(|_| *self.choices.of(&known)).collect();
        names.into_iter().collect()
    }

    /// Private ones, mostly defined, in any dylib.
    fn dependencies_to_be(&mut self) -> Vec<usize> {
        let names = self.model.dylibs.iter().flat_map(|dylib| dylib.names.keys().copied());
        let known: Vec<usize> = names.filter(|name| *name < SLOTS * PRIVATE).collect();
        if known.is_empty() || self.choices.one_in(24) {
            return vec![self.choices.below(SLOTS * PRIVATE)];
        }
        (0..self.choices.below(4)).map(|_| *self.choices.of(&known)).collect()
    }

    fn promises(&mut self, slot: usize, address_of: impl Fn(usize) -> ExecutorAddr) -> Vec<Promise> {
        let names = self.some_names(slot, 3);
        let choices = &mut self.choices;
        let promise = |(index, name)| Promise {
            name,
            weak: choices.one_in(3),
            exported: !choices.one_in(6),
            address: address_of(index).value(),
        };
        names.into_iter().enumerate().map(promise).collect()
    }

    fn flags(promise: &Promise) -> SymbolFlags {
        let weak = if promise.weak { SymbolFlags::WEAK } else { SymbolFlags::NONE };
        weak | if promise.exported { SymbolFlags::EXPORTED } else { SymbolFlags::NONE }
    }

    fn define(&mut self, slot: usize) {
        let tracker = self.some_tracker(slot);
        let slot = self.model.trackers[&tracker.key()].slot;
        self.units_made += 1;
        let number = self.units_made;
        let promises = self.promises(slot, |index| address(number, index));
        let dependencies = self.dependencies_to_be();
        let fails = self.choices.one_in(32);
        let unit = Unit {
            number,
            symbols: promises.iter().map(|p| (self.names[p.name].clone(), World::flags(p))).collect(),
            dependencies: dependencies.iter().map(|name| self.names[*name].clone()).collect(),
            fails,
            books: self.books.clone(),
            discarded: Vec::new(),
        };
        let defined = tracker.define(unit).is_ok();
        let unit = model::Unit { slot, dependencies, fails };
        assert_eq!(defined, self.model.define(tracker.key(), &promises, Some((number, unit))));
        self.seen.duplicates += usize::from(!defined && !tracker.is_defunct());
    }

    fn define_absolute(&mut self, slot: usize) {
        let tracker = self.some_tracker(slot);
        let slot = self.model.trackers[&tracker.key()].slot;
        let base = self.choices.below(1 << 20) as u64;
        let promises = self.promises(slot, |index| address(base, index));
        let symbols =
            promises.iter().map(|p| (self.names[p.name].clone(), ExecutorAddr::new(p.address), World::flags(p)));
        let defined = tracker.define_absolute(symbols).is_ok();
        assert_eq!(defined, self.model.define(tracker.key(), &promises, None));
    }

    fn look_up(&mut self, from: usize) {
        let names = self.known_names(from, 3);
        let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(&self.names[*name])).collect();
        let outcome = self.session.lookup(&self.order(from), &requests, RequiredState::Ready);
        let ran: Vec<u64> = std::mem::take(&mut self.books.recorded.lock().unwrap());
        let slots: Option<Vec<usize>> = names.iter().map(|name| self.model.find(from, *name)).collect();
        let Some(slots) = slots else {
            let error = outcome.expect_err("a name is not there");
            assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
            return assert!(ran.is_empty());
        };
        let wanted: Vec<_> =
            slots.iter().zip(&names).map(|(slot, name)| self.model.dylibs[*slot].names[name].clone()).collect();
        let effects = self.model.effects(from, &names);
        let ran_once: BTreeSet<u64> = ran.iter().copied().collect();
        assert_eq!(ran.len(), ran_once.len(), "a unit ran twice");
        assert!(effects.must_run.is_subset(&ran_once) && ran_once.is_subset(&effects.may_run), "{ran:?}: {effects:?}");
        let fails = |symbol: &model::Symbol| !symbol.ready && symbol.unit.is_some_and(|u| effects.failing.contains(&u));
        match outcome {
            Ok(found) => {
                assert!(!wanted.iter().any(fails), "the lookup should have failed");
                let found: Vec<u64> = found.iter().map(|result| result.address.value()).collect();
                assert_eq!(found, wanted.iter().map(|symbol| symbol.address).collect::<Vec<_>>());
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::FailedToMaterialize { .. }), "{error}");
                assert!(wanted.iter().any(fails), "the lookup should have succeeded: {error}");
            }
        }
        self.seen.ran += ran.len();
        self.seen.failed += ran_once.intersection(&effects.failing).count();
        let doubtful = self.doubtful_edges(&ran_once, &effects.failing);
        let order: BTreeMap<u64, usize> = ran.iter().enumerate().map(|(at, unit)| (*unit, at)).collect();
        self.model.materialize(&ran_once, &effects.failing);
        for tracker in self.model.trackers.values_mut() {
            // In the order in which they ran; those of earlier lookups come first.
            tracker.resources.sort_by_key(|unit| order.get(unit).map_or(0, |at| at + 1));
        }
        for (owner, possible) in doubtful {
            let actual = self.dependencies(owner);
            let known = &mut self.model.trackers.get_mut(&owner).unwrap().depends_on;
            assert!(known.is_subset(&actual) && actual.is_subset(&known.union(&possible).copied().collect()));
            *known = actual;
        }
    }

    /// A unit that failed may have come to being emitted: what its tracker may depend on by that.
    fn doubtful_edges(
        &self,
        ran: &BTreeSet<u64>,
        failing: &BTreeSet<u64>,
    ) -> BTreeMap<ResourceKey, BTreeSet<ResourceKey>> {
        let mut edges: BTreeMap<ResourceKey, BTreeSet<ResourceKey>> = BTreeMap::new();
        for id in ran.intersection(failing) {
            let unit = &self.model.units[id];
            let mut symbols = self.model.dylibs[unit.slot].names.values();
            let owner = symbols.find(|symbol| symbol.unit == Some(*id)).unwrap().owner;
            for name in &unit.dependencies {
                let Some(slot) = self.model.find(unit.slot, *name) else { continue };
                edges.entry(owner).or_default().insert(self.model.dylibs[slot].names[name].owner);
            }
        }
        edges
    }

    fn dependencies(&self, key: ResourceKey) -> BTreeSet<ResourceKey> {
        let slot = self.model.trackers[&key].slot;
        let known = self.handles.iter().find(|tracker| tracker.key() == key);
        let tracker = known.cloned().unwrap_or_else(|| self.dylibs[slot].default_tracker().unwrap());
        assert_eq!(tracker.key(), key, "a live tracker has a handle, or is the default one");
        tracker.dependencies().iter().map(ResourceTracker::key).collect()
    }

    fn transfer(&mut self) {
        let slot = self.choices.below(SLOTS);
        let (source, destination) = (self.some_tracker(slot), self.some_tracker(slot));
        let transferred = source.transfer_to(&destination).is_ok();
        assert_eq!(transferred, self.model.transfer(source.key(), destination.key()));
        self.seen.transfers += usize::from(transferred && source.key() != destination.key());
        self.move_pins();
    }

    fn move_pins(&mut self) {
        self.pins.iter_mut().for_each(|(_, key)| *key = self.model.current(*key));
    }

    fn remove(&mut self) {
        let slot = self.choices.below(SLOTS);
        let tracker = self.some_tracker(slot);
        let key = tracker.key();
        let removal = tracker.remove();
        match self.model.trackers[&key].status {
            Status::Merged(_) => return assert!(removal.is_err()),
            Status::Live => self.model.remove(&[key]),
            _ => {}
        }
        self.check_ticket(&removal.unwrap(), key);
        assert!(tracker.is_defunct() && tracker.define_absolute([]).is_err());
    }

    fn check_ticket(&mut self, removal: &Removal, key: ResourceKey) {
        let tracker = &self.model.trackers[&key];
        assert_eq!(removal.is_complete(), tracker.status == Status::Reclaimed, "{removal:?}");
        if tracker.status == Status::Retired {
            let (pins, dependants) = (tracker.pins, self.model.dependants(key));
            assert_eq!(removal.blockers(), (pins, dependants));
            self.seen.held_by_pins += usize::from(pins > 0);
            self.seen.held_by_dependants += usize::from(dependants > 0);
        }
    }

    fn remove_symbols(&mut self, slot: usize) {
        let names = self.known_names(slot, 2);
        let texts: Vec<&str> = names.iter().map(|name| self.names[*name].as_str()).collect();
        let removed = self.dylibs[slot].remove_symbols(&texts).is_ok();
        assert_eq!(removed, self.model.remove_symbols(slot, &names));
    }

    fn drop_defunct_handles(&mut self) {
        for at in (0..self.handles.len()).rev() {
            if self.handles[at].is_defunct() {
                self.drop_handle_at(at);
            }
        }
    }

    fn drop_handle(&mut self) {
        if !self.handles.is_empty() {
            let at = self.choices.below(self.handles.len());
            self.drop_handle_at(at);
        }
    }

    fn drop_handle_at(&mut self, at: usize) {
        let tracker = self.handles.swap_remove(at);
        let key = tracker.key();
        let known = self.model.trackers.get_mut(&key).unwrap();
        known.handles -= 1;
        let (forgotten, slot) = (known.handles == 0 && known.status == Status::Live, known.slot);
        if forgotten && self.model.dylibs[slot].default != Some(key) {
            let default = self.default(slot).key();
            assert!(self.model.transfer(key, default));
            self.move_pins();
            self.seen.forgotten += 1;
        }
        drop(tracker);
        self.model.forget_gone();
    }

    fn pin(&mut self, slot: usize) {
        if self.pins.len() >= MOST_PINS {
            return self.unpin();
        }
        if !self.pins.is_empty() && self.choices.one_in(4) {
            // Beside another pin: that cannot fail, even when the tracker is removed.
            let (pin, key) = self.choices.of(&self.pins);
            let again = (pin.clone(), *key);
            self.model.trackers.get_mut(&again.1).unwrap().pins += 1;
            return self.pins.push(again);
        }
        let name = self.known_names(slot, 1)[0];
        let pinned = self.dylibs[slot].pin(&self.names[name]);
        let symbol = self.model.dylibs[slot].names.get(&name).filter(|symbol| symbol.ready);
        assert_eq!(pinned.as_ref().map(|(at, _)| at.value()), symbol.map(|symbol| symbol.address));
        let owner = symbol.map(|symbol| symbol.owner);
        if let (Some((_, pin)), Some(owner)) = (pinned, owner) {
            self.model.trackers.get_mut(&owner).unwrap().pins += 1;
            self.pins.push((pin, owner));
        }
    }

    fn unpin(&mut self) {
        if !self.pins.is_empty() {
            let at = self.choices.below(self.pins.len());
            let (pin, key) = self.pins.swap_remove(at);
            drop(pin);
            self.model.unpin(key);
        }
    }

    fn live_of(&self, slot: usize, dylib: &JitDylib) -> Vec<ResourceKey> {
        let here = |key: &ResourceKey| self.handles.iter().any(|t| t.key() == *key && t.dylib() == *dylib);
        let live = self.model.trackers.iter().filter(|(_, t)| t.status == Status::Live && t.slot == slot);
        live.map(|(key, _)| *key).filter(|key| here(key) || self.model.dylibs[slot].default == Some(*key)).collect()
    }

    fn clear(&mut self, slot: usize) {
        let keys = self.live_of(slot, &self.dylibs[slot]);
        let pending = self.dylibs[slot].clear().unwrap();
        self.cleared(&keys, &pending);
    }

    fn cleared(&mut self, keys: &[ResourceKey], pending: &[Removal]) {
        self.model.remove(keys);
        let unfinished = keys.iter().filter(|key| self.model.trackers[*key].status == Status::Retired).count();
        assert_eq!(pending.len(), unfinished);
    }

    fn replace_dylib(&mut self, slot: usize) {
        let keys = self.live_of(slot, &self.dylibs[slot]);
        let new = self.session.create_dylib("dylib").unwrap();
        let old = std::mem::replace(&mut self.dylibs[slot], new);
        let pending = self.session.remove_dylib(&old).unwrap();
        self.cleared(&keys, &pending);
        assert!(old.is_defunct() && old.symbol_count() == 0 && old.create_tracker().is_err());
        assert!(self.model.dylibs[slot].names.is_empty());
        self.set_link_orders();
    }

    fn compare(&mut self, thoroughly: bool) {
        let given_back = std::mem::take(&mut *self.books.given_back.lock().unwrap());
        let expected = std::mem::take(&mut self.model.given_back);
        assert_eq!(given_back.len(), expected.len(), "given back: {given_back:?}, expected: {expected:?}");
        assert!(given_back.iter().all(|resource| expected.contains(resource)));
        for (dylib, known) in self.dylibs.iter().zip(&self.model.dylibs) {
            assert_eq!(dylib.symbol_count(), known.names.len());
            for (name, symbol) in &known.names {
                let state = if symbol.ready { SymbolState::Ready } else { SymbolState::NeverSearched };
                assert_eq!(dylib.symbol_state(&self.names[*name]), Some(state), "{} of {known:?}", self.names[*name]);
            }
        }
        let mut keys_in_use = 0;
        for (key, tracker) in &self.model.trackers {
            self.books.ledger.inspect(*key, |held| assert_eq!(held, &tracker.resources[..]));
            keys_in_use += usize::from(!tracker.resources.is_empty());
        }
        if thoroughly {
            assert_eq!(self.books.ledger.key_count(), keys_in_use);
            self.compare_thoroughly();
        }
    }

    fn compare_thoroughly(&mut self) {
        for tracker in &self.handles {
            assert_eq!(!tracker.is_defunct(), self.model.live(tracker.key()));
        }
        for (key, tracker) in self.model.trackers.iter().filter(|(_, tracker)| tracker.status == Status::Live) {
            assert_eq!(self.dylibs[tracker.slot].symbol_count_of(*key), self.model.owned(*key));
            assert_eq!(self.dependencies(*key), tracker.depends_on);
            self.seen.edges += tracker.depends_on.len();
        }
        for (dylib, known) in self.dylibs.iter().zip(&self.model.dylibs) {
            for (name, symbol) in &known.names {
                let flags = dylib.symbol_flags(&self.names[*name]).unwrap();
                assert_eq!(flags.contains(SymbolFlags::WEAK), symbol.weak);
                assert_eq!(flags.contains(SymbolFlags::EXPORTED), symbol.exported);
                assert_eq!(flags.contains(SymbolFlags::ABSOLUTE), symbol.unit.is_none());
            }
        }
    }

    fn end(mut self) -> Seen {
        self.session.end().unwrap();
        assert_eq!(*self.books.faults.lock().unwrap(), [""; 0]);
        // Newest dylib first, which makes no difference to what is free at the end.
        let live: Vec<_> =
            self.model.trackers.iter().filter(|(_, t)| t.status == Status::Live).map(|(key, _)| *key).collect();
        self.model.remove(&live);
        self.model.ended = true;
        self.model.reclaim();
        self.compare(false);
        assert!(self.session.dylibs().is_empty() && self.session.create_dylib("late").is_err());
        while !self.pins.is_empty() {
            self.unpin();
            self.compare(false);
        }
        assert_eq!(self.books.ledger.key_count(), 0, "everything is given back when the last pin has gone");
        self.seen
    }
}
