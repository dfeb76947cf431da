//! [`SymbolTable`]: the names, symbols, lazy units and trackers of one dylib. Plain data; the dylib's lock guards it.
//!
//! The entry of a symbol names its owner, and is linked into the owner's list (S1). So the removal of a tracker, a transfer,
//! the replacement of a weak symbol and the removal of one name each cost in proportion to the symbols they touch. They all
//! change the same entries, so they cannot disagree.
//!
//! ```text
//!   names: "foo" ─► slot ─► Symbol { owner ─► TrackerRecord { core }, unit ─► UnitRecord { symbols },
//!                              ▲       name_source ─► NameSource { text, unit_name }, extra ─► Extra { waiters } }
//!                              └ previous / next: the owner's list, which starts in OwnedSymbols
//! ```
//!
//! Symbols are most of what a session stores for a linked object, so an entry is small. Entries refer to each other, and to
//! what they share, by slot number. Data that few symbols have is in [`Extra`]. A user that keeps a symbol longer than it
//! holds the lock keeps its [`SymbolId`]: a search by id finds nothing after the symbol is removed.

use slotmap::{Key, KeyData};
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, NameRef, PagedArena, SegmentedTable, SlotNumber, impl_recycle};
use crate::session::symbols::failed_symbols::{FailedSymbol, FailedSymbols};
use crate::session::symbols::name_watch::NameWatch;
use crate::session::symbols::ready_index::entry::ReadySymbol;
use crate::session::symbols::ready_index::{IndexState, ReadyIndex};
use crate::session::types::ids::TrackerId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::name_sources::{NameSourceId, NameSources};
use crate::session::types::shared_pins::SharedPin;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};

use crate::sync::{Arc, Weak};

mod alias;
mod failures;
pub(in crate::session) mod insert;
mod lost_groups;
mod negative_cache;
pub(in crate::session) mod owned;
mod pieces;
pub(in crate::session) mod remove;
pub(in crate::session) mod staged;
pub(in crate::session) mod unfinished;
mod units;

use lost_groups::LostGroups;
use negative_cache::NegativeCache;
use owned::OwnedSymbols;
use unfinished::{Unfinished, skips};
pub(crate) use units::{TakenUnit, UnitRecord};

slotmap::new_key_type! {
    pub(crate) struct UnitId;
    struct ExtraId;
}

impl_recycle!(SymbolId);

/// The types that a table stores without using them.
pub(crate) trait TableTypes {
    type Tracker: Owner;
    type Unit;
    type Waiter: WaitingLookup;
    type Dylib;
}

/// A tracker that owns symbols.
pub(crate) trait Owner {
    fn id(&self) -> TrackerId;

    fn owned(&self) -> &OwnedSymbols;
}

/// The entry of a lookup in a symbol's list of waiters.
pub(crate) trait WaitingLookup {
    /// A lookup that has everything it waited for.
    type Completion;

    fn is_satisfied_by(&self, state: SymbolState) -> bool;

