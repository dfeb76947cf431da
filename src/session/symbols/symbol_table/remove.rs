//! Removal from a [`SymbolTable`]: one symbol, or all symbols of a tracker.

use super::owned::OwnedSymbols;
use super::unfinished::SYMBOL_PIECE;
use super::{Extra, Owner, RemovedSymbol, Symbol, SymbolTable, TableTypes, TrackerRecord, UnitRecord, name};
use crate::base::{Name, SlotNumber};
use crate::session::symbols::ready_index::IndexState;
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::NameSourceId;
use crate::session::types::symbol::{SymbolId, SymbolState};
use crate::sync::Arc;

/// An entry, and the hash of its name.
#[derive(Clone, Copy)]
struct NamedSlot {
    slot: SlotNumber<SymbolId>,
    hash: NameHash,
}

/// The text with the name of a symbol that was removed. It is on its way to the cache, so whoever drops it has done something else
/// before.
pub(crate) type RemovedNames = Option<Arc<str>>;

/// What was removed together.
pub(crate) struct RemovedItems<E: TableTypes> {
    /// The symbols that were not ready.
    pub(crate) symbols: Vec<RemovedSymbol<E>>,
    pub(crate) units: Vec<UnitRecord<E>>,
    /// The record of a merged tracker. The caller drops it after it has released the lock.
    pub(crate) record: Option<TrackerRecord<E>>,
    /// Whether nothing of the tracker is left.
    pub(crate) is_last: bool,
}

impl<E: TableTypes> RemovedItems<E> {
    /// Whether nothing can wait for what was removed, nothing is to be dropped, and nothing is left: the usual case.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_last && self.symbols.is_empty() && self.units.is_empty() && self.record.is_none()
    }
}

impl<E: TableTypes> SymbolTable<E> {
    /// Removes one symbol from the names, from its owner's list, and from its lazy unit.
    pub(crate) fn remove(&mut self, id: SymbolId) -> Option<RemovedSymbol<E>> {
        let symbol = self.visible(id)?;
        let (name, is_indexed) = (self.name(symbol).to_name(), symbol.index_state == IndexState::Indexed);
        let slot = SlotNumber::of(id);
        self.unlink(slot);
        self.remove_names(&[Some(NamedSlot { slot, hash: self.symbols.at(slot)?.hash })]);
        let (_, symbol) = self.symbols.remove_at(slot)?;
        drop(self.sources.release(symbol.name_source, 1));
        let extra = symbol.extra.and_then(|extra| self.extras.remove_at(extra)).map(|(_, extra)| extra);
        if is_indexed {
            self.ready.remove(std::iter::once((&name, id)));
        }
        if let Some(record) = symbol.unit().and_then(|unit| self.units.get_mut(unit)) {
            record.release_one();
        }
        Some(RemovedSymbol::new(id, name, &symbol, extra.unwrap_or_default()))
    }

    /// Removes everything that a tracker owns: its symbols and their lazy units. The result has no ready symbols, since nothing
    /// waits for these. Returns `None` if the tracker owns nothing, or one ready symbol. Of many symbols it
    /// removes the first and hides the others (`unfinished.rs`): if the result says that something is left, the caller calls
    /// [`remove_piece`](Self::remove_piece). `names` may get what the caller drops last.
    pub(crate) fn remove_owned(&mut self, owner: &E::Tracker, names: &mut RemovedNames) -> Option<RemovedItems<E>> {
        let count = owner.owned().count();
        if count as usize > SYMBOL_PIECE || !self.unfinished.is_empty() {
            self.hide_owned(owner.id());
            return self.remove_piece(owner.id());
        }
        let first = owner.owned().first()?;
        self.sources.prefetch(self.symbols[first].name_source);
        if count == 1 && self.remove_only(owner.owned(), first, names) {
            return None;
        }
        Some(self.remove_from_list(owner.owned(), usize::MAX))
    }

    /// Removes the only symbol of a tracker, which is ready. Returns false and removes nothing if other tables refer to it.
    fn remove_only(&mut self, owned: &OwnedSymbols, slot: SlotNumber<SymbolId>, names: &mut RemovedNames) -> bool {
        let symbol = &self.symbols[slot];
        let is_known_elsewhere = symbol.extra.is_some() || symbol.index_state == IndexState::Indexed;
        if symbol.state != SymbolState::Ready || is_known_elsewhere {
            return false;
        }
        let (hash, source) = (symbol.hash, symbol.name_source);
        owned.take();
        self.remove_names(&[Some(NamedSlot { slot, hash })]);
        self.sources.prefetch_text(source);
        self.symbols.drop_at(slot, |_, _| {});
        *names = self.sources.release(source, 1);
        true
    }

