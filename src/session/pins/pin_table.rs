//! [`PinTable`]: a part of the pin graph: the edges from the trackers of some dylibs.
//!
//! All edges from a tracker stand in the table of its dylib, and so do the nodes at both ends of them. A tracker of another
//! table, which is referred to from here, has a *proxy* here: a node that stands for it, and pins it once for all that lead to
//! the proxy. So threads that link into dylibs of different tables against one library write nothing in common; but for the
//! first module of a table that comes to the library, and the last that goes.
//!
//! | what | pins in the gate of T | comes | goes |
//! |---|---|---|---|
//! | edge to T's own node | one | `add`, under T's gate | `release` of the tracker that it is from, or of T |
//! | first edge to a proxy of T | one, the proxy's | `add`, under T's gate | with the last edge to the proxy; or `forget_proxy`, when T is reclaimed ahead of them |
//! | further edge to it | none | `add`, `add_known`, if T's sign says that it is live | `release` of the tracker that it is from |
//!
//! Definitions of T that a second tracker of the table comes to are known here by T's proxy, from then on as long as that is
//! there: who refers to nothing else of T's dylib need not lock that, to hear that T is their owner.
//!
//! That the last of these is not added under T's gate does no harm. The proxy's pin keeps T; T's sign goes up ahead of
//! whatever its remover asks the graph, for which it locks this table: so it finds the edge, or whoever would add one finds
//! the sign. For the same reason an edge that goes has the graph asked for T if the sign is up, though the proxy stays: it
//! may have been the last one from a live tracker.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::capacity_to_keep;
use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::pins::adjacency_set::AdjacencySet;
use crate::session::pins::pin_nodes::{PinNode, PinNodes};
use crate::session::pins::tracker_state::{AfterUnpin, EdgeAdded};
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, seeded_bug};

pub(crate) struct PinTable {
    /// Position among the graph's.
    number: usize,
    nodes: PinNodes<Node>,
    /// The nodes of trackers of other tables. Nothing leads from one, and something to it.
    proxies: FxHashMap<ResourceKey, RemoteNode>,
    /// By ready definitions, the proxies of their owners.
    known: FxHashMap<Definition, PinNode>,
}

struct RemoteNode {
    node: PinNode,
    /// The tracker's definitions that are known by it.
    definitions: FxHashSet<Definition>,
}

/// A symbol, and the serial number of its dylib.
pub(crate) type Definition = (u64, SymbolId);

struct Node {
    /// Not a merged one.
    core: Arc<TrackerCore>,
    /// Who pins this tracker.
    dependants: AdjacencySet,
    /// Whom this tracker pins.
    depends_on: AdjacencySet,
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

impl PinTable {
    pub(crate) fn new(number: usize) -> PinTable {
        PinTable { number, nodes: PinNodes::new(), proxies: FxHashMap::default(), known: FxHashMap::default() }
    }

    /// Where the trackers of a dylib are: with those of few other dylibs.
    pub(crate) fn of(dylib: &DylibInner) -> usize {
        dylib.serial as usize % TABLES
    }

    /// Pins what `to` has become for what `from` has become, which is of this table. False, and nothing pinned, when either
    /// is defunct.
    pub(crate) fn add(&mut self, from: &Arc<TrackerCore>, to: &Arc<TrackerCore>) -> bool {
        self.add_from(from, false, to)
    }

    /// As [`add`](Self::add), for a caller that has a pin of `from`: that may be retired. The pin keeps it from being reclaimed, so
    /// its reclaim finds the edge.
    pub(crate) fn add_for_pinned(&mut self, from: &Arc<TrackerCore>, to: &Arc<TrackerCore>) -> bool {
        self.add_from(from, true, to)
    }

    fn add_from(&mut self, from: &Arc<TrackerCore>, is_pinned: bool, to: &Arc<TrackerCore>) -> bool {
        let Some((node, is_live)) = from.node_or_enter(is_pinned, |from| self.enter(from)) else { return false };
        let edge = match self.proxy_of_live(to).filter(|_| is_live) {
            Some(proxy) => Some(EdgeAdded::Shared(proxy)),
            None => self.edge_at_gate(node, is_live, to),
        };
        match edge {
            Some(EdgeAdded::Shared(to) | EdgeAdded::First(to) | EdgeAdded::Own(to)) if !self.has_edge(node, to) => {
                self.connect(node, to);
            }
            _ => self.forget_if_bare(node),
        }
        edge.is_some()
    }

