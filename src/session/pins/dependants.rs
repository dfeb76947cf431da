//! [`PinGraph`]: which tracker's code refers into which other tracker.
//!
//! # Edges
//! An edge `from → to` pins `to`, and the state of `to` counts the pin. As long as `from` is not reclaimed, its code may call
//! or read what it was linked against.
//!
//! # Cycles
//! Trackers that refer to each other would pin each other for ever. So a retired tracker is reclaimed when *no live tracker
//! and no tracker with a handle pin leads to it*. [`LockedGraph::claim_free`] computes the closure over dependants and claims
//! all of it, or nothing. A closure that is free stays free: a retired tracker gets no new dependants, and a new handle pin
//! needs the lock of its table. A closure that only revocable pins hold is not claimed. The caller must first ask the makers
//! of these pins to release them.
//!
//! # Locks
//! The graph is split into tables by dylib (`pin_table.rs`). A link or a removal locks one table. An operation that walks from
//! tracker to tracker locks all tables, in their order, so it sees a consistent graph. A tracker without references to or from
//! other trackers locks none.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::session::pins::pin_table::{PinTable, Released, TABLES};
use crate::session::pins::pinned::{Defunct, Pinned};
use crate::session::pins::tracker_state::PinState;
use crate::session::types::ids::ResourceKey;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, Mutex, MutexGuard, Rank, seeded_bug};

/// The pin graph of a session.
pub(crate) struct PinGraph<T> {
    tables: [PaddedTable<T>; TABLES],
}

/// A table in cache lines of its own.
#[repr(align(128))]
struct PaddedTable<T>(Mutex<PinTable<T>>);

/// The graph with all its tables locked.
pub(crate) struct LockedGraph<'a, T> {
    tables: [MutexGuard<'a, PinTable<T>>; TABLES],
}

/// The result of [`LockedGraph::claim_free`].
#[must_use]
pub(crate) struct ReclaimSet<T> {
    /// Claimed: the caller must reclaim them.
    pub(crate) free: Vec<Arc<T>>,
    /// Apart from dependants in the set, only revocable pins hold these. Nothing was claimed; the caller may ask the makers.
    pub(crate) revocable: Vec<Arc<T>>,
}

impl<T> ReclaimSet<T> {
    fn empty() -> ReclaimSet<T> {
        ReclaimSet { free: Vec::new(), revocable: Vec::new() }
    }
}

impl<T: Pinned> PinGraph<T> {
    pub(crate) fn new() -> PinGraph<T> {
        let table = |number| PaddedTable(Mutex::ranked(Rank::Pins, PinTable::new(number)));
        PinGraph { tables: std::array::from_fn(table) }
    }

    /// Locks the table of a dylib's trackers. No other thread claims one of them meanwhile.
    pub(crate) fn table_of(&self, dylib_serial: u64) -> MutexGuard<'_, PinTable<T>> {
        self.tables[PinTable::<T>::index_of(dylib_serial)].0.lock()
    }

    /// Removes definitions of a dylib from the caches of all tables. The dylib has removed them, and their trackers stay.
    pub(crate) fn uncache_definitions(&self, dylib_serial: u64, definitions: impl Iterator<Item = SymbolId> + Clone) {
        for table in &self.tables {
            let mut table = table.0.lock();
            definitions.clone().for_each(|id| table.uncache_definition((dylib_serial, id)));
        }
    }

    /// Locks all tables.
    pub(crate) fn lock(&self) -> LockedGraph<'_, T> {
        let lock = |number: usize| match number {
            0 => self.tables[number].0.lock(),
            _ => self.tables[number].0.lock_same_rank(),
        };
        LockedGraph { tables: std::array::from_fn(lock) }
    }

    /// Prefetches what the release of `core` will read. `core` is about to be removed.
    pub(crate) fn prefetch(&self, core: &T) {
        if let Some(node) = core.state().node() {
            self.table_of(core.dylib_serial()).prefetch(node);
        }
    }

    /// Adds a handle's pin, also to a retired tracker that is not being reclaimed yet. Use it for a tracker whose code
    /// is running: something holds such a tracker.
    pub(crate) fn pin_until_reclaimed(&self, core: &Arc<T>) -> Result<(), Defunct> {
        if core.pin_handle().is_ok() {
            return Ok(());
        }
        // A claim checks the trackers of a cycle one by one and then claims all. No pin may be added in between.
        let _no_claim = (!seeded_bug!("pinned_while_a_ring_is_claimed")).then(|| self.table_of(core.dylib_serial()));
        core.pin_unless_reclaimed()
    }

    /// `core` was reclaimed. Drops the pins that it holds.
    pub(crate) fn release(&self, core: &T) -> Released<T> {
        let released = self.table_of(core.dylib_serial()).release(core);
        // It still has dependants if it is in a cycle or was reclaimed by force.
        if core.state().has_dependants() {
            self.lock().tables.iter_mut().for_each(|table| table.remove_remote(core));
        }
        released
    }

    /// The numbers of `(handles, dependants)` that hold `core`.
    pub(crate) fn holders(&self, core: &T) -> (usize, usize) {
        match core.state().pins() {
            (handles, 0) => (handles, 0),
            // Dependants of one table share a pin, so the edges are counted.
            (handles, _) => (handles, self.lock().tables.iter().map(|table| table.dependant_count(core)).sum()),
        }
    }
}

