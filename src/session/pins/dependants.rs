//! [`PinGraph`]: which tracker's code refers into which other tracker.
//!
//! An edge `from → to` holds `to` by a pin that is counted in its gate: while `from` is not reclaimed, its code may call or
//! read what it was linked against. Trackers that refer to each other would hold each other for ever, so a retired tracker
//! is reclaimed when *no live or handle-held tracker leads to it*, which is what [`WholeGraph::claim_free`] finds: the
//! closure over dependants, claimed as a whole. A claim cannot be wrong later: a retired tracker gets no new dependants, and
//! new handle pins only under the lock of its table, so a closure that is free stays free. A closure that only standing pins
//! hold is not claimed: their makers have to be asked first, which is not done here.
//!
//! The graph is locked in parts, by dylib (`pin_table.rs`): a link or a removal takes the table of its own. Whoever walks from
//! tracker to tracker takes all of them, in their order, and so sees the graph as it is at one time. Trackers without
//! cross-tracker references take none.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::pins::pin_table::{PinTable, Released, TABLES};
use crate::session::pins::tracker_state::PinState;
use crate::session::removal::reclaim::newest_first;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, Mutex, MutexGuard, Rank};

pub(crate) struct PinGraph {
    tables: [Lines; TABLES],
}

/// In lines of its own.
#[repr(align(128))]
struct Lines(Mutex<PinTable>);

/// All tables, locked.
pub(crate) struct WholeGraph<'a> {
    tables: [MutexGuard<'a, PinTable>; TABLES],
}

/// What [`WholeGraph::claim_free`] found.
#[derive(Default)]
#[must_use]
pub(crate) struct ReclaimSet {
    /// Claimed: the caller must reclaim them.
    pub(crate) free: Vec<Arc<TrackerCore>>,
    /// Held by standing pins, and by nothing else that counts: nothing was claimed, and their makers may be asked.
    pub(crate) standing: Vec<Arc<TrackerCore>>,
}

impl PinGraph {
    pub(crate) fn new() -> PinGraph {
        let table = |number| Lines(Mutex::ranked(Rank::Pins, PinTable::new(number)));
        PinGraph { tables: std::array::from_fn(table) }
    }

    /// Locks the table of a dylib's trackers. Meanwhile nobody claims one.
    pub(crate) fn table_of(&self, dylib: &DylibInner) -> MutexGuard<'_, PinTable> {
        self.tables[PinTable::of(dylib)].0.lock()
    }

    /// Definitions have left a dylib one by one, while their trackers stay: nobody is to come to them any more.
    pub(crate) fn forget_known(&self, dylib: &DylibInner, definitions: impl Iterator<Item = SymbolId> + Clone) {
        for table in &self.tables {
            let mut table = table.0.lock();
            definitions.clone().for_each(|id| table.forget_known((dylib.serial, id)));
        }
    }

    pub(crate) fn lock(&self) -> WholeGraph<'_> {
        let lock = |number: usize| match number {
            0 => self.tables[number].0.lock(),
            _ => self.tables[number].0.lock_beside(),
        };
        WholeGraph { tables: std::array::from_fn(lock) }
    }

    /// `core` is removed next: asks for what its release will need.
    pub(crate) fn prefetch(&self, core: &TrackerCore) {
        if let Some(node) = core.gate.node() {
            self.table_of(core.dylib()).prefetch(node);
        }
    }

    /// `core` was reclaimed: drops the pins it holds.
    pub(crate) fn release(&self, core: &TrackerCore) -> Released {
        let released = self.table_of(core.dylib()).release(core);
        // Of a ring, or reclaimed whoever referred to it.
        if core.gate.has_dependants() {
            self.lock().tables.iter_mut().for_each(|table| table.forget_proxy(core));
        }
        released
    }

    /// `(handles, dependants)` that hold `core`.
    pub(crate) fn holders(&self, core: &TrackerCore) -> (usize, usize) {
        match core.gate.pins() {
            (handles, 0) => (handles, 0),
            // Some of them share a pin.
            (handles, _) => (handles, self.lock().tables.iter().map(|table| table.dependant_count(core)).sum()),
        }
    }
}

