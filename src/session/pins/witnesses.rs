//! [`Witnesses`]: the witness forest. It remembers for each retired tracker one reason why the tracker is held.
//!
//! # What is remembered
//! A retired tracker without a handle pin is held by its dependants. One of them is its *witness*: a dependant that is held
//! itself. Witnesses form a forest, and its roots are the trackers that hold without a dependant:
//!
//! | root | it holds until |
//! |---|---|
//! | live, or in a guard's way | it is retired, or merged: then the destination is the root |
//! | retired, with a handle pin | the pin is dropped |
//! | being reclaimed | it has released its edges; then the trackers that it held are asked about |
//!
//! A tracker is asked about when it may have lost what held it: its own root ended, or an edge to it was removed. If the edge of
//! its witness still exists, the answer is there. Otherwise it needs another witness: a dependant outside its own subtree. Most
//! trackers have no subtree, or have a root among their first dependants, so this takes constant time. If not, two walks are
//! made in step: up from the dependant to its root, and through the subtree. The shorter one decides. Where that does not
//! suffice, a search decides (`claim_search.rs`).
//!
//! # Open nodes
//! A node is *open* if it has a subtree, and nothing that holds it is known: a search decides about it, only revocable pins hold
//! it, or the thread that asks has claimed it. A walk that ends at an open node proves nothing. No thread links a node below an
//! open one, so the subtree of an open node does not grow. While no node is open, each dependant with a witness is held.
//!
//! # Invariants
//! The lock of the forest guards everything here. A link leads from a tracker to a direct dependant of it, and never into the
//! tracker's own subtree, so there is no cycle. Nothing is freed because of the forest: a wrong link would keep a tracker too
//! long. A search frees, and it reads the edges.

use crate::session::pins::pin_nodes::{PinNode, PinNodes};
use crate::session::pins::pin_table::PIECE;
use crate::session::pins::pinned::Pinned;
use crate::sync::Arc;

pub(crate) struct Witnesses<T> {
    nodes: PinNodes<WitnessNode<T>>,
    /// The number of open nodes.
    open: usize,
    /// How often a node with a subtree was linked. While it is unchanged, a walk upwards stays true.
    pub(super) version: u64,
    /// The searches in progress.
    pub(super) searches: Vec<RunningSearch<T>>,
    pub(super) last_search: u32,
}

/// A search in progress, as other threads see it.
pub(super) struct RunningSearch<T> {
    pub(super) number: u32,
    pub(super) start: Arc<T>,
    pub(super) phase: SearchPhase,
    /// A tracker that the search has visited, and that has got a handle pin since.
    pub(super) pinned: Option<Arc<T>>,
    /// Trackers about which the thread of the search asks at its end.
    pub(super) questions: Vec<Arc<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchPhase {
    /// It visits trackers.
    Exploring,
    /// It claims the trackers that it has visited.
    Claiming,
    /// It leaves the trackers that it has visited. Another search may visit them.
    Ending,
}

struct WitnessNode<T> {
    core: Arc<T>,
    /// `None` for a root, for an open node, and for a tracker that is about to be asked about.
    witness: Option<PinNode>,
    /// The trackers whose witness this is are a list.
    first_child: Option<PinNode>,
    /// The neighbours in the list of the witness.
    previous: Option<PinNode>,
    next: Option<PinNode>,
    is_open: bool,
    /// The tracker was merged, and the node stands for the destination, whose node is the witness.
    is_merged: bool,
}

/// Where a walk from witness to witness ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkEnd {
    Root,
    Open,
    /// The limit is reached.
    Unknown,
}

impl<T: Pinned> Witnesses<T> {
    pub(super) fn new() -> Witnesses<T> {
        Witnesses { nodes: PinNodes::new(), open: 0, version: 0, searches: Vec::new(), last_search: 0 }
    }

    pub(super) fn node_of(&self, core: &T) -> Option<PinNode> {
        core.state().witness.get()
    }

