//! [`Model`]: a simple model of a session, in maps and sets. No unit runs between two steps, so a symbol is lazy or ready.

use std::collections::{BTreeMap, BTreeSet};

use jittison::session::{ReclaimPolicy, ResourceKey};

pub type UnitId = u64;

#[derive(Clone, Debug)]
pub struct Symbol {
    pub owner: ResourceKey,
    /// `None` for an absolute symbol.
    pub unit: Option<UnitId>,
    pub address: u64,
    pub weak: bool,
    pub exported: bool,
    pub ready: bool,
}

#[derive(Clone, Debug)]
pub struct Promise {
    pub name: usize,
    pub weak: bool,
    pub exported: bool,
    pub address: u64,
}

#[derive(Clone, Debug)]
pub struct Unit {
    pub slot: usize,
    pub dependencies: Vec<usize>,
    pub fails: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Live,
    Merged(ResourceKey),
    Retired,
    /// Its last pin was dropped under `ReclaimPolicy::Explicit`.
    Queued,
    Reclaimed,
}

#[derive(Clone, Debug)]
pub struct Tracker {
    pub slot: usize,
    pub status: Status,
    pub handles: usize,
    pub pins: usize,
    pub resources: Vec<u64>,
    pub depends_on: BTreeSet<ResourceKey>,
}

#[derive(Default, Debug)]
pub struct Dylib {
    pub names: BTreeMap<usize, Symbol>,
    pub default: Option<ResourceKey>,
}

pub struct Model {
    pub policy: ReclaimPolicy,
    pub ended: bool,
    /// By slot. A new dylib reuses the slot of a removed one.
    pub dylibs: Vec<Dylib>,
    pub trackers: BTreeMap<ResourceKey, Tracker>,
    /// Units that have not run and still have symbols.
    pub units: BTreeMap<UnitId, Unit>,
    /// Resources that were freed in this step.
    pub freed: BTreeSet<u64>,
}

/// The effects of a lookup.
#[derive(Default, Debug)]
pub struct Effects {
    pub failing: BTreeSet<UnitId>,
    /// Units that certainly run.
    pub must_run: BTreeSet<UnitId>,
    /// Units that may run: it is open whether a failing unit has looked up its dependencies.
    pub may_run: BTreeSet<UnitId>,
}

impl Model {
    pub fn is_live(&self, key: ResourceKey) -> bool {
        self.trackers[&key].status == Status::Live
    }

    /// The tracker that a key was merged into, or the key itself.
    pub fn current(&self, mut key: ResourceKey) -> ResourceKey {
        while let Status::Merged(into) = self.trackers[&key].status {
            key = into;
        }
        key
    }

    pub fn add_tracker(&mut self, key: ResourceKey, slot: usize) {
        self.trackers.entry(key).or_insert(Tracker {
            slot,
            status: Status::Live,
            handles: 0,
            pins: 0,
            resources: Vec::new(),
            depends_on: BTreeSet::new(),
        });
    }

    pub fn symbol_count_of(&self, key: ResourceKey) -> usize {
        self.dylibs[self.trackers[&key].slot].names.values().filter(|symbol| symbol.owner == key).count()
    }

    /// Returns whether the definition is accepted. If it is not, the table is unchanged.
    pub fn define(&mut self, owner: ResourceKey, promises: &[Promise], unit: Option<(UnitId, Unit)>) -> bool {
        let slot = self.trackers[&owner].slot;
        let names = &mut self.dylibs[slot].names;
        let clashes = |promise: &Promise| {
            let existing = names.get(&promise.name);
            !promise.weak && existing.is_some_and(|existing| !existing.weak || existing.ready)
        };
        if self.trackers[&owner].status != Status::Live || promises.iter().any(clashes) {
            return false;
        }
        let id = unit.as_ref().map(|(id, _)| *id);
        for promise in promises {
            if promise.weak && names.contains_key(&promise.name) {
                continue;
            }
            let &Promise { name, weak, exported, address } = promise;
            names.insert(name, Symbol { owner, unit: id, address, weak, exported, ready: id.is_none() });
        }
        self.units.extend(unit);
        self.drop_empty_units();
        true
    }

    /// The slot in which a search from `from` finds a name.
    pub fn find(&self, from: usize, name: usize) -> Option<usize> {
        let slots = std::iter::once(from).chain((0..self.dylibs.len()).filter(|slot| *slot != from));
        let visible = |slot: &usize| self.dylibs[*slot].names.get(&name).is_some_and(|s| s.exported || *slot == from);
        slots.into_iter().find(visible)
    }

    /// The unit that defines a name, or `None` if the name is absent. The inner `None` is a ready symbol.
    fn lazy_unit(&self, from: usize, name: usize) -> Option<Option<UnitId>> {
        let symbol = &self.dylibs[self.find(from, name)?].names[&name];
        Some(symbol.unit.filter(|_| !symbol.ready))
    }

