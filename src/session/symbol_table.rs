//! [`SymbolTable`]: one dylib's names, symbols, lazy units and trackers. Plain data; its dylib's lock guards it.
//!
//! A symbol's owner stands in its entry, and its entry is linked into the owner's list (S1). So removing a tracker,
//! transferring it, overriding a weak symbol and removing one name each cost what they touch, and cannot disagree.
//!
//! ```text
//!   names: "foo" ─► SymbolId ─► Symbol { name, owner ─► TrackerRecord { first, count } , unit ─► UnitRecord { symbols } }
//!                                   ▲ previous / next: the owner's list │
//! ```

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::base::{ExecutorAddr, Name, Slots, is_sparse};
use crate::session::jit_dylib::DylibInner;
use crate::session::lookup::{Completion, Found, Waiters};
use crate::session::materialization::MaterializationUnit;
use crate::session::ready_index::{Popularity, ReadyIndex, ReadySymbol};
use crate::session::resource_tracker::{TrackerCore, TrackerId};
use crate::session::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, Weak};

slotmap::new_key_type! {
    pub(crate) struct UnitId;
}

pub(crate) struct SymbolTable {
    /// Copies of entries, for readers without the lock.
    ready: Arc<ReadyIndex>,
    /// By the names in the entries.
    names: HashTable<SymbolId>,
    symbols: Slots<SymbolId, Symbol>,
    units: Slots<UnitId, UnitRecord>,
    trackers: Slots<TrackerId, TrackerRecord>,
}

pub(crate) struct Symbol {
    pub(crate) name: Name,
    pub(crate) flags: SymbolFlags,
    /// Bytes; zero when unknown.
    pub(crate) size: u64,
    pub(crate) state: SymbolState,
    pub(crate) address: ExecutorAddr,
    pub(crate) owner: TrackerId,
    /// The unit that will supply it; taken out when somebody looks for the symbol.
    pub(crate) unit: Option<UnitId>,
    /// Where it is defined, for errors.
    pub(crate) place: Arc<str>,
    /// Lookups that wait for it.
    pub(crate) waiters: Waiters,
    /// Whether the waiting graph knows groups that wait for it.
    pub(crate) has_dependants: bool,
    /// What an alias stands for, once somebody has looked for it.
    pub(crate) alias_of: Option<Box<(Weak<DylibInner>, Name)>>,
    popularity: Popularity,
    previous: Option<SymbolId>,
    next: Option<SymbolId>,
}

/// What `insert` is told of a symbol.
pub(crate) struct NewSymbol {
    pub(crate) name: Name,
    pub(crate) flags: SymbolFlags,
    pub(crate) size: u64,
    pub(crate) owner: TrackerId,
    pub(crate) unit: Option<UnitId>,
    pub(crate) state: SymbolState,
    pub(crate) address: ExecutorAddr,
    pub(crate) place: Arc<str>,
}

/// A lazy unit and what is left of its symbols.
pub(crate) struct UnitRecord {
    pub(crate) unit: Box<dyn MaterializationUnit>,
    pub(crate) symbols: Vec<SymbolId>,
    /// Names that other definitions took; told to the unit before it materialises, outside the lock.
    pub(crate) discarded: Vec<Name>,
}

pub(crate) struct TrackerRecord {
    pub(crate) core: Arc<TrackerCore>,
    first: Option<SymbolId>,
    symbol_count: usize,
}

/// A symbol that is no longer in the table.
pub(crate) struct RemovedSymbol {
    pub(crate) id: SymbolId,
    pub(crate) symbol: Symbol,
}

