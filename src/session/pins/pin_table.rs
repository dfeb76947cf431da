//! [`PinTable`]: one part of the pin graph, with the edges that start at the trackers of some dylibs.
//!
//! All edges from a tracker are in the table of its dylib, and so are the nodes at both ends. If code in this table refers to a
//! tracker of another table, the tracker gets a [`RemoteNode`] here: a node that stands for it. All edges to the remote node
//! share one pin on the tracker. So threads that link into dylibs of different tables against one library write no common
//! memory, except for the first module of a table that refers to the library and the last one that is removed.
//!
//! | edge | pins in the state of T | added by | removed by |
//! |---|---|---|---|
//! | to T's own node | one | `add`, under T's lock | `release` of the tracker that it starts at, or of T |
//! | first edge to a remote node of T | one, for the remote node | `add`, under T's lock | with the last edge to the remote node, or by `remove_remote` when T is reclaimed before them |
//! | further edge to it | none | `add`, `add_cached`, if T's flags say that T is live | `release` of the tracker that it starts at |
//!
//! # The definition cache
//! When two or more trackers of the table refer to T, the table caches the definitions of T that they use, with T's remote
//! node. A module whose references are all cached links without a lock of T's dylib.
//!
//! # Why a further edge needs no lock of T
//! The remote node's pin holds T. A remover sets T's flag `Defunct` first. Then it locks this table to ask the graph about T.
//! Either the remover finds the new edge, or the thread that adds the edge sees the flag. For the same reason, the removal of
//! an edge asks the graph about T if the flag is set, even if the remote node stays: that edge may have been the last one
//! from a live tracker.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::shrunk_capacity;
use crate::session::pins::adjacency_set::AdjacencySet;
use crate::session::pins::pin_nodes::{PinNode, PinNodes};
use crate::session::pins::pinned::Pinned;
use crate::session::pins::tracker_state::{AfterUnpin, EdgeAdded};
use crate::session::types::ids::ResourceKey;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, seeded_bug};

pub(crate) struct PinTable<T> {
    /// The index of this table in the graph.
    number: usize,
    nodes: PinNodes<TrackerNode<T>>,
    /// The nodes of trackers of other tables. Such a node has no edge that starts at it, and at least one that leads to it.
    remotes: FxHashMap<ResourceKey, RemoteNode>,
    /// Ready definitions of other tables, with the remote nodes of their owners.
    definition_cache: FxHashMap<DefinitionId, PinNode>,
    /// The number of transfers that have moved edges. An edge that moves may come before the place that a reader has reached.
    pub(super) moves: u64,
    /// How many edges transfers have moved.
    #[cfg(test)]
    pub(super) moved_edges: usize,
}

/// Stands for a tracker of another table.
struct RemoteNode {
    node: PinNode,
    /// The definitions of the tracker that `definition_cache` has.
    definitions: FxHashSet<DefinitionId>,
}

/// The serial number of a dylib, and a symbol of it.
pub(crate) type DefinitionId = (u64, SymbolId);

struct TrackerNode<T> {
    /// A merged tracker only until its transfer has moved the edges of this table.
    core: Arc<T>,
    /// The trackers that pin this one.
    dependants: AdjacencySet,
    /// The trackers that this one pins.
    depends_on: AdjacencySet,
}

/// The trackers that lost a pin when a tracker was reclaimed.
#[must_use]
pub(crate) struct Released<T> {
    /// Claimed: the caller must reclaim them.
    pub(crate) freed: Vec<Arc<T>>,
    /// The caller must ask the graph whether these may be reclaimed.
    pub(crate) undecided: Vec<Arc<T>>,
}

impl<T> Default for Released<T> {
    fn default() -> Released<T> {
        Released { freed: Vec::new(), undecided: Vec::new() }
    }
}

