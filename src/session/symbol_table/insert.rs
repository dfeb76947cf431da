//! How symbols get into a table: one by one, or all of a unit's in one go.

use hashbrown::hash_table::Entry;
use slotmap::Key;

use super::{Extra, LARGE, NameHash, Popularity, Probe, Symbol, SymbolTable, UnitId, halves, text};
use crate::base::{ExecutorAddr, Name, NameRef, SlotNumber};
use crate::session::materialization::Definition;
use crate::session::resource_tracker::TrackerId;
use crate::session::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

/// What `insert` is told of a symbol.
pub(crate) struct NewSymbol<'a> {
    pub(crate) name: &'a Name,
    pub(crate) flags: SymbolFlags,
    pub(crate) size: u64,
    pub(crate) owner: TrackerId,
    pub(crate) unit: Option<UnitId>,
    pub(crate) state: SymbolState,
    pub(crate) address: ExecutorAddr,
    pub(crate) place: &'a Arc<str>,
}

impl SymbolTable {
    /// Adds a symbol whose name is free, as `probe` has seen. The owner must have a record.
    pub(crate) fn insert(&mut self, probe: Probe, new: NewSymbol<'_>) -> SymbolId {
        let NewSymbol { name, flags, size, owner, unit, state, address, place } = new;
        debug_assert!(self.find(name).is_none() && probe.hash == NameHash::of(name));
        debug_assert_eq!(unit.is_some(), state == SymbolState::NeverSearched);
        let NameRef { text: shared, start, end } = name.borrowed();
        let mut symbol = Symbol {
            origin: self.origins.share(shared, place),
            start,
            end,
            hash: probe.hash,
            owner: SlotNumber::of(owner),
            previous: None,
            next: None,
            size: u32::try_from(size).unwrap_or(LARGE),
            value: [0; 2],
            extra: None,
            flags,
            state,
            has_dependants: false,
            popularity: Popularity::Never,
        };
        symbol.set_value(unit.map_or(address.value(), |unit| unit.data().as_ffi()));
        let is_large = symbol.size == LARGE;
        let id = self.symbols.insert(symbol);
        let slot = SlotNumber::of(id);
        let hash_again = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
        self.names.insert_unique(probe.hash.spread(), slot, hash_again);
        if let Some(extra) = if is_large { self.extra_mut(id) } else { None } {
            extra.size = size;
        }
        // The owner's list goes through the entry itself (S1).
        self.link(slot, SlotNumber::of(owner));
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
        let id = self.reserve_unit(definitions.len());
        let SymbolTable { names, symbols, origins, extras, units, trackers, .. } = self;
        let (promised, record) = (&mut units[id].symbols, &mut trackers[owner]);
        let (owner, value) = (SlotNumber::of(owner), halves(id.data().as_ffi()));
        for (Definition { name, flags, size }, Probe { hash, .. }) in definitions {
            let is_named =
                |slot: &SlotNumber<SymbolId>| symbols[*slot].hash == hash && text(origins, &symbols[*slot]) == &**name;
            let entry = names.entry(hash.spread(), is_named, |slot| symbols[*slot].hash.spread());
            let free = match entry {
                Entry::Vacant(free) => free,
                Entry::Occupied(taken) if symbols[*taken.get()].unit() == Some(id) => continue,
                Entry::Occupied(_) => {
                    self.take_back(id);
                    return None;
                }
            };
            let NameRef { text, start, end } = name.borrowed();
            let mut symbol = Symbol {
                origin: origins.share(text, place),
                start,
                end,
                hash,
                owner,
                previous: None,
                next: record.first,
                size: u32::try_from(size).unwrap_or(LARGE),
                value,
                extra: None,
                flags,
                state: SymbolState::NeverSearched,
                has_dependants: false,
                popularity: Popularity::Never,
            };
            if symbol.size == LARGE {
                symbol.extra = Some(SlotNumber::of(extras.insert(Extra { size, ..Extra::default() })));
            }
            let symbol = symbols.insert(symbol);
            let slot = SlotNumber::of(symbol);
            free.insert(slot);
            // The owner's list goes through the entries themselves (S1).
            if let Some(next) = record.first.replace(slot) {
                symbols[next].previous = Some(slot);
            }
            record.symbol_count += 1;
            promised.push(symbol);
        }
        Some(id)
    }

    /// Takes a unit out again whose names were not all free.
    #[cold]
    fn take_back(&mut self, id: UnitId) {
        let put_in = self.units.remove(id).map(|record| record.symbols);
        put_in.iter().flatten().for_each(|symbol| drop(self.remove(*symbol)));
    }
}
