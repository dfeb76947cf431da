//! [`PinGraph`]: which tracker's code refers into which other tracker.
//!
//! An edge `from → to` is a pin on `to`, counted in its gate: while `from` is not reclaimed, its code may call or read
//! what it was linked against. Trackers that refer to each other would hold each other for ever, so a retired tracker
//! is reclaimed when *no live or handle-held tracker leads to it*, which is what [`PinGraph::claim_free`] finds: the
//! closure over dependants, claimed as a whole. A claim cannot be wrong later: a retired tracker gets no new handle pins
//! from nothing and no new dependants, so a closure that is free stays free.
//!
//! Guarded by one lock of the session; trackers without cross-tracker references never take it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::is_sparse;
use crate::session::edges::Edges;
use crate::session::reclaim::newest_first;
use crate::session::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::tracker_gate::Unpin;
use crate::sync::Arc;

#[derive(Default)]
pub(crate) struct PinGraph {
    nodes: FxHashMap<ResourceKey, Node>,
}

struct Node {
    core: Arc<TrackerCore>,
    /// Pins held on this tracker, by tracker.
    dependants: Edges,
    /// Pins that this tracker holds, by tracker.
    depends_on: Edges,
}

impl PinGraph {
    /// Pins `to` for `from`. False, and nothing pinned, when either is defunct.
    pub(crate) fn add(&mut self, from: &Arc<TrackerCore>, to: &Arc<TrackerCore>) -> bool {
        if from.key == to.key {
            return true;
        }
        if self.nodes.get(&from.key).is_some_and(|node| node.depends_on.contains(to.key)) {
            return true;
        }
        if !from.gate.mark_dependencies() || !to.gate.pin_dependant() {
            return false;
        }
        self.node(from).depends_on.add(to.key, 1);
        self.node(to).dependants.add(from.key, 1);
        true
    }

    /// `source` has become `destination`: its edges too. Edges between the two vanish.
    pub(crate) fn merge(&mut self, source: &Arc<TrackerCore>, destination: &Arc<TrackerCore>) {
        let Some(moved) = self.nodes.remove(&source.key) else { return };
        if !moved.depends_on.is_empty() {
            let marked = destination.gate.mark_dependencies();
            debug_assert!(marked, "the destination is live: its dylib is locked");
        }
        for (to, count) in moved.depends_on.into_counts() {
            if let Some(node) = self.nodes.get_mut(&to) {
                node.dependants.remove(source.key);
            }
            self.reattach(destination.key, to, count, destination);
        }
        for (from, count) in moved.dependants.into_counts() {
            if let Some(node) = self.nodes.get_mut(&from) {
                node.depends_on.remove(source.key);
            }
            self.reattach(from, destination.key, count, destination);
        }
    }

    fn reattach(&mut self, from: ResourceKey, to: ResourceKey, count: usize, destination: &Arc<TrackerCore>) {
        if from == to || self.nodes.get(&from).is_some_and(|node| node.depends_on.contains(to)) {
            // An edge inside the merged tracker, or one that it has already: this pin is one too many. The other end is
            // live, or still pinned by the destination, so nothing is left to do.
            let held = if to == destination.key { destination } else { &self.nodes[&to].core };
            let left = held.gate.unpin_dependants(count);
            debug_assert_ne!(left, Unpin::Reclaim);
            return;
        }
        self.node(destination);
        for (key, other, outgoing) in [(from, to, true), (to, from, false)] {
            if let Some(node) = self.nodes.get_mut(&key) {
                let edges = if outgoing { &mut node.depends_on } else { &mut node.dependants };
                edges.add(other, count);
            }
        }
    }

    /// `core` was reclaimed: drops the pins it holds. Returns the trackers that became free, claimed.
    pub(crate) fn release(&mut self, core: &TrackerCore) -> Vec<Arc<TrackerCore>> {
        let Some(gone) = self.nodes.remove(&core.key) else { return Vec::new() };
        if is_sparse(self.nodes.len(), self.nodes.capacity()) {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
        let mut freed = Vec::new();
        for (to, count) in gone.depends_on.into_counts() {
            let Some(node) = self.nodes.get_mut(&to) else { continue };
            node.dependants.remove(core.key);
            let held = node.core.clone();
            match held.gate.unpin_dependants(count) {
                Unpin::Nothing => {}
                Unpin::Reclaim => freed.push(held.clone()),
                Unpin::AskDependants => freed.extend(self.claim_free(&held, &FxHashSet::default())),
            }
            self.forget_if_bare(to);
        }
        // Those of a ring that are reclaimed after this one must not look for it.
        for (from, _) in gone.dependants.into_counts() {
            if let Some(node) = self.nodes.get_mut(&from) {
                node.depends_on.remove(core.key);
            }
        }
        freed
    }

    /// If no live and no handle-held tracker leads to `core`: claims it and everything that leads to it. Those of
    /// `claimed_before` are the caller's already, to be reclaimed with what this returns.
    pub(crate) fn claim_free(
        &self,
        core: &Arc<TrackerCore>,
        claimed_before: &FxHashSet<ResourceKey>,
    ) -> Vec<Arc<TrackerCore>> {
        let mut closure: FxHashMap<ResourceKey, Arc<TrackerCore>> = FxHashMap::default();
        let mut unvisited = vec![core.clone()];
        while let Some(next) = unvisited.pop() {
            if claimed_before.contains(&next.key) {
                continue;
            }
            if !next.gate.is_held_by_dependants_only() {
                return Vec::new();
            }
            if closure.insert(next.key, next.clone()).is_some() {
                continue;
            }
            let dependants = self.nodes.get(&next.key).into_iter().flat_map(|node| node.dependants.keys());
            unvisited.extend(dependants.filter_map(|key| self.nodes.get(key)).map(|node| node.core.clone()));
        }
        let mut claimed: Vec<_> = closure.into_values().filter(|core| core.gate.claim_unpinned()).collect();
        newest_first(&mut claimed);
        claimed
    }

    /// The trackers that `key` holds.
    pub(crate) fn dependencies(&self, key: ResourceKey) -> Vec<Arc<TrackerCore>> {
        self.cores(self.nodes.get(&key).map(|node| &node.depends_on))
    }

    /// The trackers that hold `key`.
    pub(crate) fn dependents(&self, key: ResourceKey) -> Vec<Arc<TrackerCore>> {
        self.cores(self.nodes.get(&key).map(|node| &node.dependants))
    }

    fn cores(&self, keys: Option<&Edges>) -> Vec<Arc<TrackerCore>> {
        let nodes = keys.into_iter().flat_map(|keys| keys.keys()).filter_map(|key| self.nodes.get(key));
        nodes.map(|node| node.core.clone()).collect()
    }

    fn node(&mut self, core: &Arc<TrackerCore>) -> &mut Node {
        self.nodes.entry(core.key).or_insert_with(|| Node {
            core: core.clone(),
            dependants: Edges::default(),
            depends_on: Edges::default(),
        })
    }

    fn forget_if_bare(&mut self, key: ResourceKey) {
        if self.nodes.get(&key).is_some_and(|node| node.dependants.is_empty() && node.depends_on.is_empty()) {
            self.nodes.remove(&key);
        }
    }
}
