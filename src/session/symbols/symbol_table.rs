//! [`SymbolTable`]: one dylib's names, symbols, lazy units and trackers. Plain data; its dylib's lock guards it.
//!
//! A symbol's owner stands in its entry, and its entry is linked into the owner's list (S1). So removing a tracker,
//! transferring it, overriding a weak symbol and removing one name each cost what they touch, and cannot disagree.
//!
//! ```text
//!   names: "foo" ─► slot ─► Symbol { owner ─► TrackerRecord { first, count }, unit ─► UnitRecord { symbols },
//!                              ▲       origin ─► Origin { text of the names, place }, extra ─► Extra { waiters } }
//!                              └ previous / next: the owner's list
//! ```
//!
//! Most of what a session keeps for a linked object is its symbols, so they are small: they refer to each other, and to
//! what they share, by slot number, and have what few of them need in [`Extra`]. Whoever outside may hold on to a symbol
//! for longer than the lock has its id, which knows that the symbol is gone.

use hashbrown::HashTable;
use slotmap::{Key, KeyData};

use crate::base::{ExecutorAddr, Name, NameRef, PagedArena, RecycledVec, SlotNumber, capacity_to_keep, impl_recycle};
use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::query::{Completions, Waiter, Waiters};
use crate::session::core::resource_tracker::{TrackerCore, TrackerId};
use crate::session::lookup::blocking::Found;
use crate::session::symbols::ready_index::{IndexState, ReadyIndex, ReadySymbol};
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::{NameSourceId, NameSources};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, Weak};

mod insert;
mod negative_cache;
mod owned;

pub(crate) use insert::NewSymbol;
use insert::link;
use negative_cache::NegativeCache;
pub(crate) use owned::OwnedSymbols;

slotmap::new_key_type! {
    pub(crate) struct UnitId;
    struct ExtraId;
}

impl_recycle!(SymbolId);

pub(crate) struct SymbolTable {
    /// Copies of entries, for readers without the lock.
    ready: Arc<ReadyIndex>,
    /// By the names in the entries.
    names: HashTable<SlotNumber<SymbolId>>,
    symbols: PagedArena<SymbolId, Symbol>,
    origins: NameSources,
    extras: PagedArena<ExtraId, Extra>,
    units: PagedArena<UnitId, UnitRecord>,
    trackers: PagedArena<TrackerId, TrackerRecord>,
    absents: NegativeCache,
}

pub(crate) struct Symbol {
    origin: SlotNumber<NameSourceId>,
    /// Where the name stands in the origin's text.
    start: u32,
    end: u32,
    /// Of the name, which is somewhere else: what only has to find an entry, or move it, need not read that.
    hash: NameHash,
    /// Its record is there as long as it owns a symbol.
    owner: SlotNumber<TrackerId>,
    previous: Option<SlotNumber<SymbolId>>,
    next: Option<SlotNumber<SymbolId>>,
    /// Bytes; zero when unknown, `LARGE` when the extra has them.
    size: u32,
    /// The halves of the id of its unit while nobody has looked for it, of its address from then on: so that a symbol is
    /// aligned to 4 bytes, and its slot takes no padding.
    value: [u32; 2],
    extra: Option<SlotNumber<ExtraId>>,
    pub(crate) flags: SymbolFlags,
    pub(crate) state: SymbolState,
    /// Whether the waiting graph knows groups that wait for it.
    pub(crate) has_dependants: bool,
    popularity: IndexState,
}

/// What few symbols have, and most of those not for long.
#[derive(Default)]
struct Extra {
    /// Lookups that wait for it.
    waiters: Waiters,
    /// What an alias stands for, once somebody has looked for it.
    alias_of: Option<Box<Aliasee>>,
    /// Bytes, if they are many.
    size: u64,
}

/// Where an alias leads.
pub(crate) type Aliasee = (Weak<DylibInner>, Name);

impl Symbol {
    /// The unit that will supply it; taken out when somebody looks for the symbol.
    pub(crate) fn unit(&self) -> Option<UnitId> {
        (self.state == SymbolState::NeverSearched).then(|| KeyData::from_ffi(self.value()).into())
    }

