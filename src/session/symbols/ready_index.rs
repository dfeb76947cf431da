//! [`ReadyIndex`]: the symbols of one dylib that are looked up often, for readers that do not lock the dylib.
//!
//! The index has copies of a few entries of the symbol table. An entry is added and removed under the dylib's lock. So a hit
//! answers a lookup; one of a symbol whose removal is under way answers as before the removal. A miss says nothing: the lookup
//! must search the table.
//!
//! | entry | added | removed |
//! |---|---|---|
//! | a ready symbol | at its second lookup | with the symbol, or when a search finds it hidden (`symbol_table/unfinished.rs`) |
//! | an *absent* name, which the dylib does not define | at its second failed search | when the name is defined, when the dylib gets a generator, when the dylib is closed |
//!
//! Absent names serve lookups that search several dylibs: they skip this dylib without locking it. Code that is linked,
//! looked up once and removed never enters the index.

use hashbrown::HashTable;

use crate::base::{ExecutorAddr, Name, shrunk_capacity};
use crate::session::types::name_hash::NameHash;
use crate::session::types::shared_pins::{SharedPin, own_group};
use crate::session::types::symbol::{SymbolFlags, SymbolId};
use crate::sync::{Arc, ReadMostly, seeded_bug};

pub(in crate::session) mod entry;
mod index_pins;

use entry::{IndexEntry, ReadySymbol, hash};
use index_pins::IndexPins;

/// A concurrent table of entries by name.
pub(crate) struct ReadyIndex(ReadMostly<IndexTable>);

/// What the lock of the index guards.
#[derive(Default)]
struct IndexTable {
    entries: HashTable<IndexEntry>,
    pins: IndexPins,
}

/// How often a ready symbol was looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexState {
    NotLookedUp,
    LookedUpOnce,
    /// At least twice: the index has it.
    Indexed,
}

impl ReadyIndex {
    /// An empty index.
    pub(crate) fn new() -> ReadyIndex {
        ReadyIndex(ReadMostly::new())
    }

    /// Finds a name and calls `take` with its entry.
    pub(crate) fn find<R>(&self, name: &str, hash: NameHash, take: impl FnOnce(&Name, ReadySymbol) -> R) -> Option<R> {
        self.read(|entries| entries.find(name.as_bytes(), hash).map(|(name, symbol)| take(name, symbol))).flatten()
    }

    /// Calls `body`, which may search for several names. Returns `None` without a call while the index is empty.
    #[inline]
    pub(crate) fn read<R>(&self, body: impl FnOnce(ReadyEntries<'_>) -> R) -> Option<R> {
        self.0.read(|table| body(ReadyEntries(table)))
    }

    /// Finds a symbol for an owned handle. Returns its address and a reference to the pin of its tracker that this group of
    /// threads shares, or `None` instead of the pin for an absolute symbol. Finds nothing if this group should make a pin.
    #[inline]
    pub(crate) fn find_pinned(&self, name: &str, hash: NameHash) -> Option<(ExecutorAddr, Option<Arc<SharedPin>>)> {
        let find = |entries: ReadyEntries<'_>| {
            let entry = entries.find_entry(name.as_bytes(), hash)?;
            let symbol = entry.symbol();
            if symbol.flags.contains(SymbolFlags::ABSOLUTE) {
                return Some((symbol.address, None));
            }
            match entry.pin.and_then(|pin| entries.0.pins.find(pin, own_group())) {
                Some(pin) => Some((symbol.address, Some(pin))),
                None if seeded_bug!("held_without_a_pin") && !symbol.is_absent() => Some((symbol.address, None)),
                None => None,
            }
        };
        self.read(find).flatten()
    }

    /// The pin that this group of threads shares for a symbol from now on. The index has the symbol. The caller holds the dylib's
    /// lock.
    pub(crate) fn set_pin(&self, name: &str, id: SymbolId, pin: &Arc<SharedPin>) {
        let is_entry = |entry: &IndexEntry| entry.symbol().id == id && entry.is_named(name.as_bytes());
        self.0.write(|IndexTable { entries, pins }| {
            let Some(entry) = entries.find_mut(hash(name.as_bytes()), is_entry) else { return };
            match entry.pin {
                Some(number) => pins.set(number, own_group(), pin),
                None => entry.pin = pins.insert(own_group(), pin),
            }
        });
    }

