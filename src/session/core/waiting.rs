//! [`WaitingGraph`]: emitted symbols that may not be used yet, because something that they refer to is not ready.
//!
//! The symbols that one unit emits together form a *group*. A group waits for symbols that are not emitted, and for
//! other groups that are emitted but wait themselves. When no symbol that is not emitted can be reached from a group,
//! the group is ready, and so is every group that it reaches, cycles included. Nodes are [`SymbolRef`]s: a symbol that
//! is removed and defined again is another node. Only a link that refers to a symbol that is not ready takes this
//! graph's lock.
//!
//! # Witnesses
//! A search at each emission would walk a long chain again and again. So a group that waits for no symbol itself
//! remembers a *witness*: a group that it reaches, and that waited when the search ran. A walk along witnesses usually
//! ends at a group that waits for a symbol, and shortens the path for the next walk. If the walk ends at a group that
//! waits for no symbol, the graph is searched.
//!
//! A group gets a witness in two cases. When the last symbol that it waits for is emitted, and still waits, the witness
//! is the new group of that symbol. When a search finds a group whose walk ends at a group that waits for a symbol,
//! that end becomes the witness of every group on the path of the search; their own walks ended at no such group. So
//! witnesses form a forest.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use slotmap::SlotMap;

use crate::base::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::deferred_notifications::{DeferredNotifications, Published};
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::symbol_ref::{DependencyRef, SymbolRef};
use crate::session::types::ids::DylibId;
use crate::session::types::symbol::{SymbolId, SymbolState};

slotmap::new_key_type! {
    struct GroupId;
}

/// Identifies a definition.
type SymbolKey = (DylibId, SymbolId);

/// The graph of one session. Rank: outermost, before the state of any dylib.
#[derive(Default)]
pub(crate) struct WaitingGraph {
    groups: SlotMap<GroupId, Group>,
    /// The group of an emitted symbol.
    group_of: FxHashMap<SymbolKey, GroupId>,
    /// The groups that wait for a symbol that is not emitted.
    waiting_on: FxHashMap<SymbolKey, FxHashSet<GroupId>>,
    /// Symbols of removed groups that are still in their tables, with the failure from which theirs came.
    failing: FxHashMap<SymbolKey, Error>,
    /// The number of groups that searches and walks along witnesses have visited.
    #[cfg(test)]
    steps: usize,
}

/// Symbols that were emitted together.
#[derive(Default)]
struct Group {
    symbols: Vec<SymbolRef>,
    /// The symbols that it waits for.
    unemitted: FxHashSet<SymbolKey>,
    /// The groups that it waits for.
    emitted: FxHashSet<GroupId>,
    /// The groups that wait for it.
    dependants: FxHashSet<GroupId>,
    /// `None` while `unemitted` is not empty. The witness may have left the graph.
    witness: Option<GroupId>,
}

/// A group that was removed because of a failure.
pub(crate) struct FailedGroup<'a> {
    /// The symbols, which one unit has emitted. Not empty.
    pub(crate) symbols: Vec<SymbolRef>,
    pub(crate) needs: Needs<'a>,
}

/// What a failed group needs and does not get.
#[derive(Clone, Copy)]
pub(crate) enum Needs<'a> {
    /// Nothing: its own symbols have failed.
    Nothing,
    /// A symbol that has failed.
    Symbol(&'a SymbolRef),
    /// The group with this position in the list of removed groups.
    Group(usize),
}