    /// Null as long as it is not known.
    pub(crate) fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(if self.state == SymbolState::NeverSearched { 0 } else { self.value() })
    }

    /// For one that is being materialised.
    pub(crate) fn set_address(&mut self, address: ExecutorAddr) {
        debug_assert!(self.state != SymbolState::NeverSearched);
        self.set_value(address.value());
    }

    fn make_lazy(&mut self, unit: UnitId) {
        self.state = SymbolState::NeverSearched;
        self.set_value(unit.data().as_ffi());
    }

    fn value(&self) -> u64 {
        u64::from(self.value[0]) << 32 | u64::from(self.value[1])
    }

    fn set_value(&mut self, value: u64) {
        self.value = halves(value);
    }
}

fn halves(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// An entry, with its name's hash.
#[derive(Clone, Copy)]
struct Named {
    slot: SlotNumber<SymbolId>,
    hash: NameHash,
}

/// What a search for a name came to.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    hash: NameHash,
    pub(crate) found: Option<SymbolId>,
}

/// A lazy unit and what is left of its symbols.
pub(crate) struct UnitRecord {
    /// `None` only while its symbols are put into the table.
    pub(crate) unit: Option<Box<dyn MaterializationUnit>>,
    pub(crate) symbols: RecycledVec<SymbolId>,
    /// How many it promised; `None` when nobody counted.
    promised: Option<usize>,
    /// Names that other definitions took; told to the unit before it materialises, outside the lock.
    pub(crate) discarded: Vec<Name>,
}

pub(crate) struct TrackerRecord {
    pub(crate) core: Arc<TrackerCore>,
}

/// A symbol that is no longer in the table.
pub(crate) struct RemovedSymbol {
    pub(crate) id: SymbolId,
    pub(crate) name: Name,
    pub(crate) state: SymbolState,
    pub(crate) unit: Option<UnitId>,
    pub(crate) has_dependants: bool,
    pub(crate) waiters: Waiters,
}

impl Probe {
    /// What a search would have come to that found nothing.
    #[inline]
    pub(crate) fn unfound(name: &Name) -> Probe {
        Probe { hash: NameHash::of_bytes(name.borrowed().as_bytes()), found: None }
    }
}