impl SymbolTable {
    /// An empty table that keeps `ready` in step with itself.
    pub(crate) fn new(ready: Arc<ReadyIndex>) -> SymbolTable {
        SymbolTable {
            ready,
            names: HashTable::new(),
            symbols: Slots::new(),
            units: Slots::new(),
            trackers: Slots::new(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<SymbolId> {
        self.names.find(hash(name), |id| self.symbols[*id].name.as_str() == name).copied()
    }

    pub(crate) fn symbol(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id)
    }

    pub(crate) fn symbol_mut(&mut self, id: SymbolId) -> Option<&mut Symbol> {
        self.symbols.get_mut(id)
    }

    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.values()
    }

    pub(crate) fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    pub(crate) fn tracker(&self, id: TrackerId) -> Option<&TrackerRecord> {
        self.trackers.get(id)
    }

    pub(crate) fn trackers(&self) -> impl Iterator<Item = &Arc<TrackerCore>> {
        self.trackers.values().map(|record| &record.core)
    }

    pub(crate) fn add_tracker(&mut self, make: impl FnOnce(TrackerId) -> Arc<TrackerCore>) -> Arc<TrackerCore> {
        let id = self.trackers.insert_with_key(|id| TrackerRecord { core: make(id), first: None, symbol_count: 0 });
        self.trackers[id].core.clone()
    }

    /// Drops a tracker's record, if it is still there.
    pub(crate) fn remove_tracker(&mut self, id: TrackerId) -> Option<TrackerRecord> {
        self.trackers.remove(id)
    }

    pub(crate) fn add_unit(&mut self, unit: Box<dyn MaterializationUnit>) -> UnitId {
        self.units.insert(UnitRecord { unit, symbols: Vec::new(), discarded: Vec::new() })
    }

    pub(crate) fn unit_mut(&mut self, id: UnitId) -> Option<&mut UnitRecord> {
        self.units.get_mut(id)
    }

    /// Takes a lazy unit out to be materialised: its symbols turn from lazy to Materializing.
    pub(crate) fn take_unit(&mut self, id: UnitId) -> Option<UnitRecord> {
        let record = self.units.remove(id)?;
        for symbol in &record.symbols {
            if let Some(symbol) = self.symbols.get_mut(*symbol) {
                symbol.unit = None;
                symbol.state = SymbolState::Materializing;
            }
        }
        Some(record)
    }

    /// Makes symbols that were being materialised lazy again, with `unit` behind them. `None` when there are none.
    pub(crate) fn put_back(
        &mut self,
        symbols: Vec<SymbolId>,
        unit: Box<dyn MaterializationUnit>,
        place: &Arc<str>,
    ) -> Option<UnitId> {
        if symbols.is_empty() {
            return None;
        }
        let id = self.add_unit(unit);
        for symbol in &symbols {
            if let Some(symbol) = self.symbols.get_mut(*symbol) {
                symbol.state = SymbolState::NeverSearched;
                symbol.unit = Some(id);
                symbol.place = place.clone();
            }
        }
        self.units[id].symbols = symbols;
        Some(id)
    }

    /// Whether somebody waits for a symbol of a lazy unit.
    pub(crate) fn is_unit_wanted(&self, id: UnitId) -> bool {
        let Some(record) = self.units.get(id) else { return false };
        record
            .symbols
            .iter()
            .filter_map(|id| self.symbols.get(*id))
            .any(|symbol| !symbol.waiters.is_empty() || symbol.has_dependants)
    }

    /// Drops a unit that has no symbol left.
    pub(crate) fn drop_unit_if_empty(&mut self, id: UnitId) -> Option<UnitRecord> {
        let empty = self.units.get(id).is_some_and(|record| record.symbols.is_empty());
        if empty { self.units.remove(id) } else { None }
    }

    /// Adds a symbol whose name is free. The owner must have a record.
    pub(crate) fn insert(&mut self, new: NewSymbol) -> SymbolId {
        let NewSymbol { name, flags, size, owner, unit, state, address, place } = new;
        debug_assert!(self.find(&name).is_none());
        let hash_of_name = hash(&name);
        let id = self.symbols.insert(Symbol {
            name,
            flags,
            size,
            state,
            address,
            owner,
            unit,
            place,
            waiters: Waiters::default(),
            has_dependants: false,
            alias_of: None,
            popularity: Popularity::Never,
            previous: None,
            next: None,
        });
        self.names.insert_unique(hash_of_name, id, |id| hash(&self.symbols[*id].name));
        // The owner's list goes through the entry itself (S1).
        self.link(id, owner);
        if let Some(record) = unit.and_then(|unit| self.units.get_mut(unit)) {
            record.symbols.push(id);
        }
        id
    }

    /// Takes one symbol out: of the names, of its owner's list, of its lazy unit's symbols.
    pub(crate) fn remove(&mut self, id: SymbolId) -> Option<RemovedSymbol> {
        self.unlink(id);
        self.forget_name(id);
        let symbol = self.symbols.remove(id)?;
        if symbol.popularity == Popularity::Indexed {
            self.ready.remove(std::iter::once(&symbol.name));
        }
        if let Some(record) = symbol.unit.and_then(|unit| self.units.get_mut(unit)) {
            record.symbols.retain(|other| *other != id);
        }
        Some(RemovedSymbol { id, symbol })
    }

    /// Takes out everything that a tracker owns: its symbols, and the lazy units behind them.
    pub(crate) fn remove_owned(&mut self, owner: TrackerId) -> (Vec<RemovedSymbol>, Vec<UnitRecord>) {
        let Some(record) = self.trackers.get_mut(owner) else { return Default::default() };
        let mut next = record.first.take();
        let mut removed = Vec::with_capacity(std::mem::take(&mut record.symbol_count));
        let mut units = Vec::new();
        while let Some(id) = next {
            self.forget_name(id);
            let Some(symbol) = self.symbols.remove(id) else { break };
            next = symbol.next;
            units.extend(symbol.unit.and_then(|unit| self.units.remove(unit)));
            removed.push(RemovedSymbol { id, symbol });
        }
        let is_indexed = |removed: &&RemovedSymbol| removed.symbol.popularity == Popularity::Indexed;
        self.ready.remove(removed.iter().filter(is_indexed).map(|removed| &removed.symbol.name));
        (removed, units)
    }

    /// Takes the name of an entry out, which is still there.
    fn forget_name(&mut self, id: SymbolId) {
        let Some(symbol) = self.symbols.get(id) else { return };
        if let Ok(found) = self.names.find_entry(hash(&symbol.name), |other| *other == id) {
            found.remove();
        }
        // A table that was large once gives its memory back.
        if is_sparse(self.names.len(), self.names.capacity()) {
            self.names.shrink_to(self.names.len() * 2, |id| hash(&self.symbols[*id].name));
        }
    }

    /// Gives everything that `source` owns to `destination` and drops the source's record.
    pub(crate) fn merge_tracker(&mut self, source: TrackerId, destination: TrackerId) -> Option<TrackerRecord> {
        let record = self.trackers.remove(source)?;
        let mut next = record.first;
        while let Some(id) = next {
            next = self.symbols[id].next;
            self.link(id, destination);
        }
        Some(record)
    }

    /// Moves a symbol on and completes the lookups that waited for that.
    pub(crate) fn advance(&mut self, id: SymbolId, state: SymbolState, completions: &mut Vec<Completion>) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        debug_assert!(symbol.state <= state, "symbols only move on");
        symbol.state = state;
        if symbol.waiters.is_empty() {
            return;
        }
        let served = symbol.waiters.take_served(|waiter| waiter.query.is_served_by(state));
        let found = Found { address: symbol.address, flags: symbol.flags, id, name: &symbol.name };
        completions.extend(served.into_iter().filter_map(|waiter| waiter.satisfy(&found)));
    }

