//! [`WaitingGraph`]: emitted symbols that may not be used yet, because something that they refer to is not ready.
//!
//! A *group* is what one unit emitted together. It waits on symbols that are not emitted, and on groups that are
//! emitted and wait themselves. A group is ready when no unemitted symbol can be reached from it; then everything that
//! it reaches is ready too, cycles included. Whatever is named here is a [`SymbolRef`], so a symbol that was removed
//! and defined again is another node. Only links that meet unfinished symbols ever take this graph's lock.
//!
//! So that a long chain is not walked at each emission, a group that waits for no symbol of its own remembers a
//! *witness*: a group that it reaches and that waited when it was asked. Following witnesses leads to a group with an
//! unemitted symbol, and shortens the way for the next; only where it leads nowhere any more is the graph searched.
//! Witnesses form a forest: one is set only on a group whose way leads nowhere, to a group at the end of its own.

use rustc_hash::{FxHashMap, FxHashSet};
use slotmap::SlotMap;

use crate::base::Name;
use crate::error::{ErrorKind, Result};
use crate::session::core::deferred_notifications::{DeferredNotifications, Published};
use crate::session::core::jit_dylib::{DylibId, DylibState};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::lookup::ready_lookup::DependencyRef;
use crate::session::materialize::responsibility::ClaimedSymbol;
use crate::session::types::symbol::{SymbolId, SymbolRef, SymbolState};

slotmap::new_key_type! {
    struct GroupId;
}

type Node = (DylibId, SymbolId);

#[derive(Default)]
pub(crate) struct WaitingGraph {
    groups: SlotMap<GroupId, Group>,
    /// The group of an emitted symbol.
    group_of: FxHashMap<Node, GroupId>,
    /// Groups that wait on a symbol that is not emitted.
    waiting_on: FxHashMap<Node, FxHashSet<GroupId>>,
    /// Groups looked at by searches and on the way to witnesses.
    #[cfg(test)]
    steps: usize,
}

#[derive(Default)]
struct Group {
    symbols: Vec<SymbolRef>,
    unemitted: FxHashSet<Node>,
    emitted: FxHashSet<GroupId>,
    dependants: FxHashSet<GroupId>,
    /// None while there is an unemitted symbol; it may be gone.
    witness: Option<GroupId>,
}

impl WaitingGraph {
    /// The tracker's `own` symbols are emitted and refer to `dependencies`: makes ready what is ready by that.
    ///
    /// # Errors
    /// When one of either is gone; nothing was changed then.
    pub(crate) fn emit(
        &mut self,
        core: &TrackerCore,
        own: Vec<SymbolRef>,
        dependencies: &[SymbolRef],
        aftermath: &mut DeferredNotifications,
    ) -> Result<()> {
        let mut group = Group::default();
        for dependency in dependencies {
            let mut state = dependency.dylib.state.lock();
            let Some(symbol) = state.table.symbol_mut(dependency.id) else {
                return Err(removed(&DependencyRef::of(dependency), own.first().map(|symbol| &symbol.name)));
            };
            match symbol.state {
                SymbolState::Ready => {}
                SymbolState::Emitted => {
                    // Emitted, and in no group: its group was abandoned, and it is about to leave the table.
                    let waits_with = self.group_of.get(&dependency.order()).ok_or_else(|| {
                        removed(&DependencyRef::of(dependency), own.first().map(|symbol| &symbol.name))
                    })?;
                    group.emitted.insert(*waits_with);
                }
                _ => {
                    symbol.has_dependants = true;
                    group.unemitted.insert(dependency.order());
                }
            }
        }
        let waits = !group.emitted.is_empty() || !group.unemitted.is_empty();
        {
            let mut state = core.dylib().state.lock();
            if own.iter().any(|symbol| state.table.symbol(symbol.id).is_none()) {
                return Err(core.defunct());
            }
            let reached = if waits { SymbolState::Emitted } else { SymbolState::Ready };
            for symbol in &own {
                state.table.advance(symbol.id, reached, &mut aftermath.completions);
            }
            if !waits {
                aftermath.publish(|| own.iter().filter_map(|symbol| published(&state, symbol)));
            }
        }
        group.symbols = own;
        let mut candidates = self.settle_dependants(&mut group, waits);
        while let Some(candidate) = candidates.pop() {
            self.ready_if_closed(candidate, &mut candidates, aftermath);
        }
        Ok(())
    }

    /// Symbols were removed or failed: the groups that wait on them, directly or not, are dropped. Returns the symbols
    /// of those groups.
    pub(crate) fn abandon(&mut self, symbols: &[SymbolRef]) -> Vec<SymbolRef> {
        let mut doomed: Vec<GroupId> = Vec::new();
        for symbol in symbols {
            doomed.extend(self.group_of.get(&symbol.order()));
            doomed.extend(self.waiting_on.remove(&symbol.order()).unwrap_or_default());
        }
        let mut abandoned = Vec::new();
        while let Some(id) = doomed.pop() {
            let Some(group) = self.detach(id) else { continue };
            doomed.extend(group.dependants);
            abandoned.extend(group.symbols);
        }
        abandoned
    }