impl<T: Pinned> PinTable<T> {
    pub(crate) fn new(number: usize) -> PinTable<T> {
        PinTable {
            number,
            nodes: PinNodes::new(),
            remotes: FxHashMap::default(),
            definition_cache: FxHashMap::default(),
            moves: 0,
            #[cfg(test)]
            moved_edges: 0,
        }
    }

    /// The index of the table for the trackers of a dylib. Few dylibs share a table.
    pub(crate) fn index_of(dylib_serial: u64) -> usize {
        dylib_serial as usize % TABLES
    }

    /// Adds an edge, and pins `to` for it. `from` is a tracker of this table. Both may have been merged into other trackers;
    /// then the edge is between those. Returns false, and adds nothing, if either of them is defunct.
    pub(crate) fn add(&mut self, from: &Arc<T>, to: &Arc<T>) -> bool {
        self.add_from(from, false, to)
    }

    /// Like [`add`](Self::add), for a caller that has a pin of `from`. Then `from` may be retired: the pin keeps it from being
    /// reclaimed, so its reclamation finds the edge.
    pub(crate) fn add_for_pinned(&mut self, from: &Arc<T>, to: &Arc<T>) -> bool {
        self.add_from(from, true, to)
    }

    fn add_from(&mut self, from: &Arc<T>, is_pinned: bool, to: &Arc<T>) -> bool {
        let Some((node, is_live)) = from.node_or_insert(is_pinned, |from| self.insert_node(from)) else { return false };
        let edge = match self.remote_of_live(to).filter(|_| is_live) {
            Some(remote) => Some(EdgeAdded::SharedRemote(remote)),
            None => self.edge_under_lock(node, is_live, to),
        };
        match edge {
            Some(EdgeAdded::SharedRemote(to) | EdgeAdded::FirstRemote(to) | EdgeAdded::Local(to))
                if !self.has_edge(node, to) =>
            {
                self.connect(node, to);
            }
            _ => self.remove_if_isolated(node),
        }
        edge.is_some()
    }

    /// Adds edges to the owners of `definitions`. `from` is a tracker of this table. Returns false, and adds nothing, if one of
    /// the definitions is not in the cache, or one of the owners or `from` is not live.
    pub(crate) fn add_cached(&mut self, from: &Arc<T>, definitions: impl Iterator<Item = DefinitionId>) -> bool {
        let mut remotes: SmallVec<[PinNode; 4]> = SmallVec::new();
        for definition in definitions {
            let Some(remote) = self.definition_cache.get(&definition) else { return false };
            if remotes.contains(remote) {
                continue;
            }
            if !is_shareable(&*self.nodes[*remote].core) {
                return false;
            }
            remotes.push(*remote);
        }
        let Some((node, is_live)) = from.node_or_insert(false, |from| self.insert_node(from)) else { return false };
        for remote in remotes.into_iter().filter(|_| is_live) {
            if !self.has_edge(node, remote) {
                self.connect(node, remote);
            }
        }
        self.remove_if_isolated(node);
        is_live
    }

    /// Puts a ready definition of `owner` into the cache, if more than one tracker of this table refers to `owner`.
    pub(crate) fn cache_definition(&mut self, owner: &T, definition: DefinitionId) {
        if !self.is_remote(owner) {
            return;
        }
        let Some(RemoteNode { node, definitions }) = self.remotes.get_mut(&owner.key()) else { return };
        if self.nodes[*node].dependants.len() > 1 && self.definition_cache.insert(definition, *node).is_none() {
            definitions.insert(definition);
        }
    }

    /// Removes a definition from the cache: its dylib has removed it, and its tracker stays.
    pub(crate) fn uncache_definition(&mut self, definition: DefinitionId) {
        let Some(node) = self.definition_cache.remove(&definition) else { return };
        let owner = self.nodes[node].core.key();
        if let Some(remote) = self.remotes.get_mut(&owner) {
            remote.definitions.remove(&definition);
        }
    }