    /// Takes note that a lookup found a symbol ready; at the second time it comes into the index of such.
    pub(crate) fn note_ready_lookup(&mut self, id: SymbolId) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        debug_assert!(symbol.state == SymbolState::Ready);
        match symbol.popularity {
            Popularity::Never => symbol.popularity = Popularity::Once,
            Popularity::Once => {
                symbol.popularity = Popularity::Indexed;
                self.ready.insert(&symbol.name, ReadySymbol { address: symbol.address, flags: symbol.flags, id });
            }
            Popularity::Indexed => {}
        }
    }

    fn link(&mut self, id: SymbolId, owner: TrackerId) {
        let record = &mut self.trackers[owner];
        let old_first = record.first.replace(id);
        record.symbol_count += 1;
        if let Some(old_first) = old_first {
            self.symbols[old_first].previous = Some(id);
        }
        let symbol = &mut self.symbols[id];
        symbol.owner = owner;
        symbol.previous = None;
        symbol.next = old_first;
    }

    fn unlink(&mut self, id: SymbolId) {
        let Some(symbol) = self.symbols.get(id) else { return };
        let (owner, previous, next) = (symbol.owner, symbol.previous, symbol.next);
        if let Some(previous) = previous {
            self.symbols[previous].next = next;
        }
        if let Some(next) = next {
            self.symbols[next].previous = previous;
        }
        if let Some(record) = self.trackers.get_mut(owner) {
            record.symbol_count -= 1;
            if previous.is_none() {
                record.first = next;
            }
        }
    }
}

fn hash(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl TrackerRecord {
    pub(crate) fn symbol_count(&self) -> usize {
        self.symbol_count
    }
}
