//! [`IndexEntry`]: a name and its symbol in one cache line.
//!
//! With many names, no cache holds all entries, and the cost of a lookup is its cache misses. The text of a name is in
//! another line, and its address is known only when the entry is loaded, so a comparison of texts costs a second miss.
//! The entry therefore has the last bytes of the name, which is the full name in most cases. For a longer name, the
//! comparison reads the front from the text. The entry has the end and not the front, because mangled and numbered
//! names mostly differ at the end.

use slotmap::Key;

use crate::base::{ExecutorAddr, Name};
use crate::session::symbols::ready_index::index_pins::PinNumber;
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolFlags, SymbolId};

/// The result of a lookup of a ready symbol.
#[derive(Clone, Copy)]
pub(crate) struct ReadySymbol {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    pub(crate) id: SymbolId,
}

impl ReadySymbol {
    /// The entry of a name that the dylib does not define.
    pub(in crate::session::symbols) fn absent() -> ReadySymbol {
        ReadySymbol { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, id: SymbolId::null() }
    }

    /// Whether the dylib does not define the name.
    pub(crate) fn is_absent(self) -> bool {
        self.id.is_null()
    }
}

/// Aligned, so that it never spans two cache lines.
#[repr(align(64))]
pub(super) struct IndexEntry {
    name: Name,
    address: ExecutorAddr,
    id: SymbolId,
    /// The number of the pins that owned handles share, if there are some.
    pub(super) pin: Option<PinNumber>,
    flags: SymbolFlags,
    /// The last bytes of the name. A shorter name is padded with zeroes.
    tail: [u8; TAIL],
}

impl IndexEntry {
    pub(super) fn new(name: Name, symbol: ReadySymbol, pin: Option<PinNumber>) -> IndexEntry {
        let ReadySymbol { address, flags, id } = symbol;
        let (_, end) = split(name.as_bytes());
        let mut tail = [0; TAIL];
        tail[..end.len()].copy_from_slice(end);
        IndexEntry { name, address, id, pin, flags, tail }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn symbol(&self) -> ReadySymbol {
        ReadySymbol { address: self.address, flags: self.flags, id: self.id }
    }

    /// Whether this is the entry of `name`. All bytes are compared.
    #[inline]
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let (own, (front, tail)) = (self.name.borrowed(), split(name));
        own.len() == name.len()
            && self.tail.starts_with(tail)
            && (front.is_empty() || own.as_bytes().starts_with(front))
    }

    /// The [`hash`] of the name. A short name is read from the entry, not from its text.
    pub(super) fn hash(&self) -> u64 {
        let name = self.name.borrowed();
        hash(self.tail.get(..name.len()).unwrap_or(name.as_bytes()))
    }
}

/// The hash by which the index is searched.
#[inline]
pub(super) fn hash(name: &[u8]) -> u64 {
    NameHash::of_bytes(name).spread()
}

/// The front of a name, and its last [`TAIL`] bytes.
#[inline]
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    name.split_at(name.len().saturating_sub(TAIL))
}

/// The bytes that are left in the cache line.
const TAIL: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> IndexEntry {
        let symbol =
            ReadySymbol { address: ExecutorAddr::new(1), flags: SymbolFlags::EXPORTED, id: SymbolId::default() };
        IndexEntry::new(Name::new(name), symbol, None)
    }

    #[test]
    fn an_entry_is_one_cache_line() {
        assert_eq!((size_of::<IndexEntry>(), align_of::<IndexEntry>()), (64, 64));
    }

    #[test]
    fn a_name_that_differs_in_any_byte_is_not_found() {
        for length in 0..3 * TAIL {
            let name = "a".repeat(length);
            let entry = entry(&name);
            assert!(entry.is_named(name.as_bytes()) && entry.hash() == hash(name.as_bytes()));
            for position in 0..length {
                let mut other = name.clone().into_bytes();
                other[position] = b'b';
                assert!(!entry.is_named(&other), "{length}, at {position}");
            }
        }
    }

    #[test]
    fn names_of_null_bytes_differ_by_length() {
        let names: Vec<String> = (0..3 * TAIL).map(|length| "\0".repeat(length)).collect();
        for name in &names {
            let entry = entry(name);
            let named: Vec<&String> = names.iter().filter(|other| entry.is_named(other.as_bytes())).collect();
            assert_eq!(named, [name]);
        }
    }

    #[test]
    fn a_name_inside_a_shared_text_is_compared_within_its_bounds() {
        let texts =
            ["a name that is longer than its line has room for", "short", "", "schön, und länger als die Zeile"];
        for name in Name::all_of(texts.into_iter()) {
            let entry = entry(&name);
            let named = texts.iter().filter(|other| entry.is_named(other.as_bytes())).count();
            assert!(entry.is_named(name.as_bytes()) && named == 1);
            assert_eq!((entry.hash(), entry.name().as_str()), (hash(name.as_bytes()), name.as_str()));
        }
    }
}