    fn satisfy(self, found: &Found<'_>) -> Option<Self::Completion>;
}

/// The lookups that wait for one symbol. Mostly there is one.
pub(crate) type Waiters<W> = SmallVec<[W; 1]>;

/// The lookups that are complete after one step.
type Completions<E> = SmallVec<[<<E as TableTypes>::Waiter as WaitingLookup>::Completion; 2]>;

/// The table of one dylib.
pub(crate) struct SymbolTable<E: TableTypes> {
    /// Copies of entries for readers that do not hold the lock.
    ready: Arc<ReadyIndex>,
    /// Slots by name. The entries have the names.
    names: SegmentedTable<SlotNumber<SymbolId>>,
    symbols: PagedArena<SymbolId, Symbol>,
    sources: NameSources,
    extras: PagedArena<ExtraId, Extra<E>>,
    units: PagedArena<UnitId, UnitRecord<E>>,
    trackers: PagedArena<TrackerId, TrackerRecord<E>>,
    negative_cache: NegativeCache,
    failed: FailedSymbols,
    lost_groups: LostGroups,
    unfinished: Unfinished,
}

/// The entry of one symbol.
pub(crate) struct Symbol {
    name_source: SlotNumber<NameSourceId>,
    /// The range of the name in the text of the source.
    start: u32,
    end: u32,
    /// The hash of the name. With it, an entry is found or rehashed without a load of the name.
    hash: NameHash,
    /// The tracker in whose list the symbol is. It has a record. It is the owner, unless a transfer is unfinished
    /// ([`Unfinished::owner`]).
    owner: SlotNumber<TrackerId>,
    previous: Option<SlotNumber<SymbolId>>,
    next: Option<SlotNumber<SymbolId>>,
    /// In bytes. Zero if unknown; [`LARGE`] if `extra` has the size.
    size: u32,
    /// The two halves of a 64-bit value: the id of the unit in state NeverSearched, the address in later states. Halves, so
    /// that an entry is aligned to 4 bytes and its slot has no padding.
    value: [u32; 2],
    extra: Option<SlotNumber<ExtraId>>,
    pub(crate) flags: SymbolFlags,
    pub(crate) state: SymbolState,
    /// Whether the waiting graph has groups that wait for the symbol.
    pub(crate) has_dependants: bool,
    index_state: IndexState,
}

/// Data that few symbols have, and most of these only for a short time.
struct Extra<E: TableTypes> {
    /// Lookups that wait for the symbol.
    waiters: Waiters<E::Waiter>,
    /// The target of an alias. Set by the first lookup; no longer needed once the alias is resolved.
    alias_of: Option<Box<Aliasee<E::Dylib>>>,
    /// The size in bytes, if it does not fit into the entry.
    size: u64,
}

/// The target of an alias: a dylib and a name.
pub(crate) type Aliasee<D> = (Weak<D>, Name);

impl Symbol {
    /// The lazy unit that defines the symbol. `None` once a lookup asked for the symbol.
    pub(crate) fn unit(&self) -> Option<UnitId> {
        (self.state == SymbolState::NeverSearched).then(|| KeyData::from_ffi(self.value()).into())
    }

    /// The address. Null as long as it is unknown.
    pub(crate) fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(if self.state == SymbolState::NeverSearched { 0 } else { self.value() })
    }

    /// Sets the address of a symbol that is being materialised.
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

/// What a search found.
pub(crate) struct Found<'a> {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    pub(crate) id: SymbolId,
    pub(crate) name: NameRef<'a>,
}

pub(crate) fn found_symbol<'a, E: TableTypes>(table: &'a SymbolTable<E>, id: SymbolId, symbol: &Symbol) -> Found<'a> {
    Found { address: symbol.address(), flags: symbol.flags, id, name: table.name(symbol) }
}

/// The result of a search for a name that may be inserted next.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    hash: NameHash,
    pub(crate) found: Option<SymbolId>,
}

pub(crate) struct TrackerRecord<E: TableTypes> {
    pub(crate) core: Arc<E::Tracker>,
}

/// A symbol that was removed from the table.
pub(crate) struct RemovedSymbol<E: TableTypes> {
    pub(crate) id: SymbolId,
    pub(crate) name: Name,
    pub(crate) state: SymbolState,
    pub(crate) unit: Option<UnitId>,
    pub(crate) has_dependants: bool,
    pub(crate) waiters: Waiters<E::Waiter>,
    hash: NameHash,
    flags: SymbolFlags,
}

impl Probe {
    /// The result of a search that finds nothing.
    #[inline]
    pub(crate) fn unfound(name: &Name) -> Probe {
        Probe { hash: NameHash::of_bytes(name.borrowed().as_bytes()), found: None }
    }
}

