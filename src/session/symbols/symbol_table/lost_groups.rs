//! [`LostGroups`]: COMDAT groups whose definition of their own name lost against a definition outside of the group.
//!
//! Such a group is still the first of its signature, and later groups are left out. The definition that won stands for it: it has the
//! flag `COMDAT`. When the tracker of the group is removed, the flag goes.
//!
//! ```text
//!   of_tracker: tracker of the group ─► definitions that stand for its groups
//!   group_of:   definition that stands for a group ─► tracker of the group
//! ```
//!
//! A definition that left the table stays in both maps until the tracker of the group is removed: its id is not used again. A
//! dylib without such groups has no record.

use rustc_hash::FxHashMap;

use super::{SymbolTable, TableTypes};
use crate::session::types::ids::TrackerId;
use crate::session::types::symbol::{SymbolFlags, SymbolId};

#[derive(Default)]
pub(super) struct LostGroups(Option<Box<Records>>);

#[derive(Default)]
struct Records {
    of_tracker: FxHashMap<TrackerId, Vec<SymbolId>>,
    group_of: FxHashMap<SymbolId, TrackerId>,
}

impl LostGroups {
    /// Moves the records of `source` to `destination`.
    #[inline]
    pub(super) fn transfer(&mut self, source: TrackerId, destination: TrackerId) {
        if let Some(records) = &mut self.0 {
            records.transfer(source, destination);
        }
    }
}

impl Records {
    #[cold]
    fn transfer(&mut self, source: TrackerId, destination: TrackerId) {
        let Some(moved) = self.of_tracker.remove(&source) else { return };
        for id in &moved {
            if let Some(owner) = self.group_of.get_mut(id) {
                *owner = destination;
            }
        }
        self.of_tracker.entry(destination).or_default().extend(moved);
    }
}

impl<E: TableTypes> SymbolTable<E> {
    /// Lets the definition `id` stand for a group of `tracker`, and later groups of its name are left out. Not for a definition that
    /// stands for a group already.
    #[cold]
    pub(crate) fn stand_for_group(&mut self, id: SymbolId, tracker: TrackerId) {
        let Some(symbol) = self.symbols.get_mut(id).filter(|symbol| !symbol.flags.contains(SymbolFlags::COMDAT)) else {
            return;
        };
        symbol.flags = symbol.flags | SymbolFlags::COMDAT;
        let records = self.lost_groups.0.get_or_insert_default();
        records.group_of.insert(id, tracker);
        records.of_tracker.entry(tracker).or_default().push(id);
    }

    /// The tracker of the group that a definition stands for.
    pub(crate) fn tracker_of_group(&self, id: SymbolId) -> Option<TrackerId> {
        let symbol = self.visible(id).filter(|symbol| symbol.flags.contains(SymbolFlags::COMDAT))?;
        let lost = self.lost_groups.0.as_ref().and_then(|records| records.group_of.get(&id));
        lost.copied().or_else(|| self.trackers.key_at(self.unfinished.owner(symbol.owner)))
    }

    /// Forgets the groups of a tracker that is removed: definitions of other trackers no longer stand for them.
    #[inline]
    pub(crate) fn remove_lost_groups(&mut self, tracker: TrackerId) {
        if self.lost_groups.0.is_some() {
            self.clear_lost_groups(tracker);
        }
    }

    #[cold]
    fn clear_lost_groups(&mut self, tracker: TrackerId) {
        let Some(records) = &mut self.lost_groups.0 else { return };
        for id in records.of_tracker.remove(&tracker).into_iter().flatten() {
            if records.group_of.get(&id) == Some(&tracker)
                && records.group_of.remove(&id).is_some()
                && let Some(symbol) = self.symbols.get_mut(id)
            {
                symbol.flags = symbol.flags.without(SymbolFlags::COMDAT);
            }
        }
        if records.of_tracker.is_empty() {
            self.lost_groups.0 = None;
        }
    }
}