    /// Adds a ready symbol, with the pin that this group of threads shares, if there is one. The caller holds the dylib's lock.
    pub(crate) fn insert(&self, name: Name, symbol: ReadySymbol, pin: Option<&Arc<SharedPin>>) {
        let hash = hash(name.as_bytes());
        self.0.write(|table| {
            debug_assert!(ReadyEntries(table).find(name.as_bytes(), NameHash::of(&name)).is_none());
            let entry = IndexEntry::new(name, symbol, pin.and_then(|pin| table.pins.insert(own_group(), pin)));
            table.entries.insert_unique(hash, entry, IndexEntry::hash);
        });
    }

    /// Adds a name that the dylib does not define. The caller holds the dylib's lock.
    pub(crate) fn insert_absent(&self, name: &str) {
        let entry = IndexEntry::new(Name::new(name), ReadySymbol::absent(), None);
        self.0.write(|table| _ = table.entries.insert_unique(hash(name.as_bytes()), entry, IndexEntry::hash));
    }

    /// Removes all absent names. The caller holds the dylib's lock.
    pub(crate) fn clear_absent(&self) {
        self.0.write(|table| table.entries.retain(|entry| !entry.symbol().is_absent()));
    }

    /// Removes symbols in batches, so that readers never wait for long. An entry of another symbol with the same name stays. The
    /// caller holds the dylib's lock.
    pub(crate) fn remove<'a>(&self, symbols: impl Iterator<Item = (&'a Name, SymbolId)>) {
        let mut symbols = symbols.peekable();
        while symbols.peek().is_some() {
            self.0.write(|table| {
                for (name, id) in symbols.by_ref().take(REMOVE_BATCH) {
                    remove(table, name, id);
                }
                let entries = &mut table.entries;
                // Releases memory after a peak.
                if let Some(smaller) = shrunk_capacity(entries.len(), entries.capacity()) {
                    entries.shrink_to(smaller, IndexEntry::hash);
                }
            });
        }
    }
}

/// The entries of an index during one read.
#[derive(Clone, Copy)]
pub(crate) struct ReadyEntries<'a>(&'a IndexTable);

impl<'a> ReadyEntries<'a> {
    /// The entry of a name, whose hash is `hash`.
    #[inline(always)] // a lookup of one name does little else
    pub(crate) fn find(self, name: &[u8], hash: NameHash) -> Option<(&'a Name, ReadySymbol)> {
        self.find_entry(name, hash).map(|entry| (entry.name(), entry.symbol()))
    }

    #[inline(always)]
    fn find_entry(self, name: &[u8], hash: NameHash) -> Option<&'a IndexEntry> {
        self.0.entries.find(hash.spread(), |entry| entry.is_named(name))
    }
}

fn remove(IndexTable { entries, pins }: &mut IndexTable, name: &str, id: SymbolId) {
    let is_entry = |entry: &IndexEntry| entry.symbol().id == id && entry.is_named(name.as_bytes());
    if let Ok(found) = entries.find_entry(hash(name.as_bytes()), is_entry) {
        let (entry, _) = found.remove();
        entry.pin.into_iter().for_each(|pin| pins.remove(pin));
    }
}

/// The most names that are removed in one write. Readers wait until the write ends.
const REMOVE_BATCH: usize = 128;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use slotmap::KeyData;

    #[test]
    fn a_name_is_found_from_its_insertion_to_its_removal() {
        let (index, name) = (ReadyIndex::new(), Name::new("often"));
        let find = || index.find("often", NameHash::of("often"), |_, symbol| symbol.address.value());
        let symbol =
            ReadySymbol { address: ExecutorAddr::new(8), flags: SymbolFlags::EXPORTED, id: SymbolId::default() };
        assert_eq!(find(), None);
        index.insert(name.clone(), symbol, None);
        assert_eq!(find(), Some(8));
        // Another definition of the name, which the index does not have.
        index.remove([(&name, KeyData::from_ffi(1).into())].into_iter());
        assert_eq!(find(), Some(8));
        index.remove([(&name, symbol.id)].into_iter());
        assert_eq!(find(), None);
    }
}
