//! Insertion into a [`SymbolTable`]: one symbol, or all symbols of a unit at once.

use slotmap::Key;

use super::unfinished::skips;
use super::{
    Extra, ExtraId, IndexState, LARGE, OwnedSymbols, Owner, Probe, Symbol, SymbolTable, TableTypes, UnitId, UnitRecord,
    halves, text,
};
use crate::base::{ExecutorAddr, Name, NameRef, PagedArena, RecycledVec, SlotNumber};
use crate::session::types::ids::TrackerId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::{NameSourceBatch, NameSourceId};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

/// A definition that is to be inserted.
#[derive(Clone, Copy)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a Name,
    pub(crate) flags: SymbolFlags,
    /// In bytes. Zero if unknown.
    pub(crate) size: u64,
}

impl<'a> Definition<'a> {
    pub(crate) fn of((name, flags): &'a (Name, SymbolFlags)) -> Definition<'a> {
        Definition { name, flags: *flags, size: 0 }
    }

    /// As [`of`](Self::of), with the flags that a caller may [declare](SymbolFlags::declared).
    pub(crate) fn declared((name, flags): &'a (Name, SymbolFlags)) -> Definition<'a> {
        Definition { name, flags: flags.declared(), size: 0 }
    }
}

/// The parameters of `insert`.
pub(crate) struct NewSymbol<'a> {
    pub(crate) definition: Definition<'a>,
    pub(crate) owner: TrackerId,
    pub(crate) unit: Option<UnitId>,
    pub(crate) state: SymbolState,
    pub(crate) address: ExecutorAddr,
    pub(crate) unit_name: &'a Arc<str>,
}

impl<E: TableTypes> SymbolTable<E> {
    /// Inserts a symbol. `probe` has found no symbol of this name, and the owner has a record.
    pub(crate) fn insert(&mut self, probe: Probe, new: NewSymbol<'_>) -> SymbolId {
        let NewSymbol { definition, owner, unit, state, address, unit_name } = new;
        debug_assert!(self.find(definition.name).is_none() && probe.hash == NameHash::of(definition.name));
        debug_assert_eq!(unit.is_some(), state == SymbolState::NeverSearched);
        if !self.unfinished.is_empty() {
            self.overtake(definition.name, probe.hash, None);
        }
        self.negative_cache.remove(&self.ready, definition.name, probe.hash);
        self.failed.forget(definition.name, probe.hash);
        let name_source = self.sources.add_user(definition.name.borrowed().text, unit_name);
        let mut symbol = new_symbol(name_source, &mut self.extras, definition, probe.hash, SlotNumber::of(owner));
        symbol.state = state;
        symbol.set_value(unit.map_or(address.value(), |unit| unit.data().as_ffi()));
        let id = self.symbols.insert(symbol);
        let slot = SlotNumber::of(id);
        let rehash = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
        self.names.insert_unique(probe.hash.spread(), slot, rehash);
        link(&mut self.symbols, self.trackers[owner].core.owned(), slot);
        if let Some(record) = unit.and_then(|unit| self.units.get_mut(unit)) {
            record.add(id);
        }
        id
    }

    /// Inserts the symbols of a unit if none of their names is taken, and nothing otherwise. A name that occurs twice is one
    /// symbol. The caller then [sets](Self::set_unit) the unit.
    pub(crate) fn insert_unit<'a>(
        &mut self,
        owner: TrackerId,
        unit_name: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
    ) -> Option<UnitId> {
        let id = self.units.insert(UnitRecord::new(RecycledVec::default(), Some(definitions.len())));
        let start = Start::Same(SymbolState::NeverSearched, halves(id.data().as_ffi()));
        self.reserve_names(definitions.len());
        let symbols = match self.names.has_many() {
            true => self.insert_all::<false, true>(owner, unit_name, definitions, start),
            false => self.insert_all::<false, false>(owner, unit_name, definitions, start),
        };
        let Some(symbols) = symbols else {
            self.units.remove(id);
            return None;
        };
        self.units[id].set_symbols(symbols);
        Some(id)
    }