    pub(super) fn core(&self, node: PinNode) -> &Arc<T> {
        &self.nodes[node].core
    }

    /// The next node on the way to the root.
    pub(super) fn witness(&self, node: PinNode) -> Option<PinNode> {
        self.nodes[node].witness
    }

    pub(super) fn is_open(&self, node: PinNode) -> bool {
        self.nodes[node].is_open
    }

    /// Whether the node stands for the destination of a transfer.
    pub(super) fn is_merged(&self, node: PinNode) -> bool {
        self.nodes[node].is_merged
    }

    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Makes `holder` the witness of `core`, which has none. `holder` is not in the subtree of `core`.
    pub(super) fn link(&mut self, core: &Arc<T>, holder: &Arc<T>) {
        let holder = holder.current();
        let (node, witness) = (self.node_or_insert(core), self.node_or_insert(&holder));
        self.close(node);
        self.attach(node, witness);
    }

    /// As [`link`](Self::link), for a holder that is a root.
    pub(super) fn link_to_root(&mut self, core: &Arc<T>, root: &Arc<T>) {
        // A tracker that has got a handle pin may have a witness from before, perhaps in the subtree of `core`.
        let root = root.current();
        self.unlink(&root);
        self.link(core, &root);
    }

    /// `core` loses its witness, if it has one.
    pub(super) fn unlink(&mut self, core: &T) {
        if let Some(node) = self.node_of(core) {
            self.detach(node);
            self.remove_unused(node);
        }
    }

    /// `core` has no witness and is not a root: its node is open, if it has a subtree.
    pub(super) fn open(&mut self, core: &T) {
        let Some(node) = self.node_of(core) else { return };
        let node = &mut self.nodes[node];
        if node.first_child.is_some() && !node.is_open {
            node.is_open = true;
            self.open += 1;
        }
    }

    /// The caller has claimed `core`: it holds nothing that the caller asks about.
    pub(super) fn open_claimed(&mut self, core: &T) {
        self.unlink(core);
        self.open(core);
    }

    /// `core` has released its edges. Up to [`PIECE`] trackers lose it as their witness; they are about to be asked about, or are
    /// roots. Returns whether these are all. So a node keeps no tracker in memory that is reclaimed.
    pub(super) fn remove(&mut self, core: &T) -> bool {
        for _ in 0..PIECE {
            let Some(node) = self.node_of(core) else { return true };
            self.close(node);
            self.detach(node);
            let Some(mut child) = self.nodes[node].first_child else {
                self.remove_unused(node);
                return true;
            };
            // The children of a merged tracker's node are those of the destination.
            while let (true, Some(below)) = (self.is_merged(child), self.nodes[child].first_child) {
                child = below;
            }
            self.detach(child);
            self.remove_unused(child);
        }
        self.node_of(core).is_none()
    }

    /// `source` was merged into `destination`, which is live: what the one held is now held by the other.
    pub(super) fn merge(&mut self, source: &Arc<T>, destination: &Arc<T>) {
        let Some(node) = self.node_of(source) else { return };
        match self.node_of(destination) {
            Some(witness) => {
                self.detach(node);
                self.nodes[node].is_merged = true;
                self.attach(node, witness);
            }
            None => {
                source.state().witness.take();
                destination.state().witness.set(node);
                self.nodes[node].core = destination.clone();
            }
        }
    }

    /// Walks from a node to its root, at most `limit` steps.
    pub(super) fn walk_up(&self, mut node: PinNode, limit: usize) -> WalkEnd {
        for _ in 0..limit {
            match self.witness(node) {
                Some(witness) => node = witness,
                None => return self.end_at(node),
            }
        }
        WalkEnd::Unknown
    }

    fn end_at(&self, node: PinNode) -> WalkEnd {
        if self.is_open(node) { WalkEnd::Open } else { WalkEnd::Root }
    }

