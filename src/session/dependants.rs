//! [`PinGraph`]: which tracker's code refers into which other tracker.
//!
//! An edge `from → to` is a pin on `to`, counted in its gate: while `from` is not reclaimed, its code may call or read
//! what it was linked against. Trackers that refer to each other would hold each other for ever, so a retired tracker
//! is reclaimed when *no live or handle-held tracker leads to it*, which is what [`PinGraph::claim_free`] finds: the
//! closure over dependants, claimed as a whole. A claim cannot be wrong later: a retired tracker gets no new dependants, and
//! new handle pins only under this graph's lock, so a closure that is free stays free. A closure that only standing pins
//! hold is not claimed: their makers have to be asked first, which is not done here.
//!
//! Guarded by one lock of the session; trackers without cross-tracker references never take it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::session::edges::Edges;
use crate::session::pin_nodes::{PinNode, PinNodes};
use crate::session::reclaim::newest_first;
use crate::session::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::tracker_gate::{Edge, Hold, Unpin};
use crate::sync::Arc;

pub(crate) struct PinGraph {
    nodes: PinNodes<Node>,
}

struct Node {
    core: Arc<TrackerCore>,
    /// Who pins this tracker: one pin for each.
    dependants: Edges,
    /// Whom this tracker pins.
    depends_on: Edges,
}

/// What [`PinGraph::claim_free`] found.
#[derive(Default)]
#[must_use]
pub(crate) struct Claim {
    /// Claimed: the caller must reclaim them.
    pub(crate) free: Vec<Arc<TrackerCore>>,
    /// Held by standing pins, and by nothing else that counts: nothing was claimed, and their makers may be asked.
    pub(crate) standing: Vec<Arc<TrackerCore>>,
}

/// What the pins of a reclaimed tracker leave behind.
#[derive(Default)]
#[must_use]
pub(crate) struct Released {
    /// Claimed: the caller must reclaim them.
    pub(crate) freed: Vec<Arc<TrackerCore>>,
    /// Those of which the graph must be asked whether they may go.
    pub(crate) undecided: Vec<Arc<TrackerCore>>,
}

impl PinGraph {
    /// Pins what `to` has become for what `from` has become. False, and nothing pinned, when either is defunct.
    pub(crate) fn add(&mut self, from: &Arc<TrackerCore>, to: &Arc<TrackerCore>) -> bool {
        let Some((from_node, is_from_live)) = from.node_or_enter(|from| self.enter(from)) else { return false };
        let edge = to.pin_dependant(|to, known, is_live| match known {
            // Code that refers to its own tracker's holds nothing.
            Some(node) if node == from_node || self.has_edge(from_node, node) => Some(Edge::Known),
            _ if !is_from_live || !is_live => None,
            Some(node) => Some(Edge::New(node)),
            None => Some(Edge::New(self.enter(to))),
        });
        match edge {
            Some(Edge::New(to_node)) => self.connect(from_node, to_node),
            Some(Edge::Known) | None => self.forget_if_bare(from_node),
        }
        edge.is_some()
    }

    /// `source` has become `destination`: its edges too. Edges between the two vanish.
    pub(crate) fn merge(&mut self, source: &Arc<TrackerCore>, destination: &Arc<TrackerCore>) {
        let Some(old) = source.gate.take_node() else { return };
        // Before the old number is free to be used again.
        let new = destination.gate.node_while_live(|| self.enter(destination));
        let Some(moved) = self.nodes.remove(old) else { return };
        debug_assert!(new.is_some(), "the destination is live: its dylib is locked");
        let Some(new) = new else { return };
        for to in moved.depends_on.nodes() {
            self.nodes[to].dependants.remove(old);
            self.reattach(new, to);
        }
        for from in moved.dependants.nodes() {
            self.nodes[from].depends_on.remove(old);
            self.reattach(from, new);
        }
        self.forget_if_bare(new);
    }

    fn reattach(&mut self, from: PinNode, to: PinNode) {
        if from == to || self.has_edge(from, to) {
            // An edge inside the merged tracker, or one that it has already: this pin is one too many. The other end is
            // live, or still pinned by the destination, so nothing is left to do.
            let left = self.nodes[to].core.gate.unpin_dependant();
            debug_assert_ne!(left, Unpin::Reclaim);
            return;
        }
        self.connect(from, to);
    }