    /// The remote node of a tracker, if the tracker is live. A live tracker was not merged.
    fn remote_of_live(&self, core: &T) -> Option<PinNode> {
        let remote = self.remotes.get(&core.key())?;
        is_shareable(core).then_some(remote.node)
    }

    /// Pins `to` under its lock, unless the edge exists. `None` if there is no edge and none may be added.
    fn edge_under_lock(&mut self, from: PinNode, is_from_live: bool, to: &Arc<T>) -> Option<EdgeAdded> {
        to.pin_dependant(self.number, |to, own_node, is_live| {
            let is_remote = self.is_remote(to);
            let existing = if is_remote { self.remote_of(to) } else { own_node };
            match existing {
                // A reference of a tracker to itself pins nothing.
                Some(node) if node == from || self.has_edge(from, node) => Some(EdgeAdded::Existing),
                _ if !is_from_live || !is_live => None,
                Some(remote) if is_remote => Some(EdgeAdded::SharedRemote(remote)),
                Some(node) => Some(EdgeAdded::Local(node)),
                None if is_remote => Some(EdgeAdded::FirstRemote(self.insert_node(to))),
                None => Some(EdgeAdded::Local(self.insert_node(to))),
            }
        })
    }

    /// `source` was merged into `destination`; both are of this table. Joins their nodes: that with fewer edges gives them to the
    /// other one, which is the node of `destination` then. Removes edges between the two.
    pub(crate) fn merge(&mut self, source: &Arc<T>, destination: &Arc<T>) {
        let Some(of_source) = source.state().take_node() else { return };
        self.moves += 1;
        let (kept, joined) = match destination.state().node() {
            Some(node) if self.degree(node) >= self.degree(of_source) => (node, Some(of_source)),
            node => (of_source, node),
        };
        if kept == of_source {
            self.nodes[kept].core = destination.clone();
            destination.state().replace_node(kept);
        }
        let Some((joined, edges)) = joined.and_then(|node| Some((node, self.nodes.remove(node)?))) else { return };
        for to in edges.depends_on.nodes() {
            self.count_moved();
            self.nodes[to].dependants.remove(joined);
            self.reconnect(kept, to);
        }
        for from in edges.dependants.nodes() {
            self.count_moved();
            self.nodes[from].depends_on.remove(joined);
            self.reconnect(from, kept);
        }
        self.remove_if_isolated(kept);
    }

    /// The number of a node's edges.
    fn degree(&self, node: PinNode) -> usize {
        self.nodes.at(node).map_or(0, |node| node.dependants.len() + node.depends_on.len())
    }

    #[inline(always)]
    fn count_moved(&mut self) {
        #[cfg(test)]
        (self.moved_edges += 1);
    }

    fn reconnect(&mut self, from: PinNode, to: PinNode) {
        if from != to && !self.has_edge(from, to) {
            return self.connect(from, to);
        }
        if !self.is_remote(&self.nodes[to].core) {
            // This edge is inside the merged tracker, or the tracker has such an edge already: one pin is superfluous. The
            // other end is live, or `destination` still pins it. So nothing can be reclaimed here.
            let next_step = self.nodes[to].core.unpin_dependant();
            debug_assert_ne!(next_step, AfterUnpin::Reclaim);
        }
    }

    /// `source` was merged into `destination`; both are of another table. Joins their remote nodes, as [`merge`](Self::merge) does.
    pub(crate) fn merge_remotes(&mut self, source: &T, destination: &Arc<T>) {
        let Some(of_source) = self.remotes.remove(&source.key()) else { return };
        let Some(of_destination) = self.remotes.remove(&destination.key()) else {
            self.nodes[of_source.node].core = destination.clone();
            self.remotes.insert(destination.key(), of_source);
            return;
        };
        self.moves += 1;
        let size = |remote: &RemoteNode| self.degree(remote.node) + remote.definitions.len();
        let (kept, joined) = match size(&of_destination) >= size(&of_source) {
            true => (of_destination, of_source),
            false => (of_source, of_destination),
        };
        let node = kept.node;
        self.nodes[node].core = destination.clone();
        self.remotes.insert(destination.key(), kept);
        joined.definitions.iter().for_each(|definition| _ = self.definition_cache.remove(definition));
        for from in self.remove_node(joined.node) {
            self.count_moved();
            if !self.has_edge(from, node) {
                self.connect(from, node);
            }
        }
        // `destination` got the pins of both remote nodes, and needs one.
        let next_step = destination.unpin_dependant();
        debug_assert_eq!(next_step, AfterUnpin::Nothing, "the destination is live: its dylib is locked");
    }

