//! Removal from a [`SymbolTable`]: one symbol, or all symbols of a tracker. Also the transfer of symbols to another tracker.

use super::insert::link;
use super::{Extra, Owner, RemovedSymbol, Symbol, SymbolTable, TableTypes, TrackerRecord, UnitRecord, name};
use crate::base::{Name, SlotNumber, shrunk_capacity};
use crate::session::symbols::ready_index::IndexState;
use crate::session::types::ids::TrackerId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::NameSourceId;
use crate::session::types::symbol::{SymbolId, SymbolState};

/// An entry, and the hash of its name.
#[derive(Clone, Copy)]
struct NamedSlot {
    slot: SlotNumber<SymbolId>,
    hash: NameHash,
}

/// Symbols that were not ready, and lazy units.
pub(crate) type RemovedItems<E> = (Vec<RemovedSymbol<E>>, Vec<UnitRecord<E>>);

impl<E: TableTypes> SymbolTable<E> {
    /// Removes one symbol from the names, from its owner's list, and from its lazy unit.
    pub(crate) fn remove(&mut self, id: SymbolId) -> Option<RemovedSymbol<E>> {
        let symbol = self.symbols.get(id)?;
        let (name, is_indexed) = (self.name(symbol).to_name(), symbol.index_state == IndexState::Indexed);
        let slot = SlotNumber::of(id);
        self.unlink(slot);
        self.remove_names(&[Some(NamedSlot { slot, hash: self.symbols.at(slot)?.hash })]);
        let (_, symbol) = self.symbols.remove_at(slot)?;
        self.sources.release(symbol.name_source, 1);
        let extra = symbol.extra.and_then(|extra| self.extras.remove_at(extra)).map(|(_, extra)| extra);
        if is_indexed {
            self.ready.remove(std::iter::once(&name));
        }
        if let Some(record) = symbol.unit().and_then(|unit| self.units.get_mut(unit)) {
            record.release_one();
        }
        Some(RemovedSymbol::new(id, name, &symbol, extra.unwrap_or_default()))
    }

    /// Removes everything that a tracker owns: its symbols and their lazy units. The result has no ready symbols, since nothing
    /// waits for these. Returns `None` if the tracker owns nothing.
    pub(crate) fn remove_owned(&mut self, owner: &E::Tracker) -> Option<RemovedItems<E>> {
        let (first, count) = (owner.owned().first()?, owner.owned().count());
        // The symbols of a unit are in consecutive slots, and the last one is the head of the list.
        self.symbols.prefetch_up_to(first, count.min(REMOVE_BATCH as u32));
        self.trackers.prefetch(SlotNumber::of(owner.id()));
        self.sources.prefetch(self.symbols[first].name_source);
        let mut next = owner.owned().take();
        let (mut unready, mut indexed, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let mut pending: Option<(SlotNumber<NameSourceId>, u32)> = None;
        loop {
            // Works in batches, and removes the names of a batch first. With many modules, each name is in a different cache
            // line that no cache holds. A loop that does nothing else overlaps these cache misses.
            let mut batch = [None; REMOVE_BATCH];
            for named in &mut batch {
                let Some((slot, symbol)) = next.and_then(|slot| Some((slot, self.symbols.at(slot)?))) else { break };
                *named = Some(NamedSlot { slot, hash: symbol.hash });
                next = symbol.next;
            }
            if batch[0].is_none() {
                break;
            }
            self.remove_names(&batch);
            let SymbolTable { symbols, sources, extras, units: all_units, .. } = self;
            for NamedSlot { slot, .. } in batch.into_iter().map_while(|named| named) {
                symbols.drop_at(slot, |id, symbol| {
                    if symbol.index_state == IndexState::Indexed {
                        indexed.push(name(sources, symbol).to_name());
                    }
                    let extra = symbol.extra.and_then(|extra| extras.remove_at(extra)).map(|(_, extra)| extra);
                    if symbol.state != SymbolState::Ready {
                        units.extend(symbol.unit().and_then(|unit| all_units.remove(unit)));
                        let name = name(sources, symbol).to_name();
                        unready.push(RemovedSymbol::new(id, name, symbol, extra.unwrap_or_default()));
                    }
                    // Consecutive symbols mostly have the same name source.
                    match &mut pending {
                        Some((source, count)) if *source == symbol.name_source => *count += 1,
                        _ => {
                            let before = pending.replace((symbol.name_source, 1));
                            before.into_iter().for_each(|(source, count)| sources.release(source, count));
                        }
                    }
                });
            }
        }
        pending.into_iter().for_each(|(source, count)| self.sources.release(source, count));
        self.ready.remove(indexed.iter());
        Some((unready, units))
    }

    /// Removes entries from the hash table of names. They stay in `symbols`.
    fn remove_names(&mut self, entries: &[Option<NamedSlot>]) {
        for NamedSlot { slot, hash } in entries.iter().flatten() {
            if let Ok(found) = self.names.find_entry(hash.spread(), |other| other == slot) {
                found.remove();
            }
        }
        // Releases memory after a peak.
        if let Some(smaller) = shrunk_capacity(self.names.len(), self.names.capacity()) {
            let rehash = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
            self.names.shrink_to(smaller, rehash);
        }
    }

    /// Moves all symbols of `source` to `destination`, and removes the record of `source`.
    pub(crate) fn merge_tracker(&mut self, source: TrackerId, destination: TrackerId) -> Option<TrackerRecord<E>> {
        let record = self.trackers.remove(source)?;
        self.lost_groups.transfer(source, destination);
        let (mut next, destination) = (record.core.owned().take(), SlotNumber::of(destination));
        while let Some(slot) = next {
            next = self.symbols[slot].next;
            self.symbols[slot].owner = destination;
            link(&mut self.symbols, self.trackers[destination].core.owned(), slot);
        }
        Some(record)
    }

    fn unlink(&mut self, slot: SlotNumber<SymbolId>) {
        let Some(symbol) = self.symbols.at(slot) else { return };
        let (owner, previous, next) = (symbol.owner, symbol.previous, symbol.next);
        if let Some(previous) = previous {
            self.symbols[previous].next = next;
        }
        if let Some(next) = next {
            self.symbols[next].previous = previous;
        }
        if let Some(record) = self.trackers.at(owner) {
            record.core.owned().remove(previous.is_none().then_some(next));
        }
    }
}

impl<E: TableTypes> RemovedSymbol<E> {
    fn new(id: SymbolId, name: Name, symbol: &Symbol, extra: Extra<E>) -> RemovedSymbol<E> {
        let Symbol { state, has_dependants, hash, flags, .. } = *symbol;
        RemovedSymbol { id, name, state, unit: symbol.unit(), has_dependants, waiters: extra.waiters, hash, flags }
    }
}

/// The number of symbols that `remove_owned` removes together.
const REMOVE_BATCH: usize = 16;
