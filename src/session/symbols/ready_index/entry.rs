//! [`Entry`]: a name and what is known of it, in one line of memory.
//!
//! Where many names are looked up, no cache holds all of them, and what a lookup takes is the lines that it waits for. A
//! name's text is somewhere else, known only once the entry is there: to compare it would be to wait twice. So the end of
//! the name stands here, for most names all of it; of a longer one, the front is compared in the text. The end, not the
//! front: it is what tells mangled and numbered names apart.

use super::ReadySymbol;
use crate::base::{ExecutorAddr, Name};
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolFlags, SymbolId};

/// Never across two lines.
#[repr(align(64))]
pub(super) struct Entry {
    name: Name,
    address: ExecutorAddr,
    id: SymbolId,
    flags: SymbolFlags,
    /// The last bytes of the name, or the name and zeroes.
    tail: [u8; TAIL],
}

impl Entry {
    pub(super) fn new(name: Name, symbol: ReadySymbol) -> Entry {
        let ReadySymbol { address, flags, id } = symbol;
        let (_, end) = split(name.as_bytes());
        let mut tail = [0; TAIL];
        tail[..end.len()].copy_from_slice(end);
        Entry { name, address, id, flags, tail }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn symbol(&self) -> ReadySymbol {
        ReadySymbol { address: self.address, flags: self.flags, id: self.id }
    }

    /// Whether this is the entry of a name, byte by byte.
    #[inline]
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let (own, (front, tail)) = (self.name.borrowed(), split(name));
        own.len() == name.len()
            && self.tail.starts_with(tail)
            && (front.is_empty() || own.as_bytes().starts_with(front))
    }

    /// [`hash`] of the name; of a short one, without its text.
    pub(super) fn hash(&self) -> u64 {
        let name = self.name.borrowed();
        hash(self.tail.get(..name.len()).unwrap_or(name.as_bytes()))
    }
}

/// By which a table of entries is searched.
#[inline]
pub(super) fn hash(name: &[u8]) -> u64 {
    NameHash::of_bytes(name).spread()
}

/// A name's front, and its last bytes.
#[inline]
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    name.split_at(name.len().saturating_sub(TAIL))
}

/// What the line has room for.
const TAIL: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        let symbol =
            ReadySymbol { address: ExecutorAddr::new(1), flags: SymbolFlags::EXPORTED, id: SymbolId::default() };
        Entry::new(Name::new(name), symbol)
    }

    #[test]
    fn an_entry_is_one_line_of_memory() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (64, 64));
    }

    #[test]
    fn a_name_is_found_by_all_of_its_bytes_wherever_one_differs() {
        for length in 0..3 * TAIL {
            let name = "a".repeat(length);
            let entry = entry(&name);
            assert!(entry.is_named(name.as_bytes()) && entry.hash() == hash(name.as_bytes()));
            for place in 0..length {
                let mut other = name.clone().into_bytes();
                other[place] = b'b';
                assert!(!entry.is_named(&other), "{length}, at {place}");
            }
        }
    }

    #[test]
    fn names_of_other_lengths_are_others_with_null_bytes_too() {
        let names: Vec<String> = (0..3 * TAIL).map(|length| "\0".repeat(length)).collect();
        for name in &names {
            let entry = entry(name);
            let named: Vec<&String> = names.iter().filter(|other| entry.is_named(other.as_bytes())).collect();
            assert_eq!(named, [name]);
        }
    }

    #[test]
    fn a_part_of_a_shared_text_is_compared_within_its_bounds() {
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