    /// A tracker of another table was reclaimed while trackers of this one refer to it. Removes up to [`PIECE`] edges to its remote
    /// node, and the node with the last one. Returns whether the node is gone.
    pub(crate) fn remove_remote(&mut self, core: &T) -> bool {
        let Some(remote) = self.remote_of(core) else { return true };
        for from in self.first_nodes(remote, |node| &node.dependants) {
            self.disconnect(from, remote);
        }
        let is_last = self.nodes[remote].dependants.is_empty();
        if is_last {
            self.remove_remote_entry(core);
            self.nodes.remove(remote);
        }
        is_last
    }

    /// Removes the entry of a remote node and its cached definitions. The node itself stays.
    fn remove_remote_entry(&mut self, core: &T) -> Option<PinNode> {
        let RemoteNode { node, definitions } = self.remotes.remove(&core.key())?;
        if let Some(smaller) = shrunk_capacity(self.remotes.len(), self.remotes.capacity()) {
            self.remotes.shrink_to(smaller);
        }
        for definition in &definitions {
            self.definition_cache.remove(definition);
        }
        if let Some(smaller) = shrunk_capacity(self.definition_cache.len(), self.definition_cache.capacity()) {
            self.definition_cache.shrink_to(smaller);
        }
        Some(node)
    }

    fn remote_of(&self, core: &T) -> Option<PinNode> {
        self.remotes.get(&core.key()).map(|remote| remote.node)
    }

    /// Removes a node at which no edge starts. Returns the nodes whose edges led to it.
    fn remove_node(&mut self, node: PinNode) -> Vec<PinNode> {
        let dependants: Vec<_> = self.nodes.remove(node).iter().flat_map(|gone| gone.dependants.nodes()).collect();
        for from in &dependants {
            self.nodes[*from].depends_on.remove(node);
        }
        dependants
    }

    /// Prefetches a node.
    pub(crate) fn prefetch(&self, node: PinNode) {
        self.nodes.prefetch(node);
    }

    /// `core`, a tracker of this table, was reclaimed. Drops up to [`PIECE`] of the pins that it holds, and removes the node after
    /// the last one. Returns whether the node is gone.
    pub(crate) fn release(&mut self, core: &T, released: &mut Released<T>) -> bool {
        let Some(node) = core.state().node() else { return true };
        for to in self.first_nodes(node, |node| &node.depends_on) {
            self.disconnect(node, to);
            match self.after_edge_removed(to) {
                AfterUnpin::Nothing => {}
                AfterUnpin::Reclaim => released.freed.push(self.nodes[to].core.clone()),
                AfterUnpin::AskGraph => released.undecided.push(self.nodes[to].core.clone()),
            }
            self.remove_if_isolated(to);
        }
        // The other trackers of a cycle are reclaimed after this one, and must not look for its node.
        for from in self.first_nodes(node, |node| &node.dependants) {
            self.disconnect(from, node);
        }
        let Some(TrackerNode { dependants, depends_on, .. }) = self.nodes.at(node) else { return true };
        let is_last = dependants.is_empty() && depends_on.is_empty();
        if is_last {
            core.state().take_node();
            self.nodes.remove(node);
        }
        is_last
    }

