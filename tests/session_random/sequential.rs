//! One thread: each step is applied to a session and to the model, and both are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::model::{self, Model, Promise, Status};
use crate::unit::{LedgerManager, Unit, address};
use crate::{Choices, STEPS};

const SLOTS: usize = 2;
/// Number of names that only one dylib defines and that units may depend on. The shared names follow them.
const PRIVATE: usize = 7;
const SHARED: usize = 2;
const MAX_HANDLES: usize = 7;
const MAX_PINS: usize = 5;

struct Fixture {
    session: ExecutionSession,
    manager: Arc<LedgerManager>,
    dylibs: Vec<JitDylib>,
    names: Vec<Name>,
    handles: Vec<ResourceTracker>,
    pins: Vec<(Pin, ResourceKey)>,
    units_made: u64,
    model: Model,
    choices: Choices,
    seen: Seen,
}

/// How often each interesting event occurred. A test in which an event never occurs proves nothing about it.
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
    merged_by_drop: usize,
}

pub fn run(seed: u64) {
    let mut choices = Choices::new(seed);
    let mut remaining = STEPS;
    let mut seen = Seen::default();
    while remaining > 0 {
        let steps = (1 + choices.below(2_000)).min(remaining);
        remaining -= steps;
        let policy = *choices.of(&[ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit]);
        let mut fixture = Fixture::new(policy, Choices::new(seed ^ (remaining as u64) << 32), seen);
        for step in 0..steps {
            fixture.step();
            fixture.compare(step % 16 == 0);
        }
        seen = fixture.end();
    }
    let Seen { ran, failed, transfers, edges, held_by_pins, held_by_dependants, queued, duplicates, merged_by_drop } =
        seen;
    // The number of queued trackers differs much between seeds.
    let often =
        [ran / 10, failed, transfers, edges, held_by_pins, held_by_dependants, queued + 20, duplicates, merged_by_drop];
    assert!(often.iter().all(|count| *count >= STEPS / 500), "the test is too weak: {seen:?}");
}

impl Fixture {
    fn new(policy: ReclaimPolicy, choices: Choices, seen: Seen) -> Fixture {
        let session = ExecutionSession::with_policy(policy);
        let manager = Arc::new(LedgerManager::default());
        session.register_manager(manager.clone());
        let dylibs = (0..SLOTS).map(|_| session.create_dylib("dylib").unwrap()).collect();
        let model = Model {
            policy,
            ended: false,
            dylibs: (0..SLOTS).map(|_| model::Dylib::default()).collect(),
            trackers: BTreeMap::new(),
            units: BTreeMap::new(),
            freed: BTreeSet::new(),
        };
        let names = (0..SLOTS * PRIVATE + SHARED).map(|name| Name::new(&format!("n{name}"))).collect();
        let fixture = Fixture {
            session,
            manager,
            dylibs,
            names,
            handles: vec![],
            pins: vec![],
            units_made: 0,
            model,
            choices,
            seen,
        };
        fixture.set_link_orders();
        fixture
    }

    fn order(&self, from: usize) -> Vec<(JitDylib, Visibility)> {
        let others = (0..SLOTS).filter(|slot| *slot != from);
        let others = others.map(|slot| (self.dylibs[slot].clone(), Visibility::ExportedOnly));
        std::iter::once((self.dylibs[from].clone(), Visibility::All)).chain(others).collect()
    }