    /// Pins the owners of `definitions` for what `from` has become, which is of this table, if all of them are known here and
    /// live; otherwise, or if `from` is defunct, false.
    pub(crate) fn add_known(&mut self, from: &Arc<TrackerCore>, definitions: impl Iterator<Item = Definition>) -> bool {
        let mut proxies: SmallVec<[PinNode; 4]> = SmallVec::new();
        for definition in definitions {
            let Some(proxy) = self.known.get(&definition) else { return false };
            if proxies.contains(proxy) {
                continue;
            }
            if !is_shareable(&self.nodes[*proxy].core) {
                return false;
            }
            proxies.push(*proxy);
        }
        let Some((node, is_live)) = from.node_or_enter(false, |from| self.enter(from)) else { return false };
        for proxy in proxies.into_iter().filter(|_| is_live) {
            if !self.has_edge(node, proxy) {
                self.connect(node, proxy);
            }
        }
        self.forget_if_bare(node);
        is_live
    }

    /// Has a ready definition of `owner`'s known by its proxy, if more than one tracker leads to that.
    pub(crate) fn know(&mut self, owner: &TrackerCore, definition: Definition) {
        if !self.is_foreign(owner) {
            return;
        }
        let Some(RemoteNode { node, definitions }) = self.proxies.get_mut(&owner.key()) else { return };
        if self.nodes[*node].dependants.len() > 1 && self.known.insert(definition, *node).is_none() {
            definitions.insert(definition);
        }
    }

    /// A definition has left its dylib while its tracker stays.
    pub(crate) fn forget_known(&mut self, definition: Definition) {
        let Some(node) = self.known.remove(&definition) else { return };
        let owner = self.nodes[node].core.key();
        if let Some(proxy) = self.proxies.get_mut(&owner) {
            proxy.definitions.remove(&definition);
        }
    }

    /// The proxy of a tracker that is live: so that was not merged.
    fn proxy_of_live(&self, core: &TrackerCore) -> Option<PinNode> {
        let proxy = self.proxies.get(&core.key())?;
        is_shareable(core).then_some(proxy.node)
    }

    /// The edge from `from`, if there is one or may be: `to` is pinned for it.
    fn edge_at_gate(&mut self, from: PinNode, is_from_live: bool, to: &Arc<TrackerCore>) -> Option<EdgeAdded> {
        to.pin_dependant(|to, own_node, is_live| {
            let is_foreign = self.is_foreign(to);
            let known = if is_foreign { self.proxy_of(to) } else { own_node };
            match known {
                // Code that refers to its own tracker's holds nothing.
                Some(node) if node == from || self.has_edge(from, node) => Some(EdgeAdded::Known),
                _ if !is_from_live || !is_live => None,
                Some(proxy) if is_foreign => Some(EdgeAdded::Shared(proxy)),
                Some(node) => Some(EdgeAdded::Own(node)),
                None if is_foreign => Some(EdgeAdded::First(self.enter(to))),
                None => Some(EdgeAdded::Own(self.enter(to))),
            }
        })
    }

    /// `source` has become `destination`, both of this table: its edges too. Edges between the two vanish.
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
        if from != to && !self.has_edge(from, to) {
            return self.connect(from, to);
        }
        if !self.is_foreign(&self.nodes[to].core) {
            // An edge inside the merged tracker, or one that it has already: this pin is one too many. The other end is
            // live, or still pinned by the destination, so nothing is left to do.
            let left = self.nodes[to].core.gate.unpin_dependant();
            debug_assert_ne!(left, AfterUnpin::Reclaim);
        }
    }

    /// `source` has become `destination`, both of another table: its proxy too.
    pub(crate) fn merge_proxies(&mut self, source: &TrackerCore, destination: &Arc<TrackerCore>) {
        let Some(old) = self.take_proxy(source) else { return };
        let Some(new) = self.proxy_of(destination) else {
            self.nodes[old].core = destination.clone();
            self.proxies.insert(destination.key(), RemoteNode { node: old, definitions: FxHashSet::default() });
            return;
        };
        for from in self.take_out(old) {
            if !self.has_edge(from, new) {
                self.connect(from, new);
            }
        }
        // Two pins have become the destination's, and one stands for them.
        let left = destination.gate.unpin_dependant();
        debug_assert_eq!(left, AfterUnpin::Nothing, "the destination is live: its dylib is locked");
    }