    pub fn effects(&self, from: usize, names: &[usize]) -> Effects {
        let roots: BTreeSet<UnitId> = names.iter().filter_map(|name| self.lazy_unit(from, *name).flatten()).collect();
        let dependencies =
            |unit: &Unit| unit.dependencies.iter().map(|name| self.lazy_unit(unit.slot, *name)).collect();
        let reach = |through: &dyn Fn(UnitId) -> bool| {
            let mut reached = roots.clone();
            let mut unvisited: Vec<_> = roots.iter().copied().collect();
            while let Some(id) = unvisited.pop() {
                let next: Vec<Option<Option<UnitId>>> = dependencies(&self.units[&id]);
                if through(id) {
                    unvisited.extend(next.into_iter().flatten().flatten().filter(|next| reached.insert(*next)));
                }
            }
            reached
        };
        let may_run = reach(&|id| !self.units[&id].fails);
        let mut failing = BTreeSet::new();
        loop {
            let fails = |id: &&UnitId| {
                let unit = &self.units[*id];
                let found: Vec<Option<Option<UnitId>>> = dependencies(unit);
                let bad = |found: &Option<Option<UnitId>>| {
                    found.is_none_or(|unit| unit.is_some_and(|u| failing.contains(&u)))
                };
                unit.fails || found.iter().any(bad)
            };
            let found: BTreeSet<_> = may_run.iter().filter(fails).copied().collect();
            if found.len() == failing.len() {
                break;
            }
            failing = found;
        }
        let must_run = reach(&|id| !failing.contains(&id));
        Effects { failing, must_run, may_run }
    }

    /// Makes the symbols of units that have run ready, or removes them if the units failed.
    pub fn materialize(&mut self, ran: &BTreeSet<UnitId>, failing: &BTreeSet<UnitId>) {
        let owner_of = |id: UnitId, dylibs: &[Dylib], slot: usize| {
            dylibs[slot].names.values().find(|symbol| symbol.unit == Some(id)).expect("a unit has symbols").owner
        };
        let mut edges = Vec::new();
        for id in ran {
            let unit = &self.units[id];
            let owner = owner_of(*id, &self.dylibs, unit.slot);
            self.trackers.get_mut(&owner).unwrap().resources.push(*id);
            if failing.contains(id) {
                continue;
            }
            for name in &unit.dependencies {
                let symbol = &self.dylibs[self.find(unit.slot, *name).unwrap()].names[name];
                if symbol.unit.is_some() && symbol.owner != owner {
                    edges.push((owner, symbol.owner));
                }
            }
        }
        for (from, to) in edges {
            self.trackers.get_mut(&from).unwrap().depends_on.insert(to);
        }
        for dylib in &mut self.dylibs {
            let failed = |symbol: &Symbol| {
                !symbol.ready && symbol.unit.is_some_and(|u| ran.contains(&u) && failing.contains(&u))
            };
            dylib.names.retain(|_, symbol| !failed(symbol));
            for symbol in dylib.names.values_mut() {
                symbol.ready |= symbol.unit.is_some_and(|unit| ran.contains(&unit));
            }
        }
        ran.iter().for_each(|id| drop(self.units.remove(id)));
    }

    pub fn remove_symbols(&mut self, slot: usize, names: &[usize]) -> bool {
        let table = &mut self.dylibs[slot].names;
        if !names.iter().all(|name| table.contains_key(name)) {
            return false;
        }
        table.retain(|name, _| !names.contains(name));
        self.drop_empty_units();
        true
    }

    pub fn transfer(&mut self, source: ResourceKey, destination: ResourceKey) -> bool {
        let same_dylib = self.trackers[&source].slot == self.trackers[&destination].slot;
        if !self.is_live(source) || !self.is_live(destination) || !same_dylib {
            return false;
        }
        if source == destination {
            return true;
        }
        let from = self.trackers.get_mut(&source).unwrap();
        from.status = Status::Merged(destination);
        let (pins, resources, edges) =
            (std::mem::take(&mut from.pins), std::mem::take(&mut from.resources), std::mem::take(&mut from.depends_on));
        let slot = from.slot;
        let into = self.trackers.get_mut(&destination).unwrap();
        into.pins += pins;
        into.resources.extend(resources);
        into.depends_on.extend(edges);
        for tracker in self.trackers.values_mut() {
            if tracker.depends_on.remove(&source) {
                tracker.depends_on.insert(destination);
            }
        }
        self.trackers.get_mut(&destination).unwrap().depends_on.remove(&destination);
        let dylib = &mut self.dylibs[slot];
        dylib.names.values_mut().filter(|symbol| symbol.owner == source).for_each(|symbol| symbol.owner = destination);
        dylib.default = dylib.default.filter(|default| *default != source);
        true
    }