    /// The first [`PIECE`] nodes at the other ends of a node's edges.
    fn first_nodes(&self, node: PinNode, edges: fn(&TrackerNode<T>) -> &AdjacencySet) -> SmallVec<[PinNode; 4]> {
        self.nodes.at(node).map_or_else(SmallVec::new, |node| edges(node).first_nodes(PIECE))
    }

    fn disconnect(&mut self, from: PinNode, to: PinNode) {
        if let Some(from) = self.nodes.at_mut(from) {
            from.depends_on.remove(to);
        }
        if let Some(to) = self.nodes.at_mut(to) {
            to.dependants.remove(from);
        }
    }

    /// An edge to `node` was removed. Returns what the caller must do with the tracker of the node.
    fn after_edge_removed(&self, node: PinNode) -> AfterUnpin {
        let TrackerNode { core, dependants, .. } = &self.nodes[node];
        if dependants.is_empty() || !self.is_remote(core) {
            return core.unpin_dependant();
        }
        // Seeded bug: nobody asks again about a cycle that only this edge held.
        if seeded_bug!("shared_pin_left_unsaid") {
            AfterUnpin::Nothing
        } else {
            core.state().after_shared_edge_removed()
        }
    }

    /// Up to [`PIECE`] trackers that `core`, a tracker of this table, pins, with their nodes: those after the node `last`.
    pub(crate) fn dependencies_after(&self, core: &T, last: Option<PinNode>) -> Neighbours<T> {
        self.others_after(core.state().node(), last, |node| &node.depends_on)
    }

    /// Up to [`PIECE`] trackers of this table that pin `core`, with their nodes: those after the node `last`. `core` may be of
    /// any table.
    pub(crate) fn dependants_after(&self, core: &T, last: Option<PinNode>) -> Neighbours<T> {
        self.others_after(self.node_of(core), last, |node| &node.dependants)
    }

    /// Adds the first trackers of this table that pin `core`, until `found` has `count`. Returns whether these are all.
    pub(crate) fn first_dependants(&self, core: &T, count: usize, found: &mut SmallVec<[Arc<T>; 4]>) -> bool {
        let node = self.node_of(core).and_then(|node| self.nodes.at(node));
        let mut others = node.into_iter().flat_map(|node| node.dependants.nodes());
        let missing = count - found.len();
        let cores = others.by_ref().filter_map(|other| self.nodes.at(other)).map(|node| node.core.clone());
        found.extend(cores.take(missing));
        found.len() < count || others.next().is_none()
    }

    fn others_after(
        &self,
        node: Option<PinNode>,
        last: Option<PinNode>,
        edges: fn(&TrackerNode<T>) -> &AdjacencySet,
    ) -> Neighbours<T> {
        let node = node.and_then(|node| self.nodes.at(node));
        let others = node.into_iter().flat_map(move |node| edges(node).nodes_after(last)).take(PIECE);
        others.filter_map(|other| Some((other, self.nodes.at(other)?.core.clone()))).collect()
    }

    /// The number of trackers that `core`, a tracker of this table, pins.
    pub(crate) fn dependency_count(&self, core: &T) -> usize {
        core.state().node().and_then(|node| self.nodes.at(node)).map_or(0, |node| node.depends_on.len())
    }

    /// Calls `visit` with each tracker that `core`, a tracker of this table, pins.
    pub(crate) fn for_each_dependency(&self, core: &T, visit: impl FnMut(&Arc<T>)) {
        let node = core.state().node().and_then(|node| self.nodes.at(node));
        let others = node.into_iter().flat_map(|node| node.depends_on.nodes());
        others.filter_map(|other| self.nodes.at(other)).map(|node| &node.core).for_each(visit);
    }

    /// Whether `from`, a tracker of this table, pins `to`.
    pub(crate) fn has_edge_between(&self, from: &T, to: &T) -> bool {
        let from = from.state().node().and_then(|from| self.nodes.at(from));
        from.zip(self.node_of(to)).is_some_and(|(from, to)| from.depends_on.contains(to))
    }

