//! [`ReadyIndex`]: the names of one dylib that are looked up again and again, for readers that take no lock of the dylib.
//!
//! A copy of a few entries of the symbol table. What is in it is right: entries come in and go out under the dylib's
//! lock, and go before the symbol does. What is not in it may still be in the table. So a hit answers a lookup, and a miss
//! sends it to the table.
//!
//! A symbol comes in at its second lookup as a ready one. Code that is linked, looked up once and removed never does, and
//! costs nothing here.
//!
//! A name that lookups pass the dylib by with again and again, since others behind it define it, comes in as *absent*; they
//! need not lock the dylib then to hear that once more. It goes when the name is defined, and when the dylib gets a generator
//! or is closed.

use hashbrown::HashTable;
use slotmap::Key;

use crate::base::{ExecutorAddr, Name, capacity_to_keep};
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolFlags, SymbolId};
use crate::sync::ReadMostly;

mod entry;

use entry::{Entry, hash};

/// By the names in the entries.
pub(crate) struct ReadyIndex(ReadMostly<HashTable<Entry>>);

/// What a lookup says of a ready symbol.
#[derive(Clone, Copy)]
pub(crate) struct ReadySymbol {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    pub(crate) id: SymbolId,
}

impl ReadySymbol {
    /// Of a name that the dylib does not define.
    fn absent() -> ReadySymbol {
        ReadySymbol { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, id: SymbolId::null() }
    }

    /// Whether the dylib does not define the name.
    pub(crate) fn is_absent(self) -> bool {
        self.id.is_null()
    }
}

/// How often a ready symbol was looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexState {
    Never,
    Once,
    /// More often: it is in the index.
    Indexed,
}

impl ReadyIndex {
    pub(crate) fn new() -> ReadyIndex {
        ReadyIndex(ReadMostly::new())
    }

    /// What is known of a name, passed to `take` where it stands.
    pub(crate) fn find<R>(&self, name: &str, hash: NameHash, take: impl FnOnce(&Name, ReadySymbol) -> R) -> Option<R> {
        self.read(|known| known.find(name.as_bytes(), hash).map(|(name, symbol)| take(name, symbol))).flatten()
    }

    /// Has `look` look for several names at once. `None`, and nothing looked for, while there are none here.
    #[inline]
    pub(crate) fn read<R>(&self, look: impl FnOnce(Known<'_>) -> R) -> Option<R> {
        self.0.read(|entries| look(Known(entries)))
    }

    /// Puts a ready symbol in. Only under the dylib's lock.
    pub(crate) fn insert(&self, name: Name, symbol: ReadySymbol) {
        let (hash, entry) = (hash(name.as_bytes()), Entry::new(name, symbol));
        self.0.write(|entries| {
            debug_assert!(Known(entries).find(entry.name().as_bytes(), NameHash::of(entry.name())).is_none());
            entries.insert_unique(hash, entry, Entry::hash);
        });
    }

    /// Puts a name in that the dylib does not define. Only under its lock.
    pub(crate) fn insert_absent(&self, name: &str) {
        let entry = Entry::new(Name::new(name), ReadySymbol::absent());
        self.0.write(|entries| _ = entries.insert_unique(hash(name.as_bytes()), entry, Entry::hash));
    }

    /// Takes all absent names out. Only under the dylib's lock.
    pub(crate) fn forget_absents(&self) {
        self.0.write(|entries| entries.retain(|entry| !entry.symbol().is_absent()));
    }

    /// Takes names out, a few at a time, so that readers are never kept waiting for long. Only under the dylib's lock.
    pub(crate) fn remove<'a>(&self, names: impl Iterator<Item = &'a Name>) {
        let mut names = names.peekable();
        while names.peek().is_some() {
            self.0.write(|entries| {
                for name in names.by_ref().take(AT_A_TIME) {
                    remove(entries, name);
                }
                // An index that was large once gives its memory back.
                if let Some(kept) = capacity_to_keep(entries.len(), entries.capacity()) {
                    entries.shrink_to(kept, Entry::hash);
                }
            });
        }
    }
}

/// What is in an index, for the time of a look.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a>(&'a HashTable<Entry>);

impl<'a> Known<'a> {
    /// What is known of a name of this hash.
    #[inline(always)] // into a lookup of one name, which has little else to do
    pub(crate) fn find(self, name: &[u8], hash: NameHash) -> Option<(&'a Name, ReadySymbol)> {
        self.0.find(hash.spread(), |entry| entry.is_named(name)).map(|entry| (entry.name(), entry.symbol()))
    }
}

fn remove(entries: &mut HashTable<Entry>, name: &str) {
    if let Ok(found) = entries.find_entry(hash(name.as_bytes()), |entry| entry.is_named(name.as_bytes())) {
        found.remove();
    }
}

/// About 10 µs of work.
const AT_A_TIME: usize = 128;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_the_index_from_when_it_is_put_in_until_it_is_taken_out() {
        let (index, name) = (ReadyIndex::new(), Name::new("often"));
        let find = || index.find("often", NameHash::of("often"), |_, symbol| symbol.address.value());
        let symbol =
            ReadySymbol { address: ExecutorAddr::new(8), flags: SymbolFlags::EXPORTED, id: SymbolId::default() };
        assert_eq!(find(), None);
        index.insert(name.clone(), symbol);
        assert_eq!(find(), Some(8));
        index.remove([&name].into_iter());
        assert_eq!(find(), None);
    }
}