impl WaitingGraph {
    /// Emits the tracker's symbols `own`, which refer to `dependencies`, and makes ready every symbol that can be ready
    /// now.
    ///
    /// # Errors
    /// [`ErrorKind::DependencyRemoved`] when a dependency is gone, the tracker's error when one of `own` is. Nothing is
    /// changed then.
    pub(crate) fn emit(
        &mut self,
        core: &TrackerCore,
        own: Vec<SymbolRef>,
        dependencies: &[SymbolRef],
        notifications: &mut DeferredNotifications,
    ) -> Result<()> {
        let mut group = Group::default();
        for dependency in dependencies {
            let mut state = dependency.dylib.state.lock();
            let Some(symbol) = state.table.symbol_mut(dependency.id) else {
                let dependant = own.first().map(|symbol| &symbol.name);
                return Err(dependency_removed(Some(&state), &DependencyRef::of(dependency), dependant));
            };
            match symbol.state {
                SymbolState::Ready => {}
                SymbolState::Emitted => {
                    // An emitted symbol without a group: its group was removed, and the symbol is about to leave the
                    // table.
                    let group_id = self.group_of.get(&dependency.sort_key()).ok_or_else(|| {
                        let cause = self.failing.get(&dependency.sort_key()).cloned();
                        let dependant = own.first().map(|symbol| &symbol.name);
                        dependency_failed(&DependencyRef::of(dependency), dependant, cause)
                    })?;
                    group.emitted.insert(*group_id);
                }
                _ => {
                    symbol.has_dependants = true;
                    group.unemitted.insert(dependency.sort_key());
                }
            }
        }
        let waits = !group.emitted.is_empty() || !group.unemitted.is_empty();
        {
            let mut state = core.dylib().state.lock();
            if own.iter().any(|symbol| state.table.symbol(symbol.id).is_none()) {
                return Err(core.defunct());
            }
            let new_state = if waits { SymbolState::Emitted } else { SymbolState::Ready };
            for symbol in &own {
                state.table.advance(symbol.id, new_state, &mut notifications.completions);
            }
            if !waits {
                notifications.publish(|| own.iter().filter_map(|symbol| published(&state, symbol)));
            }
        }
        group.symbols = own;
        let mut candidates = self.insert_group(&mut group, waits);
        while let Some(candidate) = candidates.pop() {
            self.make_ready_if_closed(candidate, &mut candidates, notifications);
        }
        Ok(())
    }