    /// Prefetches what [`remove_owned`](Self::remove_owned) reads first. The caller has something else to do before it.
    #[inline]
    pub(crate) fn prefetch_owned(&self, owner: &E::Tracker) {
        let owned = owner.owned();
        if let Some(first) = owned.first() {
            // The symbols of a unit are in consecutive slots, and the last one is the head of the list.
            self.symbols.prefetch_up_to(first, owned.count().min(REMOVE_BATCH as u32));
        }
        self.trackers.prefetch(SlotNumber::of(owner.id()));
    }

    /// Removes the first `limit` symbols of a tracker's list, or all if it has fewer. `limit` is a multiple of [`REMOVE_BATCH`], or
    /// `usize::MAX`.
    #[inline]
    pub(super) fn remove_from_list(&mut self, owned: &OwnedSymbols, limit: usize) -> RemovedItems<E> {
        let count = owned.count();
        let mut next = owned.take();
        let mut removed_count = 0;
        let (mut symbols, mut indexed, mut units) = (Vec::new(), Vec::new(), Vec::new());
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
            removed_count += REMOVE_BATCH;
            self.remove_names(&batch);
            let SymbolTable { symbols: all, sources, extras, units: all_units, .. } = self;
            for NamedSlot { slot, .. } in batch.into_iter().map_while(|named| named) {
                all.drop_at(slot, |id, symbol| {
                    if symbol.index_state == IndexState::Indexed {
                        indexed.push((name(sources, symbol).to_name(), id));
                    }
                    let extra = symbol.extra.and_then(|extra| extras.remove_at(extra)).map(|(_, extra)| extra);
                    if symbol.state != SymbolState::Ready {
                        units.extend(symbol.unit().and_then(|unit| all_units.remove(unit)));
                        let name = name(sources, symbol).to_name();
                        symbols.push(RemovedSymbol::new(id, name, symbol, extra.unwrap_or_default()));
                    }
                    // Consecutive symbols mostly have the same name source.
                    match &mut pending {
                        Some((source, count)) if *source == symbol.name_source => *count += 1,
                        _ => {
                            let before = pending.replace((symbol.name_source, 1));
                            before.into_iter().for_each(|(source, count)| drop(sources.release(source, count)));
                        }
                    }
                });
            }
            if removed_count >= limit {
                self.keep_rest(owned, next, count as usize - removed_count.min(count as usize));
                break;
            }
        }
        pending.into_iter().for_each(|(source, count)| drop(self.sources.release(source, count)));
        self.ready.remove(indexed.iter().map(|(name, id)| (name, *id)));
        RemovedItems { symbols, units, record: None, is_last: true }
    }

    /// Makes `first` and what follows it the list, of `count` symbols, of which the front was removed.
    #[cold]
    fn keep_rest(&mut self, owned: &OwnedSymbols, first: Option<SlotNumber<SymbolId>>, count: usize) {
        if let Some(first) = first {
            self.symbols[first].previous = None;
        }
        owned.add_all(first, count);
    }

    /// Removes entries from the hash table of names. They stay in `symbols`.
    fn remove_names(&mut self, entries: &[Option<NamedSlot>]) {
        if self.names.has_many() {
            self.remove_from_segments(entries);
        } else {
            let mut names = self.names.segments::<false>();
            for NamedSlot { slot, hash } in entries.iter().flatten() {
                names.remove(hash.spread(), |other| other == slot);
            }
        }
        self.names.shrink(|slot| self.symbols[*slot].hash.spread());
    }

    #[inline(never)]
    fn remove_from_segments(&mut self, entries: &[Option<NamedSlot>]) {
        let (mut names, mut removed) = (self.names.segments::<true>(), 0);
        for NamedSlot { slot, hash } in entries.iter().flatten() {
            removed += usize::from(names.remove(hash.spread(), |other| other == slot));
        }
        names.count_removed(removed);
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
const REMOVE_BATCH: usize = if cfg!(loom) { 1 } else { 16 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Probe;
    use super::super::insert::{Definition, NewSymbol};
    use crate::base::{ExecutorAddr, Name};
    use crate::session::ExecutionSession;
    use crate::session::types::symbol::{SymbolFlags, SymbolState};
    use crate::sync::Arc;

    #[test]
    fn the_only_symbol_of_a_tracker_takes_the_record_of_its_large_size_with_it() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let (name, unit_name) = (Name::new("large"), Arc::from("unit"));
        for (size, records) in [(8, 0), (5 << 32, 1)] {
            let tracker = dylib.create_tracker().unwrap();
            let definition = Definition { name: &name, flags: SymbolFlags::EXPORTED, size };
            let (owner, address) = (tracker.core().id, ExecutorAddr::new(8));
            let new =
                NewSymbol { definition, owner, unit: None, state: SymbolState::Ready, address, unit_name: &unit_name };
            let mut state = dylib.inner().state.lock();
            state.table.insert(Probe::unfound(&name), new);
            assert_eq!(state.table.extras.len(), records);
            drop(state);
            tracker.remove().unwrap();
            let state = dylib.inner().state.lock();
            assert_eq!((state.table.extras.len(), state.table.symbols.len()), (0, 0));
        }
    }
}