    fn set_link_orders(&self) {
        (0..SLOTS).for_each(|slot| self.dylibs[slot].set_link_order(&self.order(slot)[1..]).unwrap());
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
                let clone = self.choices.of(&self.handles).clone();
                self.keep_handle(clone);
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
            63 => drop(self.default_tracker(slot)),
            _ => self.look_up(slot),
        }
        if self.handles.len() > MAX_HANDLES {
            self.drop_defunct_handles();
        }
        if self.handles.len() > MAX_HANDLES {
            self.remove();
        }
    }

    /// Adds a handle to the kept ones.
    fn keep_handle(&mut self, tracker: ResourceTracker) {
        self.model.trackers.get_mut(&tracker.key()).unwrap().handles += 1;
        self.handles.push(tracker);
    }

    fn create_tracker(&mut self, slot: usize) {
        let tracker = self.dylibs[slot].create_tracker().unwrap();
        self.model.add_tracker(tracker.key(), slot);
        self.keep_handle(tracker);
    }

    fn default_tracker(&mut self, slot: usize) -> ResourceTracker {
        let tracker = self.dylibs[slot].default_tracker().unwrap();
        let default = &mut self.model.dylibs[slot].default;
        assert_eq!(tracker.key(), *default.get_or_insert(tracker.key()));
        self.model.add_tracker(tracker.key(), slot);
        tracker
    }

    /// A tracker with a kept handle, or the default tracker.
    fn some_tracker(&mut self, slot: usize) -> ResourceTracker {
        if self.handles.is_empty() || self.choices.one_in(6) {
            return self.default_tracker(slot);
        }
        self.choices.of(&self.handles).clone()
    }

    /// Up to `maximum` names that `slot` may define.
    fn some_names(&mut self, slot: usize, maximum: usize) -> Vec<usize> {
        let count = 1 + self.choices.below(maximum);
        let mut names = BTreeSet::new();
        for _ in 0..count {
            let name = self.choices.below(PRIVATE + SHARED);
            names.insert(if name < PRIVATE { slot * PRIVATE + name } else { (SLOTS - 1) * PRIVATE + name });
        }
        names.into_iter().collect()
    }

    /// Up to `maximum` names, mostly defined ones.
    fn known_names(&mut self, slot: usize, maximum: usize) -> Vec<usize> {
        let known: Vec<usize> = self.model.dylibs[slot].names.keys().copied().collect();
        if known.is_empty() || self.choices.one_in(12) {
            return self.some_names(slot, maximum);
        }
        let count = 1 + self.choices.below(maximum);
        let names: BTreeSet<usize> = (0..count).map(|_| *self.choices.of(&known)).collect();
        names.into_iter().collect()
    }

    /// Names for a unit to depend on: private names of any dylib, mostly defined ones.
    fn some_dependencies(&mut self) -> Vec<usize> {
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
        let dependencies = self.some_dependencies();
        let fails = self.choices.one_in(32);
        let unit = Unit {
            number,
            symbols: promises.iter().map(|p| (self.names[p.name].clone(), Fixture::flags(p))).collect(),
            dependencies: dependencies.iter().map(|name| self.names[*name].clone()).collect(),
            fails,
            manager: self.manager.clone(),
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
            promises.iter().map(|p| (self.names[p.name].clone(), ExecutorAddr::new(p.address), Fixture::flags(p)));
        let defined = tracker.define_absolute(symbols).is_ok();
        assert_eq!(defined, self.model.define(tracker.key(), &promises, None));
    }

    fn look_up(&mut self, from: usize) {
        let names = self.known_names(from, 3);
        let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(&self.names[*name])).collect();
        let outcome = self.session.lookup(&self.order(from), &requests, RequiredState::Ready);
        let ran: Vec<u64> = std::mem::take(&mut self.manager.recorded.lock().unwrap());
        let slots: Option<Vec<usize>> = names.iter().map(|name| self.model.find(from, *name)).collect();
        let Some(slots) = slots else {
            let error = outcome.expect_err("a name is absent");
            assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
            return assert!(ran.is_empty());
        };
        let requested: Vec<_> =
            slots.iter().zip(&names).map(|(slot, name)| self.model.dylibs[*slot].names[name].clone()).collect();
        let effects = self.model.effects(from, &names);
        let ran_once: BTreeSet<u64> = ran.iter().copied().collect();
        assert_eq!(ran.len(), ran_once.len(), "a unit ran twice");
        assert!(effects.must_run.is_subset(&ran_once) && ran_once.is_subset(&effects.may_run), "{ran:?}: {effects:?}");
        let fails = |symbol: &model::Symbol| !symbol.ready && symbol.unit.is_some_and(|u| effects.failing.contains(&u));
        match outcome {
            Ok(found) => {
                assert!(!requested.iter().any(fails), "the lookup should have failed");
                let found: Vec<u64> = found.iter().map(|result| result.address.value()).collect();
                assert_eq!(found, requested.iter().map(|symbol| symbol.address).collect::<Vec<_>>());
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::FailedToMaterialize { .. }), "{error}");
                assert!(requested.iter().any(fails), "the lookup should have succeeded: {error}");
            }
        }
        self.seen.ran += ran.len();
        self.seen.failed += ran_once.intersection(&effects.failing).count();
        let possible_edges = self.possible_edges(&ran_once, &effects.failing);
        let order: BTreeMap<u64, usize> = ran.iter().enumerate().map(|(at, unit)| (*unit, at)).collect();
        self.model.materialize(&ran_once, &effects.failing);
        for tracker in self.model.trackers.values_mut() {
            // In the order in which the units ran. Resources of earlier lookups come first.
            tracker.resources.sort_by_key(|unit| order.get(unit).map_or(0, |at| at + 1));
        }
        for (owner, possible) in possible_edges {
            let actual = self.dependencies(owner);
            let known = &mut self.model.trackers.get_mut(&owner).unwrap().depends_on;
            assert!(known.is_subset(&actual) && actual.is_subset(&known.union(&possible).copied().collect()));
            *known = actual;
        }
    }

    /// Edges that the trackers of failed units may have. It is open whether a failed unit was emitted.
    fn possible_edges(
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
        assert_eq!(tracker.key(), key, "a live tracker has a handle or is the default tracker");
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
        let (is_merged, slot) = (known.handles == 0 && known.status == Status::Live, known.slot);
        if is_merged && self.model.dylibs[slot].default != Some(key) {
            let default = self.default_tracker(slot).key();
            assert!(self.model.transfer(key, default));
            self.move_pins();
            self.seen.merged_by_drop += 1;
        }
        drop(tracker);
        self.model.drop_unreferenced();
    }

    fn pin(&mut self, slot: usize) {
        if self.pins.len() >= MAX_PINS {
            return self.unpin();
        }
        if !self.pins.is_empty() && self.choices.one_in(4) {
            // A clone of a pin cannot fail, even if the tracker is removed.
            let (pin, key) = self.choices.of(&self.pins);
            let clone = (pin.clone(), *key);
            self.model.trackers.get_mut(&clone.1).unwrap().pins += 1;
            return self.pins.push(clone);
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
        self.check_cleared(&keys, &pending);
    }

    fn check_cleared(&mut self, keys: &[ResourceKey], pending: &[Removal]) {
        self.model.remove(keys);
        let unfinished = keys.iter().filter(|key| self.model.trackers[*key].status == Status::Retired).count();
        assert_eq!(pending.len(), unfinished);
    }

    fn replace_dylib(&mut self, slot: usize) {
        let keys = self.live_of(slot, &self.dylibs[slot]);
        let new = self.session.create_dylib("dylib").unwrap();
        let old = std::mem::replace(&mut self.dylibs[slot], new);
        let pending = self.session.remove_dylib(&old).unwrap();
        self.check_cleared(&keys, &pending);
        assert!(old.is_defunct() && old.symbol_count() == 0 && old.create_tracker().is_err());
        assert!(self.model.dylibs[slot].names.is_empty());
        self.set_link_orders();
    }

    fn compare(&mut self, thoroughly: bool) {
        let freed = std::mem::take(&mut *self.manager.freed.lock().unwrap());
        let expected = std::mem::take(&mut self.model.freed);
        assert_eq!(freed.len(), expected.len(), "freed: {freed:?}, expected: {expected:?}");
        assert!(freed.iter().all(|resource| expected.contains(resource)));
        for (dylib, known) in self.dylibs.iter().zip(&self.model.dylibs) {
            assert_eq!(dylib.symbol_count(), known.names.len());
            for (name, symbol) in &known.names {
                let state = if symbol.ready { SymbolState::Ready } else { SymbolState::NeverSearched };
                assert_eq!(dylib.symbol_state(&self.names[*name]), Some(state), "{} of {known:?}", self.names[*name]);
            }
        }
        let mut keys_in_use = 0;
        for (key, tracker) in &self.model.trackers {
            self.manager.ledger.inspect(*key, |held| assert_eq!(held, &tracker.resources[..]));
            keys_in_use += usize::from(!tracker.resources.is_empty());
        }
        if thoroughly {
            assert_eq!(self.manager.ledger.key_count(), keys_in_use);
            self.compare_thoroughly();
        }
    }

    fn compare_thoroughly(&mut self) {
        for tracker in &self.handles {
            assert_eq!(!tracker.is_defunct(), self.model.is_live(tracker.key()));
        }
        for (key, tracker) in self.model.trackers.iter().filter(|(_, tracker)| tracker.status == Status::Live) {
            assert_eq!(self.dylibs[tracker.slot].symbol_count_of(*key), self.model.symbol_count_of(*key));
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
        assert_eq!(*self.manager.faults.lock().unwrap(), [""; 0]);
        // The session ends the newest dylib first. The order does not change what is freed at the end.
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
        assert_eq!(self.manager.ledger.key_count(), 0, "everything is freed when the last pin is dropped");
        self.seen
    }
}
