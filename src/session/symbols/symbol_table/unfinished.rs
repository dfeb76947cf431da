//! [`Unfinished`]: the trackers whose lists of symbols are filled, moved or removed in pieces.
//!
//! A definition, a transfer and a removal change each symbol of a tracker. With many symbols they do so in pieces ([`SYMBOL_PIECE`],
//! `pieces.rs`, `staged.rs`), and other threads get the dylib's lock in between. An entry here makes the step look whole to them:
//!
//! | entry | symbols of the tracker's list | ends |
//! |---|---|---|
//! | definition | are *hidden*: no search by name or id finds them, and their names may be defined by others | as a transfer to the tracker that defines them, or as a removal |
//! | transfer | are of the destination ([`SymbolTable::owner`]) | with the tracker's record |
//! | removal | are hidden | with the last symbol |
//!
//! There is no entry unless such a step is under way, so a search usually reads one word. A step has one entry, whatever the
//! number of its symbols.
//!
//! If a destination is transferred itself, its entries follow at once: an owner is found in one step. If a destination is removed,
//! the symbols that are still in the lists of its sources are removed with it, and the thread of the transfer finds nothing
//! left to move. Several threads may work at one list, piece by piece.
//!
//! The hash table of names keeps a hidden symbol, and may have a new one of the same name. The index of ready symbols still answers
//! with a hidden symbol, until a search or a definition that comes across it in the table removes it there too. So a name that was
//! not found once, or was defined again, is never answered with the hidden symbol.

use super::{Owner, Symbol, SymbolTable, TableTypes, name};
use crate::base::{PagedArena, SlotNumber};
use crate::session::symbols::ready_index::{IndexState, ReadyIndex};
use crate::session::types::ids::TrackerId;
use crate::session::types::name_sources::NameSources;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, seeded_bug};

#[derive(Default)]
pub(super) struct Unfinished {
    pub(super) entries: Vec<Entry>,
    /// Pairs of definitions with a common name. Of two, the one that ends first takes the name.
    pub(super) rivals: Vec<[TrackerId; 2]>,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The tracker whose list is filled, moved or removed.
    pub(super) tracker: TrackerId,
    /// The live tracker that owns the symbols or will own them, or the removed one that owned them.
    pub(super) owner: TrackerId,
    pub(super) step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Definition {
        /// Another definition has taken one of the names meanwhile.
        is_overtaken: bool,
    },
    Transfer,
    Removal,
}

impl Step {
    fn hides(self) -> bool {
        match self {
            // Seeded bug: other threads see some of the symbols and not the others.
            Step::Definition { .. } => !seeded_bug!("symbols_seen_before_their_definition_ends"),
            Step::Transfer => false,
            Step::Removal => true,
        }
    }
}

impl Unfinished {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a definition or a removal hides a symbol.
    #[inline(always)]
    pub(super) fn hides(&self, symbol: &Symbol) -> bool {
        !self.entries.is_empty() && self.hides_owner(symbol.owner)
    }

    #[cold]
    fn hides_owner(&self, owner: SlotNumber<TrackerId>) -> bool {
        self.entries.iter().any(|entry| entry.step.hides() && SlotNumber::of(entry.tracker) == owner)
    }

    /// The tracker that owns the symbols with this owner in their entries.
    #[inline(always)]
    pub(super) fn owner(&self, owner: SlotNumber<TrackerId>) -> SlotNumber<TrackerId> {
        if self.entries.is_empty() { owner } else { self.find_owner(owner) }
    }

    #[cold]
    fn find_owner(&self, owner: SlotNumber<TrackerId>) -> SlotNumber<TrackerId> {
        let found = self.entries.iter().find(|entry| SlotNumber::of(entry.tracker) == owner);
        found.map_or(owner, |entry| SlotNumber::of(entry.owner))
    }

    pub(super) fn mark_overtaken(&mut self, tracker: TrackerId) {
        self.entries.iter_mut().filter(|entry| entry.tracker == tracker).for_each(Entry::mark_overtaken);
    }