impl SymbolTable {
    /// An empty table that keeps `ready` in step with itself.
    pub(crate) fn new(ready: Arc<ReadyIndex>) -> SymbolTable {
        SymbolTable {
            ready,
            names: HashTable::new(),
            symbols: PagedArena::new(),
            origins: NameSources::new(),
            extras: PagedArena::new(),
            units: PagedArena::new(),
            trackers: PagedArena::new(),
            absents: NegativeCache::default(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<SymbolId> {
        self.probe(name).found
    }

    /// Looks for a name that may be inserted next.
    pub(crate) fn probe(&self, name: &str) -> Probe {
        self.probe_hashed(name, NameHash::of(name))
    }

    /// The same once more, when the table may have changed since.
    pub(crate) fn probe_again(&self, name: &str, before: Probe) -> Probe {
        self.probe_hashed(name, before.hash)
    }

    fn probe_hashed(&self, name: &str, hash: NameHash) -> Probe {
        Probe { hash, found: self.find_hashed(name.as_bytes(), hash).map(|(id, _)| id) }
    }

    /// The symbol that goes by a name of this hash.
    #[inline]
    pub(crate) fn find_hashed(&self, name: &[u8], hash: NameHash) -> Option<(SymbolId, &Symbol)> {
        let is_named = |slot: &SlotNumber<SymbolId>| {
            let symbol = &self.symbols[*slot];
            symbol.hash == hash && text(&self.origins, symbol) == name
        };
        let slot = self.names.find(hash.spread(), is_named)?;
        self.symbols.entry_at(*slot)
    }

    pub(crate) fn name(&self, symbol: &Symbol) -> NameRef<'_> {
        name(&self.origins, symbol)
    }

    /// Where a symbol is defined, for errors.
    pub(crate) fn place(&self, symbol: &Symbol) -> &Arc<str> {
        &self.origins.of(symbol.origin).place
    }

    /// Bytes of a symbol; zero when unknown.
    pub(crate) fn size(&self, symbol: &Symbol) -> u64 {
        let large = || symbol.extra.and_then(|extra| self.extras.at(extra)).map_or(0, |extra| extra.size);
        if symbol.size == LARGE { large() } else { u64::from(symbol.size) }
    }

    /// The tracker that a symbol belongs to.
    pub(crate) fn owner(&self, symbol: &Symbol) -> Option<&Arc<TrackerCore>> {
        self.trackers.at(symbol.owner).map(|record| &record.core)
    }

    /// What an alias stands for, once somebody has looked for it.
    pub(crate) fn alias_of(&self, symbol: &Symbol) -> Option<&Aliasee> {
        self.extras.at(symbol.extra?)?.alias_of.as_deref()
    }

    pub(crate) fn set_alias(&mut self, id: SymbolId, aliasee: Aliasee) {
        if let Some(extra) = self.extra_mut(id) {
            extra.alias_of = Some(Box::new(aliasee));
        }
    }

    /// Has a lookup wait for a symbol.
    pub(crate) fn add_waiter(&mut self, id: SymbolId, waiter: Waiter) {
        if let Some(extra) = self.extra_mut(id) {
            extra.waiters.push(waiter);
        }
    }

    /// Whether somebody waits for a symbol.
    pub(crate) fn is_wanted(&self, id: SymbolId) -> bool {
        let Some(symbol) = self.symbols.get(id) else { return false };
        let extra = symbol.extra.and_then(|extra| self.extras.at(extra));
        symbol.has_dependants || extra.is_some_and(|extra| !extra.waiters.is_empty())
    }

    fn extra_mut(&mut self, id: SymbolId) -> Option<&mut Extra> {
        let symbol = self.symbols.get_mut(id)?;
        let make = || SlotNumber::of(self.extras.insert(Extra::default()));
        let extra = *symbol.extra.get_or_insert_with(make);
        self.extras.at_mut(extra)
    }

    pub(crate) fn symbol(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id)
    }

    pub(crate) fn symbol_mut(&mut self, id: SymbolId) -> Option<&mut Symbol> {
        self.symbols.get_mut(id)
    }

    /// A symbol and all of its owner's that were defined in the same place as it.
    pub(crate) fn mates(&self, id: SymbolId) -> Vec<SymbolId> {
        let Some(symbol) = self.symbols.get(id) else { return Vec::new() };
        let (place, mut next) = (self.place(symbol), self.owner(symbol).and_then(|core| core.owned.first()));
        let mut mates = Vec::new();
        while let Some(slot) = next {
            let Some(other) = self.symbols.at(slot) else { break };
            if Arc::ptr_eq(self.place(other), place) {
                mates.extend(self.symbols.key_at(slot));
            }
            next = other.next;
        }
        mates
    }

    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.values()
    }

    pub(crate) fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// Whether it holds nothing: no symbol, no unit, no tracker.
    pub(crate) fn is_empty(&self) -> bool {
        (self.symbols.len(), self.units.len(), self.trackers.len()) == (0, 0, 0)
    }

    pub(crate) fn tracker(&self, id: TrackerId) -> Option<&TrackerRecord> {
        self.trackers.get(id)
    }

    pub(crate) fn trackers(&self) -> impl Iterator<Item = &Arc<TrackerCore>> {
        self.trackers.values().map(|record| &record.core)
    }

    pub(crate) fn add_tracker(&mut self, make: impl FnOnce(TrackerId) -> Arc<TrackerCore>) -> Arc<TrackerCore> {
        let make = |id| TrackerRecord { core: make(id) };
        self.trackers.insert_with_key(make).1.core.clone()
    }

    /// Drops a tracker's record, if it is still there.
    pub(crate) fn remove_tracker(&mut self, id: TrackerId) -> Option<TrackerRecord> {
        self.trackers.remove(id)
    }

    /// A record for a unit that is given to [`supply`](Self::supply) next: its names may be read meanwhile.
    pub(crate) fn reserve_unit(&mut self, symbol_count: usize) -> UnitId {
        self.reserve_names(symbol_count);
        let (symbols, promised) = (RecycledVec::with_capacity(symbol_count), Some(symbol_count));
        self.units.insert(UnitRecord { unit: None, symbols, promised, discarded: Vec::new() })
    }