    /// The number of trackers of this table that pin `core`.
    pub(crate) fn dependant_count(&self, core: &T) -> usize {
        self.node_of(core).and_then(|node| self.nodes.at(node)).map_or(0, |node| node.dependants.len())
    }

    fn node_of(&self, core: &T) -> Option<PinNode> {
        if self.is_remote(core) { self.remote_of(core) } else { core.state().node() }
    }

    fn is_remote(&self, core: &T) -> bool {
        Self::index_of(core.dylib_serial()) != self.number
    }

    fn has_edge(&self, from: PinNode, to: PinNode) -> bool {
        self.nodes.at(from).is_some_and(|node| node.depends_on.contains(to))
    }

    fn connect(&mut self, from: PinNode, to: PinNode) {
        self.nodes[from].depends_on.add(to);
        self.nodes[to].dependants.add(from);
    }

    /// Inserts a node for a tracker. If the tracker is of this table, the caller stores the number in the tracker's state.
    fn insert_node(&mut self, core: &Arc<T>) -> PinNode {
        let node = TrackerNode {
            core: core.clone(),
            dependants: AdjacencySet::default(),
            depends_on: AdjacencySet::default(),
        };
        let number = self.nodes.insert(node);
        if self.is_remote(core) {
            self.remotes.insert(core.key(), RemoteNode { node: number, definitions: FxHashSet::default() });
        }
        number
    }

    fn remove_if_isolated(&mut self, number: PinNode) {
        let is_isolated = |node: &TrackerNode<T>| node.dependants.is_empty() && node.depends_on.is_empty();
        if !self.nodes.at(number).is_some_and(is_isolated) {
            return;
        }
        let Some(TrackerNode { core, .. }) = self.nodes.remove(number) else { return };
        match self.is_remote(&core) {
            true => _ = self.remove_remote_entry(&core),
            false => _ = core.state().take_node(),
        }
    }
}

/// Whether a tracker that has a remote node may get another edge without its lock.
fn is_shareable<T: Pinned>(core: &T) -> bool {
    // Seeded bug: a removed tracker gets dependants that the thread that claims it does not see.
    seeded_bug!("removed_tracker_shared") || core.state().is_live()
}

/// How many edges an operation reads or removes under one lock.
pub(crate) const PIECE: usize = 64;

/// Trackers at the other ends of a tracker's edges, with their nodes.
pub(crate) type Neighbours<T> = SmallVec<[(PinNode, Arc<T>); 4]>;

