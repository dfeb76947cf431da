//! How symbols get into a table: one by one, or all of a unit's in one go.

use hashbrown::hash_table::Entry;
use slotmap::Key;

use super::{
    Extra, ExtraId, IndexState, LARGE, OwnedSymbols, Probe, Symbol, SymbolTable, UnitId, UnitRecord, halves, text,
};
use crate::base::{ExecutorAddr, NameRef, PagedArena, RecycledVec, SlotNumber};
use crate::session::core::materialization::Definition;
use crate::session::core::resource_tracker::TrackerId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::{NameSourceBatch, NameSourceId};
use crate::session::types::symbol::{SymbolId, SymbolState};
use crate::sync::Arc;

/// What `insert` is told of a symbol.
pub(crate) struct NewSymbol<'a> {
    pub(crate) definition: Definition<'a>,
    pub(crate) owner: TrackerId,
    pub(crate) unit: Option<UnitId>,
    pub(crate) state: SymbolState,
    pub(crate) address: ExecutorAddr,
    pub(crate) place: &'a Arc<str>,
}

impl SymbolTable {
    /// Adds a symbol whose name is free, as `probe` has seen. The owner must have a record.
    pub(crate) fn insert(&mut self, probe: Probe, new: NewSymbol<'_>) -> SymbolId {
        let NewSymbol { definition, owner, unit, state, address, place } = new;
        debug_assert!(self.find(definition.name).is_none() && probe.hash == NameHash::of(definition.name));
        debug_assert_eq!(unit.is_some(), state == SymbolState::NeverSearched);
        self.absents.forget(&self.ready, definition.name, probe.hash);
        let origin = self.origins.share(definition.name.borrowed().text, place);
        let mut symbol = new_symbol(origin, &mut self.extras, definition, probe.hash, SlotNumber::of(owner));
        symbol.state = state;
        symbol.set_value(unit.map_or(address.value(), |unit| unit.data().as_ffi()));
        let id = self.symbols.insert(symbol);
        let slot = SlotNumber::of(id);
        let hash_again = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
        self.names.insert_unique(probe.hash.spread(), slot, hash_again);
        link(&mut self.symbols, &self.trackers[owner].core.owned, slot);
        if let Some(record) = unit.and_then(|unit| self.units.get_mut(unit)) {
            record.symbols.push(id);
        }
        id
    }