    /// Makes room, once for all of them.
    fn reserve_names(&mut self, count: usize) {
        let hash_again = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
        self.names.reserve(count, hash_again);
    }

    /// Puts the unit into its record.
    pub(crate) fn supply(&mut self, id: UnitId, unit: Box<dyn MaterializationUnit>) {
        self.units[id].unit = Some(unit);
    }

    pub(crate) fn unit_mut(&mut self, id: UnitId) -> Option<&mut UnitRecord> {
        self.units.get_mut(id)
    }

    /// Takes a lazy unit out to be materialised: the caller [begins](Self::begin) its symbols.
    pub(crate) fn take_unit(&mut self, id: UnitId) -> Option<UnitRecord> {
        self.units.remove(id)
    }

    /// Whether a symbol goes by a name.
    pub(crate) fn is_named(&self, id: SymbolId, name: &str) -> bool {
        self.symbols.get(id).is_some_and(|symbol| text(&self.origins, symbol) == name.as_bytes())
    }

    /// A symbol turns from lazy to Materializing. Its flags.
    pub(crate) fn begin(&mut self, id: SymbolId) -> Option<SymbolFlags> {
        let symbol = self.symbols.get_mut(id)?;
        symbol.state = SymbolState::Materializing;
        symbol.set_address(ExecutorAddr::NULL);
        Some(symbol.flags)
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
        let id = self.reserve_unit(0);
        self.supply(id, unit);
        for symbol in &symbols {
            if let Some(symbol) = self.symbols.get_mut(*symbol) {
                symbol.make_lazy(id);
                let text = self.origins.of(symbol.origin).text.clone();
                let old = std::mem::replace(&mut symbol.origin, self.origins.share(&text, place));
                self.origins.let_go(old, 1);
            }
        }
        let record = &mut self.units[id];
        (record.symbols, record.promised) = (symbols.into_iter().collect(), None);
        Some(id)
    }

    /// Whether somebody waits for a symbol of a lazy unit.
    pub(crate) fn is_unit_wanted(&self, id: UnitId) -> bool {
        self.units.get(id).is_some_and(|record| record.symbols.iter().any(|id| self.is_wanted(*id)))
    }

    /// Drops a unit that has no symbol left.
    pub(crate) fn drop_unit_if_empty(&mut self, id: UnitId) -> Option<UnitRecord> {
        let empty = self.units.get(id).is_some_and(|record| record.symbols.is_empty());
        if empty { self.units.remove(id) } else { None }
    }

    /// Takes one symbol out: of the names, of its owner's list, of its lazy unit's symbols.
    pub(crate) fn remove(&mut self, id: SymbolId) -> Option<RemovedSymbol> {
        let symbol = self.symbols.get(id)?;
        let (name, is_indexed) = (self.name(symbol).to_name(), symbol.popularity == IndexState::Indexed);
        let slot = SlotNumber::of(id);
        self.unlink(slot);
        self.take_names(&[Some(Named { slot, hash: self.symbols.at(slot)?.hash })]);
        let (_, symbol) = self.symbols.remove_at(slot)?;
        self.origins.let_go(symbol.origin, 1);
        let extra = symbol.extra.and_then(|extra| self.extras.remove_at(extra)).map(|(_, extra)| extra);
        if is_indexed {
            self.ready.remove(std::iter::once(&name));
        }
        if let Some(record) = symbol.unit().and_then(|unit| self.units.get_mut(unit)) {
            record.symbols.retain(|other| *other != id);
        }
        Some(RemovedSymbol::new(id, name, &symbol, extra.unwrap_or_default()))
    }