/// The number of tables. More of them mean fewer dylibs that share one. Loom explores every order of locks, so it gets two.
pub(crate) const TABLES: usize = if cfg!(loom) { 2 } else { 8 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name, sized};
    use crate::session::{
        ExecutionSession, JitDylib, RequiredState, ResourceTracker, SymbolFlags, SymbolRef, SymbolRequest,
    };

    /// Defines a ready symbol in `dylib` that refers to `refers_to`.
    fn define(dylib: &JitDylib, tracker: &ResourceTracker, name: &str, refers_to: Vec<SymbolRef>) -> SymbolRef {
        let r = tracker.define_materializing(name, [(Name::new(name), SymbolFlags::EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        r.notify_emitted(refers_to).unwrap();
        let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready).unwrap();
        found[0].symbol.clone().unwrap()
    }

    #[test]
    fn cached_definitions_are_removed_with_the_definition_and_with_the_dependants() {
        let session = ExecutionSession::new();
        let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
        let cached = || {
            let table = session.inner().pins.table_of(user.inner().id.number());
            (table.definition_cache.len(), table.remotes.values().map(|remote| remote.definitions.len()).sum::<usize>())
        };
        let long_lived = library.create_tracker().unwrap();
        let stays = define(&library, &long_lived, "stays", Vec::new());
        let users = [(); 2].map(|()| user.create_tracker().unwrap());
        for round in 0..sized(20, 3) {
            let comes = define(&library, &long_lived, "comes", Vec::new());
            for (number, tracker) in users.iter().enumerate() {
                let refers_to = vec![stays.clone(), comes.clone()];
                define(&user, tracker, &format!("user {number} {round}"), refers_to);
            }
            assert_eq!(cached(), (2, 2));
            library.remove_symbols(&["comes"]).unwrap();
            assert_eq!(cached(), (1, 1));
        }
        assert!(users.into_iter().all(|tracker| tracker.remove().unwrap().is_complete()));
        assert_eq!(cached(), (0, 0));
    }

    #[test]
    fn a_tracker_that_was_reclaimed_by_force_is_no_longer_a_dependency() {
        for is_transferred in [false, true] {
            let session = ExecutionSession::new();
            let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
            let mut used = library.create_tracker().unwrap();
            let f = define(&library, &used, "f", Vec::new());
            // A dependant in the library's own table gives the tracker a node there.
            let third = if is_transferred { &user } else { &library };
            let users = [(&user, "one"), (&user, "two"), (third, "three")].map(|(dylib, name)| {
                let tracker = dylib.create_tracker().unwrap();
                define(dylib, &tracker, name, vec![f.clone()]);
                tracker
            });
            if is_transferred {
                let destination = library.create_tracker().unwrap();
                used.transfer_to(&destination).unwrap();
                used = destination;
            }
            let dependencies = || users.each_ref().map(|user| user.dependencies().len());
            assert_eq!(dependencies(), [1, 1, 1]);
            assert!(crate::session::remove_now(&used).unwrap().is_complete());
            assert_eq!(dependencies(), [0, 0, 0]);
            assert!(users.iter().all(|user| user.remove().unwrap().is_complete()));
        }
    }

    /// Both for dependants of the same table and for those of another one.
    #[test]
    fn a_transfer_moves_the_edges_of_the_tracker_that_has_fewer() {
        let count = sized(200, 20);
        for (is_local, source_edges, destination_edges) in [
            (true, count, 0),
            (true, count, 3),
            (true, 3, count),
            (false, count, 0),
            (false, count, 3),
            (false, 3, count),
        ] {
            let session = ExecutionSession::new();
            let [library, other] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
            let user = if is_local { &library } else { &other };
            let star = |name: &str, edges: usize| {
                let base = library.create_tracker().unwrap();
                let symbol = define(&library, &base, name, Vec::new());
                let users: Vec<_> = (0..edges).map(|_| user.create_tracker().unwrap()).collect();
                for (number, tracker) in users.iter().enumerate() {
                    define(user, tracker, &format!("user {number} of {name}"), vec![symbol.clone()]);
                }
                (base, users)
            };
            let (source, mut users) = star("source", source_edges);
            let (destination, more) = star("destination", destination_edges);
            users.extend(more);
            let moved = || session.inner().pins.table_of(user.inner().id.number()).moved_edges;
            source.transfer_to(&destination).unwrap();
            assert_eq!(moved(), source_edges.min(destination_edges));
            assert_eq!(destination.dependents().len(), users.len());
            let is_only = |found: Vec<ResourceTracker>| found.len() == 1 && found[0].key() == destination.key();
            assert!(users.iter().all(|user| is_only(user.dependencies())));
            let removal = destination.remove().unwrap();
            for (number, tracker) in users.iter().enumerate() {
                assert!(!removal.is_complete(), "{number} of {} users are removed", users.len());
                assert!(tracker.remove().unwrap().is_complete());
            }
            assert!(removal.is_complete());
            assert_eq!(session.inner().pins.table_of(user.inner().id.number()).nodes.len(), 0);
        }
    }

    #[test]
    fn a_tracker_node_takes_40_bytes() {
        assert_eq!(size_of::<TrackerNode<crate::session::core::resource_tracker::TrackerCore>>(), 40);
    }
}
