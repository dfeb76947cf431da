//! Definition of many symbols in pieces. What other threads see meanwhile is in `unfinished.rs`.
//!
//! The symbols go to the list of a *stage*: a tracker that was merged into the one that defines them, and owns nothing else. They are
//! hidden until [`end_stage`](SymbolTable::end_stage). From there on they move to the list of their owner as in a transfer.
//!
//! Other threads may define one of the names meanwhile. Then that definition came first, and this one ends with nothing defined. If both
//! are staged, the one that ends first takes the name.

use super::insert::{Definition, Start};
use super::unfinished::{Entry, Step};
use super::{Probe, SymbolTable, TableTypes, UnitId, UnitRecord, halves, text};
use crate::base::{ExecutorAddr, Name, RecycledVec, SlotNumber};
use crate::session::types::ids::TrackerId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolId, SymbolState};
use crate::sync::{Arc, seeded_bug};

use slotmap::Key;

/// The state of the symbols of a staged definition once it ends.
#[derive(Clone, Copy)]
pub(crate) enum StagedState<'a> {
    /// NeverSearched, of this unit.
    Lazy(UnitId),
    Materializing,
    /// With these addresses, in the order of the definitions.
    Ready(&'a [ExecutorAddr]),
}

impl<E: TableTypes> SymbolTable<E> {
    /// Begins a definition for `owner`, a live tracker. `stage` was merged into it and owns nothing.
    pub(crate) fn begin_stage(&mut self, stage: TrackerId, owner: TrackerId) {
        let step = Step::Definition { is_overtaken: false };
        self.unfinished.entries.push(Entry { tracker: stage, owner, step });
    }

    /// Adds a record of a lazy unit that has no symbols yet.
    pub(crate) fn begin_staged_unit(&mut self, promised_count: usize) -> UnitId {
        self.units.insert(UnitRecord::new(RecycledVec::default(), Some(promised_count)))
    }