    /// Takes out everything that a tracker owns: its symbols, and the lazy units behind them. Of symbols that are ready
    /// nobody needs to hear: they are not among those that are returned. `None` if it owns nothing.
    pub(crate) fn remove_owned(&mut self, owner: &TrackerCore) -> Option<(Vec<RemovedSymbol>, Vec<UnitRecord>)> {
        let (first, count) = (owner.owned.first()?, owner.owned.count());
        // Those of a unit were put in one after the other, and the last one comes first.
        self.symbols.prefetch_up_to(first, count.min(TAKEN_AT_ONCE as u32));
        self.trackers.prefetch(SlotNumber::of(owner.id));
        self.origins.prefetch(self.symbols[first].origin);
        let mut next = owner.owned.take();
        let (mut unready, mut indexed, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let mut left: Option<(SlotNumber<NameSourceId>, u32)> = None;
        loop {
            // Some at a time, and first the names of all of them: where many modules live, each name is in another line of
            // memory that no cache holds, and a loop that does nothing else waits for many at once.
            let mut some = [None; TAKEN_AT_ONCE];
            for named in &mut some {
                let Some((slot, symbol)) = next.and_then(|slot| Some((slot, self.symbols.at(slot)?))) else { break };
                *named = Some(Named { slot, hash: symbol.hash });
                next = symbol.next;
            }
            if some[0].is_none() {
                break;
            }
            self.take_names(&some);
            let SymbolTable { symbols, origins, extras, units: all_units, .. } = self;
            for Named { slot, .. } in some.into_iter().map_while(|named| named) {
                symbols.drop_at(slot, |id, symbol| {
                    if symbol.popularity == IndexState::Indexed {
                        indexed.push(name(origins, symbol).to_name());
                    }
                    let extra = symbol.extra.and_then(|extra| extras.remove_at(extra)).map(|(_, extra)| extra);
                    if symbol.state != SymbolState::Ready {
                        units.extend(symbol.unit().and_then(|unit| all_units.remove(unit)));
                        let name = name(origins, symbol).to_name();
                        unready.push(RemovedSymbol::new(id, name, symbol, extra.unwrap_or_default()));
                    }
                    // Most have their origin in common with the next one.
                    match &mut left {
                        Some((origin, count)) if *origin == symbol.origin => *count += 1,
                        _ => {
                            let before = left.replace((symbol.origin, 1));
                            before.into_iter().for_each(|(origin, count)| origins.let_go(origin, count));
                        }
                    }
                });
            }
        }
        left.into_iter().for_each(|(origin, count)| self.origins.let_go(origin, count));
        self.ready.remove(indexed.iter());
        Some((unready, units))
    }

    /// Takes entries out of the names; they are still in the table.
    fn take_names(&mut self, entries: &[Option<Named>]) {
        for Named { slot, hash } in entries.iter().flatten() {
            if let Ok(found) = self.names.find_entry(hash.spread(), |other| other == slot) {
                found.remove();
            }
        }
        // A table that was large once gives its memory back.
        if let Some(kept) = capacity_to_keep(self.names.len(), self.names.capacity()) {
            let hash_again = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
            self.names.shrink_to(kept, hash_again);
        }
    }

    /// Gives everything that `source` owns to `destination` and drops the source's record.
    pub(crate) fn merge_tracker(&mut self, source: TrackerId, destination: TrackerId) -> Option<TrackerRecord> {
        let record = self.trackers.remove(source)?;
        let (mut next, destination) = (record.core.owned.take(), SlotNumber::of(destination));
        while let Some(slot) = next {
            next = self.symbols[slot].next;
            self.symbols[slot].owner = destination;
            link(&mut self.symbols, &self.trackers[destination].core.owned, slot);
        }
        Some(record)
    }

    /// Moves a symbol on and completes the lookups that waited for that.
    #[inline]
    pub(crate) fn advance(&mut self, id: SymbolId, state: SymbolState, completions: &mut Completions) {
        self.move_on(id, state, |_| {}, completions);
    }

    /// As [`advance`](Self::advance) to the state in which its address is known.
    #[inline]
    pub(crate) fn resolve(&mut self, id: SymbolId, address: ExecutorAddr, completions: &mut Completions) {
        let set_address = |symbol: &mut Symbol| {
            debug_assert!(symbol.state == SymbolState::Materializing);
            symbol.set_address(address);
        };
        self.move_on(id, SymbolState::Resolved, set_address, completions);
    }

    /// As [`advance`](Self::advance) to the state in which its code may run, of one whose address was not known so far.
    #[inline]
    pub(crate) fn finish(&mut self, id: SymbolId, address: ExecutorAddr, completions: &mut Completions) {
        self.move_on(id, SymbolState::Ready, |symbol| symbol.set_address(address), completions);
    }

    #[inline]
    fn move_on(&mut self, id: SymbolId, to: SymbolState, set: impl FnOnce(&mut Symbol), completions: &mut Completions) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        debug_assert!(symbol.state <= to, "symbols only move on");
        set(symbol);
        symbol.state = to;
        if let Some(extra) = symbol.extra {
            self.serve(id, extra, to, completions);
        }
    }