    /// Retires live trackers, and frees every tracker that nothing holds.
    pub fn remove(&mut self, keys: &[ResourceKey]) {
        for key in keys {
            let tracker = self.trackers.get_mut(key).unwrap();
            assert_eq!(tracker.status, Status::Live);
            tracker.status = Status::Retired;
            let dylib = &mut self.dylibs[tracker.slot];
            dylib.names.retain(|_, symbol| symbol.owner != *key);
            dylib.default = dylib.default.filter(|default| default != key);
        }
        self.drop_empty_units();
        self.reclaim_unheld();
    }

    pub fn unpin(&mut self, key: ResourceKey) {
        let key = self.current(key);
        self.trackers.get_mut(&key).unwrap().pins -= 1;
        if self.policy == ReclaimPolicy::OnDrop || self.ended {
            return self.reclaim_unheld();
        }
        // Only this tracker and its dependants are queued. Its dependencies stay held until `reclaim`.
        let mut claimed = BTreeSet::from([key]);
        loop {
            let depends_on_claimed =
                |t: &Tracker| t.status != Status::Reclaimed && t.depends_on.iter().any(|to| claimed.contains(to));
            let more: BTreeSet<_> =
                self.trackers.iter().filter(|(_, t)| depends_on_claimed(t)).map(|(key, _)| *key).collect();
            let before = claimed.len();
            claimed.extend(more);
            if claimed.len() == before {
                break;
            }
        }
        let free = |key: &ResourceKey| self.trackers[key].status == Status::Retired && self.trackers[key].pins == 0;
        if claimed.iter().all(free) {
            claimed.iter().for_each(|key| self.trackers.get_mut(key).unwrap().status = Status::Queued);
        }
    }

    /// `ExecutionSession::reclaim`. Returns the number of queued trackers.
    pub fn reclaim(&mut self) -> usize {
        let queued: Vec<_> =
            self.trackers.iter().filter(|(_, t)| t.status == Status::Queued).map(|(key, _)| *key).collect();
        queued.iter().for_each(|key| self.reclaim_tracker(*key));
        if !queued.is_empty() {
            self.reclaim_unheld();
        }
        queued.len()
    }

    /// Frees every retired tracker that no live, pinned or queued tracker depends on, directly or indirectly.
    fn reclaim_unheld(&mut self) {
        let holds = |t: &Tracker| match t.status {
            Status::Live | Status::Queued => true,
            Status::Retired => t.pins > 0,
            Status::Merged(_) | Status::Reclaimed => false,
        };
        let mut held: BTreeSet<ResourceKey> =
            self.trackers.iter().filter(|(_, t)| holds(t)).map(|(key, _)| *key).collect();
        let mut unvisited: Vec<_> = held.iter().copied().collect();
        while let Some(key) = unvisited.pop() {
            unvisited.extend(self.trackers[&key].depends_on.iter().filter(|to| held.insert(**to)));
        }
        let retired = |(key, t): &(&ResourceKey, &Tracker)| t.status == Status::Retired && !held.contains(key);
        let free: Vec<_> = self.trackers.iter().filter(retired).map(|(key, _)| *key).collect();
        free.iter().for_each(|key| self.reclaim_tracker(*key));
    }

    fn reclaim_tracker(&mut self, key: ResourceKey) {
        let tracker = self.trackers.get_mut(&key).unwrap();
        tracker.status = Status::Reclaimed;
        tracker.depends_on.clear();
        self.freed.append(&mut tracker.resources.drain(..).collect());
    }

    pub fn dependants(&self, key: ResourceKey) -> usize {
        self.trackers.values().filter(|tracker| tracker.depends_on.contains(&key)).count()
    }

    fn drop_empty_units(&mut self) {
        let symbols = self.dylibs.iter().flat_map(|dylib| dylib.names.values());
        let wanted: BTreeSet<UnitId> = symbols.filter(|s| !s.ready).filter_map(|symbol| symbol.unit).collect();
        self.units.retain(|id, _| wanted.contains(id));
    }

    /// Drops trackers that nothing can refer to, so that the model of a long session stays small.
    pub fn drop_unreferenced(&mut self) {
        let mut named: BTreeSet<ResourceKey> = BTreeSet::new();
        for tracker in self.trackers.values() {
            named.extend(&tracker.depends_on);
            if let Status::Merged(into) = tracker.status {
                named.insert(into);
            }
        }
        let is_dead = |t: &Tracker| t.handles == 0 && matches!(t.status, Status::Merged(_) | Status::Reclaimed);
        self.trackers.retain(|key, tracker| !is_dead(tracker) || named.contains(key));
    }
}