    /// Whether a dependant's node, which has a witness, proves that `core`, which has none, is held. Walks up from the dependant
    /// and, in step, through the subtree of `core`. `None` if `limit` steps do not decide it.
    pub(super) fn is_held_through(&self, core: &T, dependant: PinNode, limit: usize) -> Option<bool> {
        let own = self.node_of(core);
        let own_open = own.is_some_and(|own| self.is_open(own));
        let is_other_open = self.open > usize::from(own_open);
        if !is_other_open && !own_open {
            return Some(true);
        }
        let (mut up, mut below) = (dependant, own);
        for _ in 0..limit {
            match self.witness(up) {
                Some(witness) => up = witness,
                None => return Some(self.end_at(up) == WalkEnd::Root),
            }
            if let (Some(top), Some(last), false) = (own, below, is_other_open) {
                below = self.next_below(top, last);
                match below {
                    None => return Some(true),
                    Some(next) if next == dependant => return Some(false),
                    _ => {}
                }
            }
        }
        None
    }

    /// The node after `last` in the subtree of `top`, each node before its children.
    fn next_below(&self, top: PinNode, last: PinNode) -> Option<PinNode> {
        if let Some(child) = self.nodes[last].first_child {
            return Some(child);
        }
        let mut last = last;
        while last != top {
            if let Some(next) = self.nodes[last].next {
                return Some(next);
            }
            last = self.nodes[last].witness?;
        }
        None
    }

    fn node_or_insert(&mut self, core: &Arc<T>) -> PinNode {
        if let Some(node) = self.node_of(core) {
            return node;
        }
        let node = self.nodes.insert(WitnessNode {
            core: core.clone(),
            witness: None,
            first_child: None,
            previous: None,
            next: None,
            is_open: false,
            is_merged: false,
        });
        core.state().witness.set(node);
        node
    }

    fn close(&mut self, node: PinNode) {
        self.open -= usize::from(std::mem::take(&mut self.nodes[node].is_open));
    }

    fn attach(&mut self, node: PinNode, witness: PinNode) {
        let first = self.nodes[witness].first_child.replace(node);
        if let Some(first) = first {
            self.nodes[first].previous = Some(node);
        }
        let attached = &mut self.nodes[node];
        (attached.witness, attached.next) = (Some(witness), first);
        self.version += u64::from(attached.first_child.is_some());
    }

    fn detach(&mut self, node: PinNode) {
        let detached = &mut self.nodes[node];
        let Some(witness) = detached.witness.take() else { return };
        let (previous, next) = (detached.previous.take(), detached.next.take());
        match previous {
            Some(previous) => self.nodes[previous].next = next,
            None => self.nodes[witness].first_child = next,
        }
        if let Some(next) = next {
            self.nodes[next].previous = previous;
        }
        if self.nodes[witness].first_child.is_none() {
            self.close(witness);
            self.remove_unused(witness);
        }
    }

    /// Removes a node that holds nothing and has no witness. A node of a merged tracker that holds nothing is removed too.
    fn remove_unused(&mut self, node: PinNode) {
        let found = &self.nodes[node];
        if found.first_child.is_some() || found.is_open || found.witness.is_some() && !found.is_merged {
            return;
        }
        if found.is_merged {
            // Not again: the node that it stands for is removed by the same rule.
            self.nodes[node].is_merged = false;
            self.detach(node);
        }
        if let Some(removed) = self.nodes.remove(node) {
            removed.core.state().witness.take();
        }
    }

    /// The search in progress with this number.
    pub(super) fn search_mut(&mut self, number: u32) -> Option<&mut RunningSearch<T>> {
        self.searches.iter_mut().find(|search| search.number == number)
    }

    /// Whether a search has visited `core` and claims it now.
    pub(super) fn is_being_claimed(&mut self, core: &T) -> bool {
        let (_, number) = core.state().pin_state();
        self.search_mut(number).is_some_and(|search| search.phase == SearchPhase::Claiming)
    }

    #[cfg(test)]
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }
}