    /// Inserts symbols in state Materializing if none of their names is taken and none occurs twice, and nothing otherwise.
    pub(crate) fn insert_materializing<'a>(
        &mut self,
        owner: TrackerId,
        unit_name: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
    ) -> Option<RecycledVec<SymbolId>> {
        let (count, start) = (definitions.len(), Start::Same(SymbolState::Materializing, [0; 2]));
        self.symbols.prefetch_free_slots(count);
        self.reserve_names(count);
        let symbols = match self.names.has_many() {
            true => self.insert_all::<false, true>(owner, unit_name, definitions, start)?,
            false => self.insert_all::<false, false>(owner, unit_name, definitions, start)?,
        };
        if symbols.len() < count {
            self.remove_inserted(&symbols);
            return None;
        }
        Some(symbols)
    }

    /// Inserts symbols if none of their names is taken, and nothing otherwise. A name that occurs twice is one symbol. `start` is the
    /// state of each definition. If `HIDDEN`, the symbols are hidden, and those that were inserted before a taken name stay. `MANY` says
    /// whether the table of names, in which space is reserved, has many segments.
    #[inline(always)]
    pub(super) fn insert_all<'a, const HIDDEN: bool, const MANY: bool>(
        &mut self,
        owner: TrackerId,
        unit_name: &Arc<str>,
        definitions: impl ExactSizeIterator<Item = (Definition<'a>, Probe)>,
        start: Start<'_>,
    ) -> Option<RecycledVec<SymbolId>> {
        let has_unfinished = !self.unfinished.is_empty();
        let SymbolTable {
            ready, names, symbols, sources, extras, trackers, negative_cache, failed, unfinished, ..
        } = self;
        let (mut inserted, owned) = (RecycledVec::with_capacity(definitions.len()), trackers[owner].core.owned());
        let (owner, mut first) = (SlotNumber::of(owner), owned.first());
        let (mut batch, mut names) = (NameSourceBatch::default(), names.segments::<MANY>());
        for (position, (definition, Probe { hash, .. })) in definitions.enumerate() {
            let is_named = |slot: &SlotNumber<SymbolId>| {
                symbols[*slot].hash == hash
                    && text(sources, &symbols[*slot]) == definition.name.borrowed().as_bytes()
                    && (HIDDEN && symbols[*slot].owner == owner || !skips(unfinished, ready, sources, (*slot, symbols)))
            };
            let free = match names.find_or_vacant(hash.spread(), is_named, |slot| symbols[*slot].hash.spread()) {
                Err(free) => free,
                Ok(taken) if HIDDEN && symbols[*taken].owner == owner => continue,
                Ok(taken) if inserted.iter().any(|id| SlotNumber::of(*id) == *taken) => continue,
                Ok(_) => {
                    batch.flush(sources);
                    names.count_inserted(inserted.len());
                    owned.add_all(first, inserted.len());
                    if !HIDDEN {
                        self.remove_inserted(&inserted);
                    }
                    return None;
                }
            };
            negative_cache.remove(ready, definition.name, hash);
            failed.forget(definition.name, hash);
            let name_source = batch.add_user(sources, definition.name.borrowed().text, unit_name);
            let mut symbol = new_symbol(name_source, extras, definition, hash, owner);
            (symbol.state, symbol.value) = match start {
                Start::Same(state, value) => (state, value),
                Start::Ready(addresses) => (SymbolState::Ready, halves(addresses[position].value())),
            };
            symbol.next = first;
            let symbol = symbols.insert(symbol);
            let slot = SlotNumber::of(symbol);
            free.insert(slot);
            set_previous(symbols, first, slot);
            first = Some(slot);
            inserted.push(symbol);
        }
        batch.flush(sources);
        names.count_inserted(inserted.len());
        owned.add_all(first, inserted.len());
        if has_unfinished {
            self.overtake_all(&inserted, HIDDEN);
        }
        Some(inserted)
    }

    /// Removes the symbols that were inserted before a name that is taken.
    #[cold]
    fn remove_inserted(&mut self, symbols: &[SymbolId]) {
        symbols.iter().for_each(|symbol| drop(self.remove(*symbol)));
    }
}

/// The states of new symbols.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    /// The state and the [value](Symbol) of each.
    Same(SymbolState, [u32; 2]),
    /// Each is ready and has its address.
    Ready(&'a [ExecutorAddr]),
}

/// A new entry that is in no list yet.
#[inline(always)]
fn new_symbol<E: TableTypes>(
    name_source: SlotNumber<NameSourceId>,
    extras: &mut PagedArena<ExtraId, Extra<E>>,
    Definition { name, flags, size }: Definition<'_>,
    hash: NameHash,
    owner: SlotNumber<TrackerId>,
) -> Symbol {
    let NameRef { start, end, .. } = name.borrowed();
    let short = u32::try_from(size).unwrap_or(LARGE);
    Symbol {
        name_source,
        start,
        end,
        hash,
        owner,
        previous: None,
        next: None,
        size: short,
        value: [0; 2],
        extra: if short == LARGE { Some(large_size(extras, size)) } else { None },
        flags,
        state: SymbolState::NeverSearched,
        has_dependants: false,
        index_state: IndexState::NotLookedUp,
    }
}

/// The entry for a size that does not fit into the symbol.
#[cold]
fn large_size<E: TableTypes>(extras: &mut PagedArena<ExtraId, Extra<E>>, size: u64) -> SlotNumber<ExtraId> {
    SlotNumber::of(extras.insert(Extra { size, ..Extra::default() }))
}

/// Puts an entry at the head of its owner's list (S1).
#[inline(always)]
pub(super) fn link(symbols: &mut PagedArena<SymbolId, Symbol>, owned: &OwnedSymbols, slot: SlotNumber<SymbolId>) {
    let symbol = &mut symbols[slot];
    (symbol.previous, symbol.next) = (None, owned.first());
    set_previous(symbols, owned.first(), slot);
    owned.add(slot);
}

/// Sets the back link of `first`, the former head of a list, to the entry before it.
#[inline(always)]
fn set_previous(
    symbols: &mut PagedArena<SymbolId, Symbol>,
    first: Option<SlotNumber<SymbolId>>,
    slot: SlotNumber<SymbolId>,
) {
    if let Some(first) = first {
        symbols[first].previous = Some(slot);
    }
}