impl<E: TableTypes> SymbolTable<E> {
    /// An empty table that keeps `ready` consistent with itself.
    pub(crate) fn new(ready: Arc<ReadyIndex>) -> SymbolTable<E> {
        SymbolTable {
            ready,
            names: SegmentedTable::default(),
            symbols: PagedArena::new(),
            sources: NameSources::new(),
            extras: PagedArena::new(),
            units: PagedArena::new(),
            trackers: PagedArena::new(),
            negative_cache: NegativeCache::default(),
            failed: FailedSymbols::default(),
            lost_groups: LostGroups::default(),
            unfinished: Unfinished::default(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<SymbolId> {
        self.probe(name).found
    }

    /// Searches for a name that may be inserted next.
    pub(crate) fn probe(&self, name: &str) -> Probe {
        self.probe_hashed(name, NameHash::of(name))
    }

    /// Repeats a search if the table may have changed. The name is not hashed again.
    pub(crate) fn probe_again(&self, name: &str, before: Probe) -> Probe {
        self.probe_hashed(name, before.hash)
    }

    fn probe_hashed(&self, name: &str, hash: NameHash) -> Probe {
        Probe { hash, found: self.find_hashed(name.as_bytes(), hash).map(|(id, _)| id) }
    }

    /// The symbol with this name, whose hash is `hash`.
    #[inline]
    pub(crate) fn find_hashed(&self, name: &[u8], hash: NameHash) -> Option<(SymbolId, &Symbol)> {
        let is_named = |slot: &SlotNumber<SymbolId>| {
            let symbol = &self.symbols[*slot];
            symbol.hash == hash
                && text(&self.sources, symbol) == name
                && !skips(&self.unfinished, &self.ready, &self.sources, (*slot, &self.symbols))
        };
        let slot = self.names.find(hash.spread(), is_named)?;
        self.symbols.entry_at(*slot)
    }

    pub(crate) fn name(&self, symbol: &Symbol) -> NameRef<'_> {
        name(&self.sources, symbol)
    }

    /// The unit that defines a symbol; for error texts.
    pub(crate) fn unit_name(&self, symbol: &Symbol) -> &Arc<str> {
        self.sources.unit_name(symbol.name_source)
    }

    /// The size of a symbol in bytes. Zero if unknown.
    pub(crate) fn size(&self, symbol: &Symbol) -> u64 {
        let large = || symbol.extra.and_then(|extra| self.extras.at(extra)).map_or(0, |extra| extra.size);
        if symbol.size == LARGE { large() } else { u64::from(symbol.size) }
    }

    /// The tracker that owns a symbol.
    pub(crate) fn owner(&self, symbol: &Symbol) -> Option<&Arc<E::Tracker>> {
        self.trackers.at(self.unfinished.owner(symbol.owner)).map(|record| &record.core)
    }

    /// Adds a lookup that waits for a symbol.
    pub(crate) fn add_waiter(&mut self, id: SymbolId, waiter: E::Waiter) {
        if let Some(extra) = self.extra_mut(id) {
            extra.waiters.push(waiter);
        }
    }

    /// Whether anything waits for a symbol: a lookup, or a group of the waiting graph.
    pub(crate) fn has_waiters(&self, id: SymbolId) -> bool {
        let Some(symbol) = self.visible(id) else { return false };
        let extra = symbol.extra.and_then(|extra| self.extras.at(extra));
        symbol.has_dependants || extra.is_some_and(|extra| !extra.waiters.is_empty())
    }

    fn extra_mut(&mut self, id: SymbolId) -> Option<&mut Extra<E>> {
        let symbol = self.symbols.get_mut(id).filter(|symbol| !self.unfinished.hides(symbol))?;
        let make = || SlotNumber::of(self.extras.insert(Extra::default()));
        let extra = *symbol.extra.get_or_insert_with(make);
        self.extras.at_mut(extra)
    }

    pub(crate) fn symbol(&self, id: SymbolId) -> Option<&Symbol> {
        self.visible(id)
    }

    pub(crate) fn symbol_mut(&mut self, id: SymbolId) -> Option<&mut Symbol> {
        self.visible_mut(id)
    }

    /// A symbol, and the other symbols of its owner that the same unit defines.
    pub(crate) fn symbols_of_same_unit(&self, id: SymbolId) -> Vec<SymbolId> {
        let Some(symbol) = self.visible(id) else { return Vec::new() };
        let (Some(owner), unit_name) = (self.owner(symbol), self.unit_name(symbol)) else { return Vec::new() };
        let mut found = Vec::new();
        for head in self.lists_of(owner) {
            let mut next = Some(head);
            while let Some(slot) = next {
                let Some(other) = self.symbols.at(slot) else { break };
                if Arc::ptr_eq(self.unit_name(other), unit_name) {
                    found.extend(self.symbols.key_at(slot));
                }
                next = other.next;
            }
        }
        found
    }

    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.values().filter(|symbol| !self.unfinished.hides(symbol))
    }

    /// Whether the table has no symbol, no unit and no tracker.
    pub(crate) fn is_empty(&self) -> bool {
        (self.symbols.len(), self.units.len(), self.trackers.len()) == (0, 0, 0)
    }

    /// Whether a symbol is defined, or a unit waits to define some.
    pub(crate) fn has_definitions(&self) -> bool {
        (self.symbols.len(), self.units.len()) != (0, 0)
    }

    /// Whether a tracker has a record.
    pub(crate) fn has_trackers(&self) -> bool {
        self.trackers.len() > 0
    }

    /// Some of the trackers that have a record: those of the page with this number. `None` after the last page. A tracker stays in
    /// its page.
    pub(crate) fn trackers_of_page(&self, page: usize) -> Option<impl Iterator<Item = &Arc<E::Tracker>>> {
        Some(self.trackers.page_values(page)?.map(|record| &record.core))
    }

    pub(crate) fn add_tracker(&mut self, make: impl FnOnce(TrackerId) -> Arc<E::Tracker>) -> Arc<E::Tracker> {
        let make = |id| TrackerRecord { core: make(id) };
        self.trackers.insert_with_key(make).1.core.clone()
    }

    /// Removes the record of a tracker, if there is one.
    pub(crate) fn remove_tracker(&mut self, id: TrackerId) -> Option<TrackerRecord<E>> {
        self.trackers.remove(id)
    }

    /// Whether a symbol has this name.
    pub(crate) fn is_named(&self, id: SymbolId, name: &str) -> bool {
        self.visible(id).is_some_and(|symbol| text(&self.sources, symbol) == name.as_bytes())
    }

    /// Moves a symbol from NeverSearched to Materializing. Returns its flags.
    pub(crate) fn begin(&mut self, id: SymbolId) -> Option<SymbolFlags> {
        let symbol = self.visible_mut(id)?;
        symbol.state = SymbolState::Materializing;
        symbol.set_address(ExecutorAddr::NULL);
        Some(symbol.flags)
    }

    /// Moves a symbol to a later state and completes the lookups that this satisfies.
    #[inline]
    pub(crate) fn advance(&mut self, id: SymbolId, state: SymbolState, completions: &mut Completions<E>) {
        self.set_state(id, state, |_| {}, completions);
    }

    /// Like [`advance`](Self::advance) to Resolved, with the address.
    #[inline]
    pub(crate) fn resolve(&mut self, id: SymbolId, address: ExecutorAddr, completions: &mut Completions<E>) {
        let set_address = |symbol: &mut Symbol| {
            debug_assert!(symbol.state == SymbolState::Materializing);
            symbol.set_address(address);
        };
        self.set_state(id, SymbolState::Resolved, set_address, completions);
    }

    /// Like [`advance`](Self::advance) from Materializing to Ready, with the address.
    #[inline]
    pub(crate) fn finish(&mut self, id: SymbolId, address: ExecutorAddr, completions: &mut Completions<E>) {
        self.set_state(id, SymbolState::Ready, |symbol| symbol.set_address(address), completions);
    }

    #[inline]
    fn set_state(
        &mut self,
        id: SymbolId,
        to: SymbolState,
        set: impl FnOnce(&mut Symbol),
        completions: &mut Completions<E>,
    ) {
        let Some(symbol) = self.visible_mut(id) else { return };
        debug_assert!(symbol.state <= to, "a symbol never moves to an earlier state");
        set(symbol);
        symbol.state = to;
        if let Some(extra) = symbol.extra {
            self.complete_waiters(id, extra, to, completions);
        }
    }

    #[inline(never)]
    fn complete_waiters(
        &mut self,
        id: SymbolId,
        number: SlotNumber<ExtraId>,
        state: SymbolState,
        completions: &mut Completions<E>,
    ) {
        let (Some(symbol), Some(extra)) = (self.symbols.get_mut(id), self.extras.at_mut(number)) else { return };
        if !extra.waiters.is_empty() && !extra.waiters.iter().any(|waiter| waiter.is_satisfied_by(state)) {
            return;
        }
        let satisfied = extra.remove_satisfied(state);
        if extra.waiters.is_empty() && state >= SymbolState::Resolved && symbol.size != LARGE {
            symbol.extra = None;
            self.extras.remove_at(number);
        }
        let symbol = &self.symbols[id];
        let found = Found { address: symbol.address(), flags: symbol.flags, id, name: self.name(symbol) };
        completions.extend(satisfied.into_iter().filter_map(|waiter| waiter.satisfy(&found)));
    }

    /// Records a failed search for a name that no generator adds. At the second one, the index gets the name as absent.
    pub(crate) fn note_absent(&mut self, name: &str, hash: NameHash) {
        let is_second_miss = self.negative_cache.record_miss(hash);
        let is_known =
            || self.ready.find(name, hash, |_, _| ()).is_some() || self.find_hashed(name.as_bytes(), hash).is_some();
        if is_second_miss && !is_known() {
            self.negative_cache.add(&self.ready, name);
        }
    }

    /// The dylib gets a generator, which may define names that were absent: removes them from the index.
    pub(crate) fn note_generator(&mut self) {
        self.negative_cache.clear(&self.ready);
        self.negative_cache.watch.iter().for_each(|watch| watch.note_generator());
    }

    /// The dylib is closed: removes all absent names from the index.
    pub(crate) fn note_closed(&mut self) {
        self.negative_cache.clear(&self.ready);
        self.negative_cache.watch.iter().for_each(|watch| watch.note_closed());
    }

    /// From now on, definitions clear the watches of their names.
    pub(crate) fn watch_names(&mut self, watch: &Arc<NameWatch>) {
        if self.negative_cache.watch.is_none() {
            self.negative_cache.watch = Some(watch.clone());
        }
    }

    /// The dylib is used again for another one, which no cached search has visited.
    pub(crate) fn unwatch_names(&mut self) {
        self.negative_cache.watch = None;
    }

    /// Whether a lookup has found a symbol before, since it is ready.
    pub(crate) fn was_looked_up(&self, symbol: &Symbol) -> bool {
        symbol.index_state != IndexState::NotLookedUp
    }

    /// Records that a lookup found a ready symbol. At the second one, the index gets the symbol.
    pub(crate) fn note_ready_lookup(&mut self, id: SymbolId) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        debug_assert!(symbol.state == SymbolState::Ready);
        match symbol.index_state {
            IndexState::NotLookedUp => symbol.index_state = IndexState::LookedUpOnce,
            IndexState::LookedUpOnce => self.add_to_index(id, None),
            IndexState::Indexed => {}
        }
    }