    /// A tracker of another table was reclaimed, whoever referred to it.
    pub(crate) fn forget_proxy(&mut self, core: &TrackerCore) {
        if let Some(proxy) = self.take_proxy(core) {
            self.take_out(proxy);
        }
    }

    fn take_proxy(&mut self, core: &TrackerCore) -> Option<PinNode> {
        let RemoteNode { node, definitions } = self.proxies.remove(&core.key())?;
        if let Some(kept) = capacity_to_keep(self.proxies.len(), self.proxies.capacity()) {
            self.proxies.shrink_to(kept);
        }
        for definition in &definitions {
            self.known.remove(definition);
        }
        if let Some(kept) = capacity_to_keep(self.known.len(), self.known.capacity()) {
            self.known.shrink_to(kept);
        }
        Some(node)
    }

    fn proxy_of(&self, core: &TrackerCore) -> Option<PinNode> {
        self.proxies.get(&core.key()).map(|proxy| proxy.node)
    }

    /// Removes a node from which nothing leads; who led to it.
    fn take_out(&mut self, node: PinNode) -> Vec<PinNode> {
        let dependants: Vec<_> = self.nodes.remove(node).iter().flat_map(|gone| gone.dependants.nodes()).collect();
        for from in &dependants {
            self.nodes[*from].depends_on.remove(node);
        }
        dependants
    }

    /// Asks for a tracker's node ahead of its use.
    pub(crate) fn prefetch(&self, node: PinNode) {
        self.nodes.prefetch(node);
    }

    /// `core`, which is of this table, was reclaimed: drops the pins it holds.
    pub(crate) fn release(&mut self, core: &TrackerCore) -> Released {
        let mut released = Released::default();
        let Some(node) = core.gate.take_node() else { return released };
        let Some(gone) = self.nodes.remove(node) else { return released };
        for to in gone.depends_on.nodes() {
            self.nodes[to].dependants.remove(node);
            match self.left_by_one(to) {
                AfterUnpin::Nothing => {}
                AfterUnpin::Reclaim => released.freed.push(self.nodes[to].core.clone()),
                AfterUnpin::AskGraph => released.undecided.push(self.nodes[to].core.clone()),
            }
            self.forget_if_bare(to);
        }
        // Those of a ring that are reclaimed after this one must not look for it.
        for from in gone.dependants.nodes() {
            if let Some(dependant) = self.nodes.at_mut(from) {
                dependant.depends_on.remove(node);
            }
        }
        released
    }

    /// An edge to a node has gone; what that leaves to do.
    fn left_by_one(&self, node: PinNode) -> AfterUnpin {
        let Node { core, dependants, .. } = &self.nodes[node];
        if dependants.is_empty() || !self.is_foreign(core) {
            return core.gate.unpin_dependant();
        }
        // Seeded bug: nobody asks again for a ring that only this one held.
        if seeded_bug!("shared_pin_left_unsaid") { AfterUnpin::Nothing } else { core.gate.left_by_sharer() }
    }

    /// The trackers that `core`, which is of this table, holds.
    pub(crate) fn dependencies(&self, core: &TrackerCore) -> impl Iterator<Item = &Arc<TrackerCore>> {
        self.others(core.gate.node(), |node| &node.depends_on)
    }

    /// The trackers of this table that hold `core`, of whichever it is.
    pub(crate) fn dependents(&self, core: &TrackerCore) -> impl Iterator<Item = &Arc<TrackerCore>> {
        self.others(self.node_of(core), |node| &node.dependants)
    }

    fn others(
        &self,
        node: Option<PinNode>,
        edges: fn(&Node) -> &AdjacencySet,
    ) -> impl Iterator<Item = &Arc<TrackerCore>> {
        let node = node.and_then(|node| self.nodes.at(node));
        let others = node.into_iter().flat_map(move |node| edges(node).nodes());
        others.filter_map(|other| self.nodes.at(other)).map(|node| &node.core)
    }

    /// How many trackers of this table hold `core`.
    pub(crate) fn dependant_count(&self, core: &TrackerCore) -> usize {
        self.node_of(core).and_then(|node| self.nodes.at(node)).map_or(0, |node| node.dependants.len())
    }

    fn node_of(&self, core: &TrackerCore) -> Option<PinNode> {
        if self.is_foreign(core) { self.proxy_of(core) } else { core.gate.node() }
    }

    fn is_foreign(&self, core: &TrackerCore) -> bool {
        PinTable::of(core.dylib()) != self.number
    }