    /// `symbols` were removed or failed: removes the groups that wait for them, directly or not. Each group comes after the one
    /// that it needs. The symbols of the groups are failing because of `error` until [`forget_failing`](Self::forget_failing).
    pub(crate) fn remove_groups_waiting_on<'a>(
        &mut self,
        symbols: &'a [SymbolRef],
        error: &Error,
    ) -> Vec<FailedGroup<'a>> {
        let mut to_remove: VecDeque<(GroupId, Needs<'a>)> = VecDeque::new();
        for symbol in symbols {
            to_remove.extend(self.group_of.get(&symbol.sort_key()).map(|id| (*id, Needs::Nothing)));
            let waiting = self.waiting_on.remove(&symbol.sort_key()).unwrap_or_default();
            to_remove.extend(waiting.into_iter().map(|id| (id, Needs::Symbol(symbol))));
        }
        let mut removed = Vec::new();
        while let Some((id, needs)) = to_remove.pop_front() {
            let Some(group) = self.detach(id) else { continue };
            self.failing.extend(group.symbols.iter().map(|symbol| (symbol.sort_key(), error.clone())));
            to_remove.extend(group.dependants.into_iter().map(|dependant| (dependant, Needs::Group(removed.len()))));
            removed.push(FailedGroup { symbols: group.symbols, needs });
        }
        removed
    }

    /// The symbols of removed groups have left their tables.
    pub(crate) fn forget_failing<'a>(&mut self, symbols: impl Iterator<Item = &'a SymbolRef>) {
        symbols.for_each(|symbol| drop(self.failing.remove(&symbol.sort_key())));
        if self.failing.is_empty() {
            self.failing = FxHashMap::default();
        }
    }

    /// Inserts the new group if it waits. The groups that waited for its symbols now wait for the group, or, if it does
    /// not wait, for nothing. Returns the groups that may be ready.
    fn insert_group(&mut self, group: &mut Group, waits: bool) -> Vec<GroupId> {
        let mut dependants: Vec<GroupId> = Vec::new();
        for symbol in &group.symbols {
            for id in self.waiting_on.remove(&symbol.sort_key()).unwrap_or_default() {
                self.groups[id].unemitted.remove(&symbol.sort_key());
                dependants.push(id);
            }
        }
        if !waits {
            return dependants;
        }
        group.dependants.extend(dependants.iter().copied());
        let id = self.groups.insert(std::mem::take(group));
        for dependant in dependants {
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
            self.group_of.insert(symbol.sort_key(), id);
        }
        for dependency in emitted {
            self.groups[dependency].dependants.insert(id);
        }
        for symbol in unemitted {
            self.waiting_on.entry(symbol).or_default().insert(id);
        }
        vec![id]
    }

    /// Makes `id` and every group that it reaches ready, if no symbol that is not emitted can be reached from it.
    fn make_ready_if_closed(
        &mut self,
        id: GroupId,
        candidates: &mut Vec<GroupId>,
        notifications: &mut DeferredNotifications,
    ) {
        // Maps each visited group to the group from which the search came to it.
        let mut reached = FxHashMap::default();
        let mut unvisited = vec![(id, id)];
        while let Some((next, from)) = unvisited.pop() {
            if reached.contains_key(&next) || !self.groups.contains_key(next) {
                continue;
            }
            reached.insert(next, from);
            if let Some(witness) = self.follow_witnesses(next) {
                return self.set_witness(next, witness, &reached);
            }
            unvisited.extend(self.groups[next].emitted.iter().map(|dependency| (*dependency, next)));
        }
        for id in reached.into_keys() {
            let Some(group) = self.detach(id) else { continue };
            candidates.extend(group.dependants);
            for symbol in group.symbols {
                let mut state = symbol.dylib.state.lock();
                state.table.advance(symbol.id, SymbolState::Ready, &mut notifications.completions);
                notifications.publish(|| published(&state, &symbol).into_iter());
            }
        }
    }

    /// Follows the witnesses of `id`. Returns the group at the end if it waits for a symbol. Makes every group on the
    /// path point to the end, so that the next walk takes one step.
    fn follow_witnesses(&mut self, id: GroupId) -> Option<GroupId> {
        let mut path = Vec::new();
        let mut end = id;
        while let Some(next) = self.groups[end].witness.filter(|next| self.groups.contains_key(*next)) {
            path.push(end);
            end = next;
        }
        #[cfg(test)]
        {
            self.steps += path.len() + 1;
        }
        for id in path {
            self.groups[id].witness = Some(end);
        }
        (!self.groups[end].unemitted.is_empty()).then_some(end)
    }

    /// Sets the witness of every group on the path that the search took from its start to `found`.
    fn set_witness(&mut self, found: GroupId, witness: GroupId, reached: &FxHashMap<GroupId, GroupId>) {
        let mut id = found;
        while reached[&id] != id {
            id = reached[&id];
            self.groups[id].witness = Some(witness);
        }
    }

    /// Removes a group and every reference to it.
    fn detach(&mut self, id: GroupId) -> Option<Group> {
        let group = self.groups.remove(id)?;
        for symbol in &group.symbols {
            self.group_of.remove(&symbol.sort_key());
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

/// The error of code that refers to a removed symbol. `state` is that of the symbol's dylib: it knows whether the symbol failed.
pub(crate) fn dependency_removed(
    state: Option<&DylibState>,
    dependency: &DependencyRef<'_>,
    dependant: Option<&Name>,
) -> Error {
    let failure = |state: &DylibState| state.failure_of_definition(dependency.dylib, dependency.id, &dependency.name());
    dependency_failed(dependency, dependant, state.and_then(failure))
}

fn dependency_failed(dependency: &DependencyRef<'_>, dependant: Option<&Name>, cause: Option<Error>) -> Error {
    let dependant = dependant.map_or_else(|| "an object".to_string(), |name| format!("`{name}`"));
    let (dylib, symbol) = (dependency.dylib.name.to_string(), dependency.name().to_string());
    ErrorKind::DependencyRemoved { dylib, symbol, dependant, cause }.into()
}

#[cfg(all(test, not(loom)))]
mod tests;