    /// The other trackers in whose lists symbols of `owner`, a live tracker, are.
    pub(super) fn sources(&self, owner: TrackerId) -> impl Iterator<Item = TrackerId> {
        self.entries
            .iter()
            .filter(move |entry| entry.owner == owner && entry.step == Step::Transfer)
            .map(|entry| entry.tracker)
    }
}

impl Entry {
    /// Another definition has taken a name of this one.
    pub(super) fn mark_overtaken(&mut self) {
        if let Step::Definition { is_overtaken } = &mut self.step {
            *is_overtaken = true;
        }
    }
}

/// For a search that has come to a symbol of the name that it looks for: whether the symbol is hidden. Then it leaves the index too.
#[inline(always)]
pub(super) fn skips(
    unfinished: &Unfinished,
    ready: &ReadyIndex,
    sources: &NameSources,
    (slot, symbols): (SlotNumber<SymbolId>, &PagedArena<SymbolId, Symbol>),
) -> bool {
    !unfinished.is_empty() && unfinished.hides(&symbols[slot]) && {
        leave_index(ready, sources, (slot, symbols));
        true
    }
}

#[cold]
fn leave_index(
    ready: &ReadyIndex,
    sources: &NameSources,
    (slot, symbols): (SlotNumber<SymbolId>, &PagedArena<SymbolId, Symbol>),
) {
    let Some((id, symbol)) = symbols.entry_at(slot) else { return };
    // Seeded bug: a thread finds no such name and defines it, and the index still answers with the old definition.
    if symbol.index_state == IndexState::Indexed && !seeded_bug!("hidden_symbol_left_in_the_index") {
        ready.remove(std::iter::once((&name(sources, symbol).to_name(), id)));
    }
}

impl<E: TableTypes> SymbolTable<E> {
    /// A symbol that is not hidden.
    #[inline(always)]
    pub(super) fn visible(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id).filter(|symbol| !self.unfinished.hides(symbol))
    }

    /// As [`visible`](Self::visible).
    #[inline(always)]
    pub(super) fn visible_mut(&mut self, id: SymbolId) -> Option<&mut Symbol> {
        self.symbols.get_mut(id).filter(|symbol| !self.unfinished.hides(symbol))
    }

    /// The number of symbols that are not hidden.
    pub(crate) fn symbol_count(&self) -> usize {
        let hidden = self.unfinished.entries.iter().filter(|entry| entry.step.hides());
        self.symbols.len() - hidden.map(|entry| self.list_len(entry.tracker)).sum::<usize>()
    }

    /// The number of symbols that a tracker owns. Zero if it is not live.
    pub(crate) fn symbol_count_of(&self, tracker: TrackerId) -> usize {
        let is_unfinished = self.unfinished.entries.iter().any(|entry| entry.tracker == tracker);
        let own = if is_unfinished { 0 } else { self.list_len(tracker) };
        own + self.unfinished.sources(tracker).map(|source| self.list_len(source)).sum::<usize>()
    }

    fn list_len(&self, tracker: TrackerId) -> usize {
        self.trackers.get(tracker).map_or(0, |record| record.core.owned().count() as usize)
    }

    /// The heads of the lists that have the symbols of a live tracker.
    pub(super) fn lists_of(&self, owner: &Arc<E::Tracker>) -> impl Iterator<Item = SlotNumber<SymbolId>> {
        let sources = self.unfinished.sources(owner.id()).filter_map(|source| self.trackers.get(source));
        let heads = sources.filter_map(|source| source.core.owned().first());
        owner.owned().first().into_iter().chain(heads)
    }
}

/// How many symbols are moved or removed under one lock.
pub(crate) const SYMBOL_PIECE: usize = match () {
    () if cfg!(loom) => 1,
    // A test of several pieces takes seconds there, and not minutes.
    () if cfg!(miri) => 16,
    () => 128,
};