    #[inline(never)]
    fn serve(&mut self, id: SymbolId, number: SlotNumber<ExtraId>, state: SymbolState, completions: &mut Completions) {
        let (Some(symbol), Some(extra)) = (self.symbols.get_mut(id), self.extras.at_mut(number)) else { return };
        if !extra.waiters.is_empty() && !extra.waiters.iter().any(|waiter| waiter.query.is_served_by(state)) {
            return;
        }
        let served = extra.take_served(state);
        if extra.waiters.is_empty() && state >= SymbolState::Resolved && symbol.size != LARGE {
            symbol.extra = None;
            self.extras.remove_at(number);
        }
        let symbol = &self.symbols[id];
        let found = Found { address: symbol.address(), flags: symbol.flags, id, name: self.name(symbol) };
        completions.extend(served.into_iter().filter_map(|waiter| waiter.satisfy(&found)));
    }

    /// Takes note that a lookup found a symbol ready; at the second time it comes into the index of such.
    pub(crate) fn note_ready_lookup(&mut self, id: SymbolId) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        debug_assert!(symbol.state == SymbolState::Ready);
        match symbol.popularity {
            IndexState::Never => symbol.popularity = IndexState::Once,
            IndexState::Once => {
                symbol.popularity = IndexState::Indexed;
                let symbol = &self.symbols[id];
                let found = ReadySymbol { address: symbol.address(), flags: symbol.flags, id };
                self.ready.insert(self.name(symbol).to_name(), found);
            }
            IndexState::Indexed => {}
        }
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
            record.core.owned.remove(previous.is_none().then_some(next));
        }
    }
}

impl Extra {
    /// Takes out the lookups that `state` is enough for, in the order in which they came.
    fn take_served(&mut self, state: SymbolState) -> Waiters {
        let served = self.waiters.iter().filter(|waiter| waiter.query.is_served_by(state)).count();
        if served == 0 {
            return Waiters::new();
        }
        if served == self.waiters.len() {
            return std::mem::take(&mut self.waiters);
        }
        let (served, left) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.query.is_served_by(state));
        self.waiters = left;
        served
    }
}

impl UnitRecord {
    /// Whether its symbols are all that it promised, in that order.
    pub(crate) fn is_whole(&self) -> bool {
        self.promised == Some(self.symbols.len())
    }
}

impl RemovedSymbol {
    fn new(id: SymbolId, name: Name, symbol: &Symbol, extra: Extra) -> RemovedSymbol {
        let Symbol { state, has_dependants, .. } = *symbol;
        RemovedSymbol { id, name, state, unit: symbol.unit(), has_dependants, waiters: extra.waiters }
    }
}

fn name<'a>(origins: &'a NameSources, symbol: &Symbol) -> NameRef<'a> {
    NameRef { text: &origins.of(symbol.origin).text, start: symbol.start, end: symbol.end }
}

fn text<'a>(origins: &'a NameSources, symbol: &Symbol) -> &'a [u8] {
    &origins.of(symbol.origin).text.as_bytes()[symbol.start as usize..symbol.end as usize]
}

impl TrackerRecord {
    pub(crate) fn symbol_count(&self) -> usize {
        self.core.owned.count() as usize
    }
}

/// How many symbols of a tracker are taken out together.
const TAKEN_AT_ONCE: usize = 16;

/// Of a size that does not fit.
const LARGE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_takes_few_bytes_since_there_are_many() {
        // With its version, 52: the slot of a value that may be missing costs nothing beyond that.
        assert_eq!((size_of::<Symbol>(), size_of::<Option<Symbol>>(), align_of::<Symbol>()), (48, 48, 4));
        assert_eq!(size_of::<Option<TrackerRecord>>(), 8);
    }
}