    /// `core` was reclaimed: drops the pins it holds.
    pub(crate) fn release(&mut self, core: &TrackerCore) -> Released {
        let mut released = Released::default();
        let Some(node) = core.gate.take_node() else { return released };
        let Some(gone) = self.nodes.remove(node) else { return released };
        for to in gone.depends_on.nodes() {
            let held = &mut self.nodes[to];
            let may_be_bare = held.dependants.remove(node);
            match held.core.gate.unpin_dependant() {
                Unpin::Nothing => {}
                Unpin::Reclaim => released.freed.push(held.core.clone()),
                Unpin::AskGraph => released.undecided.push(held.core.clone()),
            }
            if may_be_bare {
                self.forget_if_bare(to);
            }
        }
        // Those of a ring that are reclaimed after this one must not look for it.
        for from in gone.dependants.nodes() {
            if let Some(dependant) = self.nodes.at_mut(from) {
                dependant.depends_on.remove(node);
            }
        }
        released
    }

    /// If no live and no handle-held tracker leads to `core`: claims it and everything that leads to it. Those of
    /// `claimed_before` are the caller's already, to be reclaimed with what this returns.
    pub(crate) fn claim_free(&self, core: &Arc<TrackerCore>, claimed_before: &FxHashSet<ResourceKey>) -> Claim {
        let mut standing = Vec::new();
        let mut closure: FxHashMap<ResourceKey, Arc<TrackerCore>> = FxHashMap::default();
        let mut unvisited = vec![core.clone()];
        while let Some(next) = unvisited.pop() {
            if claimed_before.contains(&next.key()) {
                continue;
            }
            let hold = next.gate.hold();
            if hold == Hold::Firm {
                return Claim::default();
            }
            if closure.insert(next.key(), next.clone()).is_some() {
                continue;
            }
            if hold == Hold::Standing {
                standing.push(next.clone());
            }
            unvisited.extend(self.dependents(&next));
        }
        if !standing.is_empty() {
            newest_first(&mut standing);
            return Claim { free: Vec::new(), standing };
        }
        let mut free: Vec<_> = closure.into_values().filter(|core| core.gate.claim_unpinned()).collect();
        newest_first(&mut free);
        Claim { free, standing }
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
        self.others(core, |node| &node.depends_on)
    }

    /// The trackers that hold `core`.
    pub(crate) fn dependents(&self, core: &TrackerCore) -> Vec<Arc<TrackerCore>> {
        self.others(core, |node| &node.dependants)
    }

    fn others(&self, core: &TrackerCore, edges: fn(&Node) -> &Edges) -> Vec<Arc<TrackerCore>> {
        let node = core.gate.node().and_then(|node| self.nodes.at(node));
        let others = node.into_iter().flat_map(|node| edges(node).nodes()).filter_map(|other| self.nodes.at(other));
        others.map(|node| node.core.clone()).collect()
    }

    fn has_edge(&self, from: PinNode, to: PinNode) -> bool {
        self.nodes.at(from).is_some_and(|node| node.depends_on.contains(to))
    }

    fn connect(&mut self, from: PinNode, to: PinNode) {
        self.nodes[from].depends_on.add(to);
        self.nodes[to].dependants.add(from);
    }

    /// A node for a tracker; its gate is to keep the number.
    fn enter(&mut self, core: &Arc<TrackerCore>) -> PinNode {
        let node = Node { core: core.clone(), dependants: Edges::default(), depends_on: Edges::default() };
        self.nodes.insert(core.dylib.serial, node)
    }

    fn forget_if_bare(&mut self, number: PinNode) {
        let Some(node) = self.nodes.at(number) else { return };
        if node.dependants.is_empty() && node.depends_on.is_empty() {
            node.core.gate.take_node();
            self.nodes.remove(number);
        }
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

impl Default for PinGraph {
    fn default() -> PinGraph {
        PinGraph { nodes: PinNodes::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_few_bytes_since_there_is_one_for_each_module_that_calls_others() {
        assert_eq!(size_of::<Node>(), 40);
    }
}