impl<T: Pinned> PinGraph<T> {
    /// Up to `limit` of the trackers that pin `core`, and the number of all. Holds the lock of one table at a time.
    pub(crate) fn first_dependents(&self, core: &T, limit: usize) -> (Vec<Arc<T>>, usize) {
        let (mut first, mut count) = (Vec::new(), 0);
        for table in &self.tables {
            let table = table.0.lock();
            first.extend(table.dependents(core).take(limit - first.len()).cloned());
            count += table.dependant_count(core);
        }
        (first, count)
    }
}

impl<T: Pinned> LockedGraph<'_, T> {
    /// `source` was merged into `destination`, of the same dylib. Moves its edges. Without dependants it has no remote node.
    pub(crate) fn merge(&mut self, source: &Arc<T>, destination: &Arc<T>, had_dependants: bool) {
        if had_dependants {
            self.tables.iter_mut().for_each(|table| table.merge_remotes(source, destination));
        }
        self.tables[PinTable::<T>::index_of(source.dylib_serial())].merge(source, destination);
    }

    /// Claims `core` and everything that leads to it, if no live tracker and no tracker with a handle pin is among them. The
    /// caller has already claimed the trackers of `claimed_before`, and reclaims them together with the result.
    pub(crate) fn claim_free(&self, core: &Arc<T>, claimed_before: &FxHashSet<ResourceKey>) -> ReclaimSet<T> {
        let mut revocable = Vec::new();
        let mut closure: FxHashMap<ResourceKey, Arc<T>> = FxHashMap::default();
        let mut unvisited = vec![core.clone()];
        while let Some(next) = unvisited.pop() {
            if claimed_before.contains(&next.key()) {
                continue;
            }
            let pin_state = next.state().pin_state();
            if pin_state == PinState::Held {
                return ReclaimSet::empty();
            }
            if closure.insert(next.key(), next.clone()).is_some() {
                continue;
            }
            if pin_state == PinState::RevocableOnly {
                revocable.push(next.clone());
            }
            unvisited.extend(self.dependents(&next));
        }
        if !revocable.is_empty() {
            newest_first(&mut revocable);
            return ReclaimSet { free: Vec::new(), revocable };
        }
        let mut free: Vec<_> = closure.into_values().filter(|core| core.state().claim_unpinned()).collect();
        newest_first(&mut free);
        ReclaimSet { free, revocable }
    }

    /// `core` and all trackers that lead to it, directly or through others.
    pub(crate) fn transitive_dependents(&self, core: &Arc<T>) -> Vec<Arc<T>> {
        trees(vec![core.clone()], |core| self.dependents(core)).concat()
    }

    /// Sorts trackers into the order in which a loader unloads: each before those of the batch that it refers to. Where no
    /// reference decides, the newer one is first. The trackers of a cycle are also sorted newest first (Kosaraju's algorithm).
    pub(crate) fn sort(&self, mut batch: Vec<Arc<T>>) -> Vec<Arc<T>> {
        let keys: FxHashSet<_> = batch.iter().map(|core| core.key()).collect();
        let within = |others: Vec<Arc<T>>| {
            let mut others: Vec<_> = others.into_iter().filter(|other| keys.contains(&other.key())).collect();
            newest_first(&mut others);
            others
        };
        newest_first(&mut batch);
        let mut finished = trees(batch, |core| within(self.dependents(core))).concat();
        finished.reverse();
        let mut components = trees(finished, |core| within(self.dependencies(core)));
        components.reverse();
        components.iter_mut().for_each(|component| newest_first(component));
        components.concat()
    }

    /// The trackers that `core` pins.
    pub(crate) fn dependencies(&self, core: &T) -> Vec<Arc<T>> {
        self.tables[PinTable::<T>::index_of(core.dylib_serial())].dependencies(core).cloned().collect()
    }

    /// The trackers that pin `core`.
    pub(crate) fn dependents(&self, core: &T) -> Vec<Arc<T>> {
        self.tables.iter().flat_map(|table| table.dependents(core)).cloned().collect()
    }
}

/// Sorts trackers by creation, the newest first.
pub(crate) fn newest_first<T: Pinned>(batch: &mut [Arc<T>]) {
    batch.sort_by_key(|core| std::cmp::Reverse((core.dylib_serial(), core.serial())));
}

/// Walks depth-first from each root and returns one tree per root, in postorder. A node is in the first tree that reaches it.
fn trees<T: Pinned>(roots: Vec<Arc<T>>, next_of: impl Fn(&T) -> Vec<Arc<T>>) -> Vec<Vec<Arc<T>>> {
    let mut seen = FxHashSet::default();
    let mut tree_of = |root| {
        let (mut tree, mut path, mut next) = (Vec::new(), Vec::new(), Some(root));
        loop {
            if let Some(core) = next.take().filter(|core: &Arc<T>| seen.insert(core.key())) {
                let unvisited = next_of(&core).into_iter();
                path.push((core, unvisited));
            }
            let Some((_, unvisited)) = path.last_mut() else { return tree };
            next = unvisited.next();
            if next.is_none() {
                tree.extend(path.pop().map(|(core, _)| core));
            }
        }
    };
    roots.into_iter().map(&mut tree_of).filter(|tree: &Vec<_>| !tree.is_empty()).collect()
}