    /// Groups that waited on the new group's symbols now wait on the group, or on nothing. Returns whom to examine.
    fn settle_dependants(&mut self, group: &mut Group, waits: bool) -> Vec<GroupId> {
        let mut woken: Vec<GroupId> = Vec::new();
        for symbol in &group.symbols {
            for id in self.waiting_on.remove(&symbol.order()).unwrap_or_default() {
                self.groups[id].unemitted.remove(&symbol.order());
                woken.push(id);
            }
        }
        if !waits {
            return woken;
        }
        group.dependants.extend(woken.iter().copied());
        let id = self.groups.insert(std::mem::take(group));
        for dependant in woken {
            let dependant = &mut self.groups[dependant];
            dependant.emitted.insert(id);
            if dependant.unemitted.is_empty() {
                dependant.witness = Some(id);
            }
        }
        let inserted = &self.groups[id];
        let (emitted, unemitted): (Vec<_>, Vec<_>) =
            (inserted.emitted.iter().copied().collect(), inserted.unemitted.iter().copied().collect());
        for symbol in &inserted.symbols {
            self.group_of.insert(symbol.order(), id);
        }
        for dependency in emitted {
            self.groups[dependency].dependants.insert(id);
        }
        for symbol in unemitted {
            self.waiting_on.entry(symbol).or_default().insert(id);
        }
        vec![id]
    }

    /// If nothing unemitted can be reached from `id`, makes everything that it reaches ready.
    fn ready_if_closed(&mut self, id: GroupId, candidates: &mut Vec<GroupId>, aftermath: &mut DeferredNotifications) {
        // Each with the group from which the search came to it.
        let mut reached = FxHashMap::default();
        let mut unvisited = vec![(id, id)];
        while let Some((next, from)) = unvisited.pop() {
            if reached.contains_key(&next) || !self.groups.contains_key(next) {
                continue;
            }
            reached.insert(next, from);
            if let Some(witness) = self.waiting_witness(next) {
                return self.set_witness(next, witness, &reached);
            }
            unvisited.extend(self.groups[next].emitted.iter().map(|dependency| (*dependency, next)));
        }
        for id in reached.into_keys() {
            let Some(group) = self.detach(id) else { continue };
            candidates.extend(group.dependants);
            for symbol in group.symbols {
                let mut state = symbol.dylib.state.lock();
                state.table.advance(symbol.id, SymbolState::Ready, &mut aftermath.completions);
                aftermath.publish(|| published(&state, &symbol).into_iter());
            }
        }
    }

    /// The group with an unemitted symbol that the witnesses of `id` lead to, if they lead to one. The way is one step
    /// long for those who ask again.
    fn waiting_witness(&mut self, id: GroupId) -> Option<GroupId> {
        let mut way = Vec::new();
        let mut end = id;
        while let Some(next) = self.groups[end].witness.filter(|next| self.groups.contains_key(*next)) {
            way.push(end);
            end = next;
        }
        #[cfg(test)]
        {
            self.steps += way.len() + 1;
        }
        for id in way {
            self.groups[id].witness = Some(end);
        }
        (!self.groups[end].unemitted.is_empty()).then_some(end)
    }

    /// All on the way that a search took to `found` reach what its witnesses lead to.
    fn set_witness(&mut self, found: GroupId, witness: GroupId, reached: &FxHashMap<GroupId, GroupId>) {
        let mut id = found;
        while reached[&id] != id {
            id = reached[&id];
            self.groups[id].witness = Some(witness);
        }
    }

    /// Takes a group out, with every mention of it.
    fn detach(&mut self, id: GroupId) -> Option<Group> {
        let group = self.groups.remove(id)?;
        for symbol in &group.symbols {
            self.group_of.remove(&symbol.order());
        }
        for symbol in &group.unemitted {
            if let Some(waiting) = self.waiting_on.get_mut(symbol) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.waiting_on.remove(symbol);
                }
            }
        }
        for dependency in &group.emitted {
            if let Some(dependency) = self.groups.get_mut(*dependency) {
                dependency.dependants.remove(&id);
            }
        }
        for dependant in &group.dependants {
            if let Some(dependant) = self.groups.get_mut(*dependant) {
                dependant.emitted.remove(&id);
            }
        }
        Some(group)
    }
}

/// A symbol that became ready, and its owner.
fn published(state: &DylibState, symbol: &SymbolRef) -> Option<Published> {
    let owner = state.table.symbol(symbol.id).and_then(|found| state.table.owner(found))?;
    Some((owner.clone(), symbol.clone()))
}

/// The error of code that refers to a symbol that is gone.
pub(crate) fn removed(dependency: &DependencyRef<'_>, dependant: Option<&Name>) -> crate::error::Error {
    let dependant = dependant.map_or_else(|| "an object".to_string(), |name| format!("`{name}`"));
    ErrorKind::DependencyRemoved {
        dylib: dependency.dylib.name.to_string(),
        symbol: dependency.name().to_string(),
        dependant,
    }
    .into()
}

/// Sorts by identity, drops repetitions and everything that is among `own`, which are symbols of `dylib`.
pub(crate) fn distinct(mut dependencies: Vec<SymbolRef>, dylib: DylibId, own: &[ClaimedSymbol]) -> Vec<SymbolRef> {
    dependencies.sort_unstable_by_key(SymbolRef::order);
    dependencies.dedup_by_key(|symbol| symbol.order());
    if own.len() <= FEW {
        dependencies.retain(|symbol| symbol.dylib.id != dylib || own.iter().all(|own| own.id != symbol.id));
    } else {
        let own: FxHashSet<SymbolId> = own.iter().map(|owed| owed.id).collect();
        dependencies.retain(|symbol| symbol.dylib.id != dylib || !own.contains(&symbol.id));
    }
    dependencies
}

/// Looking at so many one by one is no slower than a table.
const FEW: usize = 16;

#[cfg(all(test, not(loom)))]
mod tests;