    fn has_edge(&self, from: PinNode, to: PinNode) -> bool {
        self.nodes.at(from).is_some_and(|node| node.depends_on.contains(to))
    }

    fn connect(&mut self, from: PinNode, to: PinNode) {
        self.nodes[from].depends_on.add(to);
        self.nodes[to].dependants.add(from);
    }

    /// A node for a tracker. Its gate is to keep the number, if it is of this table.
    fn enter(&mut self, core: &Arc<TrackerCore>) -> PinNode {
        let node =
            Node { core: core.clone(), dependants: AdjacencySet::default(), depends_on: AdjacencySet::default() };
        let number = self.nodes.insert(node);
        if self.is_foreign(core) {
            self.proxies.insert(core.key(), RemoteNode { node: number, definitions: FxHashSet::default() });
        }
        number
    }

    fn forget_if_bare(&mut self, number: PinNode) {
        let is_bare = |node: &Node| node.dependants.is_empty() && node.depends_on.is_empty();
        if !self.nodes.at(number).is_some_and(is_bare) {
            return;
        }
        let Some(Node { core, .. }) = self.nodes.remove(number) else { return };
        match self.is_foreign(&core) {
            true => _ = self.take_proxy(&core),
            false => _ = core.gate.take_node(),
        }
    }
}

/// Whether a tracker that its proxy pins may get another edge without its gate.
fn is_shareable(core: &TrackerCore) -> bool {
    // Seeded bug: one that was removed gets dependants, of which those who claim it know nothing.
    seeded_bug!("removed_tracker_shared") || core.gate.is_live()
}

/// So many dylibs do not meet; few, under loom, where each lock multiplies the schedules.
pub(crate) const TABLES: usize = if cfg!(loom) { 2 } else { 8 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name, sized};
    use crate::session::{
        ExecutionSession, JitDylib, RequiredState, ResourceTracker, SymbolFlags, SymbolRef, SymbolRequest,
    };

    /// A ready definition in `dylib` that refers to others.
    fn define(dylib: &JitDylib, tracker: &ResourceTracker, name: &str, refers_to: Vec<SymbolRef>) -> SymbolRef {
        let r = tracker.define_materializing(name, [(Name::new(name), SymbolFlags::EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        r.notify_emitted(refers_to).unwrap();
        let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready).unwrap();
        found[0].symbol.clone().unwrap()
    }

    #[test]
    fn what_is_known_of_definitions_goes_with_them_one_by_one_and_with_their_tracker() {
        let session = ExecutionSession::new();
        let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
        let held = || {
            let table = session.inner().pins.table_of(user.inner());
            (table.known.len(), table.proxies.values().map(|proxy| proxy.definitions.len()).sum::<usize>())
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
            assert_eq!(held(), (2, 2));
            library.remove_symbols(&["comes"]).unwrap();
            assert_eq!(held(), (1, 1));
        }
        assert!(users.into_iter().all(|tracker| tracker.remove().unwrap().is_complete()));
        assert_eq!(held(), (0, 0));
    }

    #[test]
    fn a_tracker_that_was_freed_under_its_dependants_is_no_dependency_of_theirs_any_more() {
        for is_transferred in [false, true] {
            let session = ExecutionSession::new();
            let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
            let mut used = library.create_tracker().unwrap();
            let f = define(&library, &used, "f", Vec::new());
            // The library's own users have it known to the graph in any case.
            let third = if is_transferred { &user } else { &library };
            let users = [(&user, "one"), (&user, "two"), (third, "three")].map(|(dylib, name)| {
                let tracker = dylib.create_tracker().unwrap();
                define(dylib, &tracker, name, vec![f.clone()]);
                tracker
            });
            if is_transferred {
                let heir = library.create_tracker().unwrap();
                used.transfer_to(&heir).unwrap();
                used = heir;
            }
            let dependencies = || users.each_ref().map(|user| user.dependencies().len());
            assert_eq!(dependencies(), [1, 1, 1]);
            assert!(crate::session::remove_now(&used).unwrap().is_complete());
            assert_eq!(dependencies(), [0, 0, 0]);
            assert!(users.iter().all(|user| user.remove().unwrap().is_complete()));
        }
    }

    #[test]
    fn a_node_takes_few_bytes_since_there_is_one_for_each_module_that_calls_others() {
        assert_eq!(size_of::<Node>(), 40);
    }
}