    /// Inserts a piece of the definitions, hidden. `None` if a name is taken, or if the owner was removed meanwhile. A name that occurs
    /// twice is one symbol.
    pub(crate) fn stage_piece<'a>(
        &mut self,
        stage: TrackerId,
        unit_name: &Arc<str>,
        mut definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
        state: StagedState<'_>,
    ) -> Option<RecycledVec<SymbolId>> {
        self.definition_of(stage)?;
        let start = match state {
            StagedState::Lazy(unit) => Start::Same(SymbolState::NeverSearched, halves(unit.data().as_ffi())),
            StagedState::Materializing => Start::Same(SymbolState::Materializing, [0; 2]),
            StagedState::Ready(addresses) => Start::Ready(addresses),
        };
        self.reserve_names(definitions.len());
        self.insert_piece(stage, unit_name, &mut definitions, start)
    }

    /// Compiled once for all lists of definitions.
    fn insert_piece<'a>(
        &mut self,
        stage: TrackerId,
        unit_name: &Arc<str>,
        definitions: &mut dyn ExactSizeIterator<Item = (Definition<'a>, Probe)>,
        start: Start<'_>,
    ) -> Option<RecycledVec<SymbolId>> {
        match self.names.has_many() {
            true => self.insert_all::<true, true>(stage, unit_name, definitions, start),
            false => self.insert_all::<true, false>(stage, unit_name, definitions, start),
        }
    }

    /// Makes the symbols visible, all at once. Returns false, and changes nothing, if another definition has taken one of the names, or if
    /// the owner was removed. After true, the caller calls [`move_piece`](Self::move_piece) until it returns true.
    pub(crate) fn end_stage(&mut self, stage: TrackerId) -> bool {
        match self.definition_of(stage) {
            Some(Entry { step: Step::Definition { is_overtaken: false }, .. }) => {}
            // Seeded bug: two definitions of one name are made.
            Some(_) if seeded_bug!("overtaken_definition_ends") => {}
            _ => return false,
        }
        let (rivals, others) =
            std::mem::take(&mut self.unfinished.rivals).into_iter().partition(|pair| pair.contains(&stage));
        let rivals: Vec<[TrackerId; 2]> = rivals;
        self.unfinished.rivals = others;
        for entry in &mut self.unfinished.entries {
            if entry.tracker == stage {
                entry.step = Step::Transfer;
            } else if rivals.iter().any(|pair| pair.contains(&entry.tracker)) {
                entry.mark_overtaken();
            }
        }
        // Searches have seen that the names are absent, and remember it.
        self.note_generator();
        true
    }

    /// Begins to remove the hidden symbols of a definition that cannot end. Returns false if the removal of the owner does that. After
    /// true, the caller calls [`remove_piece`](Self::remove_piece) for the stage until nothing is left, and then removes its record.
    pub(crate) fn abandon_stage(&mut self, stage: TrackerId) -> bool {
        self.unfinished.rivals.retain(|pair| !pair.contains(&stage));
        let is_staged = |entry: &&mut Entry| entry.tracker == stage && matches!(entry.step, Step::Definition { .. });
        let Some(entry) = self.unfinished.entries.iter_mut().find(is_staged) else { return false };
        (entry.owner, entry.step) = (stage, Step::Removal);
        true
    }

    /// Removes the record of a unit whose definition was abandoned.
    pub(crate) fn remove_staged_unit(&mut self, id: UnitId) -> Option<UnitRecord<E>> {
        self.units.remove(id)
    }

    fn definition_of(&self, stage: TrackerId) -> Option<&Entry> {
        let is_staged = |entry: &&Entry| entry.tracker == stage && matches!(entry.step, Step::Definition { .. });
        self.unfinished.entries.iter().find(is_staged)
    }

    /// A name is about to be defined: by `stage`, or visibly. Staged definitions of the same name learn of it.
    #[cold]
    pub(super) fn overtake(&mut self, name: &Name, hash: NameHash, stage: Option<TrackerId>) {
        let bytes = name.borrowed();
        let is_staged = |entry: &&Entry| matches!(entry.step, Step::Definition { .. }) && Some(entry.tracker) != stage;
        let mut overtaken = Vec::new();
        self.names.find(hash.spread(), |slot| {
            let symbol = &self.symbols[*slot];
            if symbol.hash == hash && text(&self.sources, symbol) == bytes.as_bytes() {
                let of_symbol = |entry: &&Entry| SlotNumber::of(entry.tracker) == symbol.owner;
                overtaken.extend(
                    self.unfinished.entries.iter().filter(is_staged).find(of_symbol).map(|entry| entry.tracker),
                );
            }
            false
        });
        for tracker in overtaken {
            match stage {
                Some(stage) if self.unfinished.rivals.contains(&[stage, tracker]) => {}
                Some(stage) => self.unfinished.rivals.push([stage, tracker]),
                None => self.unfinished.mark_overtaken(tracker),
            }
        }
    }

    /// As [`overtake`](Self::overtake), for symbols that were just inserted.
    #[cold]
    pub(super) fn overtake_all(&mut self, inserted: &[SymbolId], is_staged: bool) {
        let has_other = |entry: &&Entry| matches!(entry.step, Step::Definition { .. });
        if self.unfinished.entries.iter().filter(has_other).count() <= usize::from(is_staged) {
            return;
        }
        for id in inserted {
            let Some(symbol) = self.symbols.get(*id) else { continue };
            let (name, hash, owner) = (self.name(symbol).to_name(), symbol.hash, symbol.owner);
            let stage = if is_staged { self.trackers.key_at(owner) } else { None };
            self.overtake(&name, hash, stage);
        }
    }
}

/// Whether so many definitions are staged. It costs each symbol a tenth more, so fewer are inserted under one lock.
pub(crate) fn is_staged(count: usize) -> bool {
    count > if cfg!(loom) { 2 } else { 8 * super::unfinished::SYMBOL_PIECE }
}