    /// Records that handles of a ready symbol share a pin: the index gets both.
    pub(crate) fn note_pinned_lookup(&mut self, id: SymbolId, pin: &Arc<SharedPin>) {
        let Some(symbol) = self.symbols.get(id) else { return };
        match symbol.index_state {
            IndexState::Indexed => self.ready.set_pin(self.name(symbol).as_str(), id, pin),
            _ => self.add_to_index(id, Some(pin)),
        }
    }

    fn add_to_index(&mut self, id: SymbolId, pin: Option<&Arc<SharedPin>>) {
        let Some(symbol) = self.symbols.get_mut(id) else { return };
        symbol.index_state = IndexState::Indexed;
        let symbol = &self.symbols[id];
        let found = ReadySymbol { address: symbol.address(), flags: symbol.flags, id };
        self.ready.insert(self.name(symbol).to_name(), found, pin);
    }
}

impl<E: TableTypes> Default for Extra<E> {
    fn default() -> Extra<E> {
        Extra { waiters: Waiters::new(), alias_of: None, size: 0 }
    }
}

impl<E: TableTypes> Extra<E> {
    /// Removes the lookups that `state` satisfies, in the order in which they were added.
    fn remove_satisfied(&mut self, state: SymbolState) -> Waiters<E::Waiter> {
        let satisfied = self.waiters.iter().filter(|waiter| waiter.is_satisfied_by(state)).count();
        if satisfied == 0 {
            return Waiters::new();
        }
        if satisfied == self.waiters.len() {
            return std::mem::take(&mut self.waiters);
        }
        let (satisfied, unsatisfied) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.is_satisfied_by(state));
        self.waiters = unsatisfied;
        satisfied
    }
}

fn name<'a>(sources: &'a NameSources, symbol: &Symbol) -> NameRef<'a> {
    NameRef { text: sources.text(symbol.name_source), start: symbol.start, end: symbol.end }
}

fn text<'a>(sources: &'a NameSources, symbol: &Symbol) -> &'a [u8] {
    &sources.text(symbol.name_source).as_bytes()[symbol.start as usize..symbol.end as usize]
}

/// Marks a size that does not fit into the entry.
const LARGE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_takes_48_bytes() {
        // The option takes no extra byte, and a slot adds a version of 4 bytes.
        assert_eq!((size_of::<Symbol>(), size_of::<Option<Symbol>>(), align_of::<Symbol>()), (48, 48, 4));
        assert_eq!(size_of::<Option<crate::session::core::jit_dylib::TrackerRecord>>(), 8);
    }
}