    /// Adds a unit's symbols if all their names are free; otherwise none. A name that comes twice is one symbol. The unit is
    /// [supplied](Self::supply) next.
    pub(crate) fn insert_unit<'a>(
        &mut self,
        owner: TrackerId,
        place: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
    ) -> Option<UnitId> {
        let (symbols, promised) = (RecycledVec::default(), Some(definitions.len()));
        let id = self.units.insert(UnitRecord { unit: None, symbols, promised, discarded: Vec::new() });
        let start = Start { state: SymbolState::NeverSearched, value: halves(id.data().as_ffi()) };
        let Some(symbols) = self.insert_all(owner, place, definitions, start) else {
            self.units.remove(id);
            return None;
        };
        self.units[id].symbols = symbols;
        Some(id)
    }

    /// Adds symbols that are being materialised already, if all their names are free, and each comes once; otherwise none.
    pub(crate) fn insert_begun<'a>(
        &mut self,
        owner: TrackerId,
        place: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
    ) -> Option<RecycledVec<SymbolId>> {
        let (count, start) = (definitions.len(), Start { state: SymbolState::Materializing, value: [0; 2] });
        self.symbols.prefetch_room(count);
        let symbols = self.insert_all(owner, place, definitions, start)?;
        if symbols.len() < count {
            self.take_back(&symbols);
            return None;
        }
        Some(symbols)
    }

    /// Adds symbols if all their names are free; otherwise none. A name that comes twice is one symbol.
    #[inline(always)]
    fn insert_all<'a>(
        &mut self,
        owner: TrackerId,
        place: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
        start: Start,
    ) -> Option<RecycledVec<SymbolId>> {
        self.reserve_names(definitions.len());
        let SymbolTable { ready, names, symbols, origins, extras, trackers, absents, .. } = self;
        let (mut inserted, owned) = (RecycledVec::with_capacity(definitions.len()), &trackers[owner].core.owned);
        let (owner, mut first) = (SlotNumber::of(owner), owned.first());
        let mut run = NameSourceBatch::default();
        for (definition, Probe { hash, .. }) in definitions {
            let is_named = |slot: &SlotNumber<SymbolId>| {
                symbols[*slot].hash == hash && text(origins, &symbols[*slot]) == definition.name.borrowed().as_bytes()
            };
            let entry = names.entry(hash.spread(), is_named, |slot| symbols[*slot].hash.spread());
            let free = match entry {
                Entry::Vacant(free) => free,
                Entry::Occupied(taken) if inserted.iter().any(|id| SlotNumber::of(*id) == *taken.get()) => continue,
                Entry::Occupied(_) => {
                    run.end(origins);
                    owned.add_all(first, inserted.len());
                    self.take_back(&inserted);
                    return None;
                }
            };
            absents.forget(ready, definition.name, hash);
            let origin = run.share(origins, definition.name.borrowed().text, place);
            let mut symbol = new_symbol(origin, extras, definition, hash, owner);
            (symbol.state, symbol.value, symbol.next) = (start.state, start.value, first);
            let symbol = symbols.insert(symbol);
            let slot = SlotNumber::of(symbol);
            free.insert(slot);
            lead(symbols, first, slot);
            first = Some(slot);
            inserted.push(symbol);
        }
        run.end(origins);
        owned.add_all(first, inserted.len());
        Some(inserted)
    }

    /// Takes symbols out again when others that were to come with them were not free.
    #[cold]
    fn take_back(&mut self, symbols: &[SymbolId]) {
        symbols.iter().for_each(|symbol| drop(self.remove(*symbol)));
    }
}

/// How symbols begin.
#[derive(Clone, Copy)]
struct Start {
    state: SymbolState,
    /// As [`Symbol`]'s.
    value: [u32; 2],
}

/// An entry for a symbol that nobody has looked for, in nobody's list yet.
#[inline(always)]
fn new_symbol(
    origin: SlotNumber<NameSourceId>,
    extras: &mut PagedArena<ExtraId, Extra>,
    Definition { name, flags, size }: Definition<'_>,
    hash: NameHash,
    owner: SlotNumber<TrackerId>,
) -> Symbol {
    let NameRef { start, end, .. } = name.borrowed();
    let short = u32::try_from(size).unwrap_or(LARGE);
    let large = || SlotNumber::of(extras.insert(Extra { size, ..Extra::default() }));
    Symbol {
        origin,
        start,
        end,
        hash,
        owner,
        previous: None,
        next: None,
        size: short,
        value: [0; 2],
        extra: (short == LARGE).then(large),
        flags,
        state: SymbolState::NeverSearched,
        has_dependants: false,
        popularity: IndexState::Never,
    }
}

/// Puts an entry at the head of its owner's list, which goes through the entries themselves (S1).
#[inline(always)]
pub(super) fn link(symbols: &mut PagedArena<SymbolId, Symbol>, owned: &OwnedSymbols, slot: SlotNumber<SymbolId>) {
    let symbol = &mut symbols[slot];
    (symbol.previous, symbol.next) = (None, owned.first());
    lead(symbols, owned.first(), slot);
    owned.add(slot);
}

/// Has what came `first` in a list so far know the entry that is ahead of it now.
#[inline(always)]
fn lead(symbols: &mut PagedArena<SymbolId, Symbol>, first: Option<SlotNumber<SymbolId>>, slot: SlotNumber<SymbolId>) {
    if let Some(first) = first {
        symbols[first].previous = Some(slot);
    }
}