impl WholeGraph<'_> {
    /// `source` has become `destination`, of the same dylib: its edges too. Without dependants it has no proxy anywhere.
    pub(crate) fn merge(&mut self, source: &Arc<TrackerCore>, destination: &Arc<TrackerCore>, had_dependants: bool) {
        if had_dependants {
            self.tables.iter_mut().for_each(|table| table.merge_proxies(source, destination));
        }
        self.tables[PinTable::of(source.dylib())].merge(source, destination);
    }

    /// If no live and no handle-held tracker leads to `core`: claims it and everything that leads to it. Those of
    /// `claimed_before` are the caller's already, to be reclaimed with what this returns.
    pub(crate) fn claim_free(&self, core: &Arc<TrackerCore>, claimed_before: &FxHashSet<ResourceKey>) -> ReclaimSet {
        let mut standing = Vec::new();
        let mut closure: FxHashMap<ResourceKey, Arc<TrackerCore>> = FxHashMap::default();
        let mut unvisited = vec![core.clone()];
        while let Some(next) = unvisited.pop() {
            if claimed_before.contains(&next.key()) {
                continue;
            }
            let hold = next.gate.hold();
            if hold == PinState::Firm {
                return ReclaimSet::default();
            }
            if closure.insert(next.key(), next.clone()).is_some() {
                continue;
            }
            if hold == PinState::Standing {
                standing.push(next.clone());
            }
            unvisited.extend(self.dependents(&next));
        }
        if !standing.is_empty() {
            newest_first(&mut standing);
            return ReclaimSet { free: Vec::new(), standing };
        }
        let mut free: Vec<_> = closure.into_values().filter(|core| core.gate.claim_unpinned()).collect();
        newest_first(&mut free);
        ReclaimSet { free, standing }
    }

    /// `core` and all trackers that lead to it.
    pub(crate) fn leading_to(&self, core: &Arc<TrackerCore>) -> Vec<Arc<TrackerCore>> {
        trees(vec![core.clone()], |core| self.dependents(core)).concat()
    }

    /// Orders trackers as a loader unloads: each ahead of those of the batch that it refers to. Newest first where there is no
    /// such reference, and among those that lead to each other (Kosaraju's components).
    pub(crate) fn sort(&self, mut batch: Vec<Arc<TrackerCore>>) -> Vec<Arc<TrackerCore>> {
        let keys: FxHashSet<_> = batch.iter().map(|core| core.key()).collect();
        let within = |others: Vec<Arc<TrackerCore>>| {
            let mut others: Vec<_> = others.into_iter().filter(|other| keys.contains(&other.key())).collect();
            newest_first(&mut others);
            others
        };
        newest_first(&mut batch);
        let mut finished = trees(batch, |core| within(self.dependents(core))).concat();
        finished.reverse();
        let mut rings = trees(finished, |core| within(self.dependencies(core)));
        rings.reverse();
        rings.iter_mut().for_each(|ring| newest_first(ring));
        rings.concat()
    }

    /// The trackers that `core` holds.
    pub(crate) fn dependencies(&self, core: &TrackerCore) -> Vec<Arc<TrackerCore>> {
        self.tables[PinTable::of(core.dylib())].dependencies(core).cloned().collect()
    }

    /// The trackers that hold `core`.
    pub(crate) fn dependents(&self, core: &TrackerCore) -> Vec<Arc<TrackerCore>> {
        self.tables.iter().flat_map(|table| table.dependents(core)).cloned().collect()
    }
}

/// The trees of a walk in depth from each of `roots`, as far as the walk was not there before: children ahead of parents.
fn trees(
    roots: Vec<Arc<TrackerCore>>,
    next_of: impl Fn(&TrackerCore) -> Vec<Arc<TrackerCore>>,
) -> Vec<Vec<Arc<TrackerCore>>> {
    let mut seen = FxHashSet::default();
    let mut tree_of = |root| {
        let (mut tree, mut path, mut next) = (Vec::new(), Vec::new(), Some(root));
        loop {
            if let Some(core) = next.take().filter(|core: &Arc<TrackerCore>| seen.insert(core.key())) {
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
