//! [`Outline`]: where in an object its tables stand.
//!
//! An object is opened when its interface is read, and again when it is linked. What the first look has found out about its
//! headers goes with it in between, so that the second need not find it out again. It consists of offsets: whoever holds it
//! need not hold the bytes, and every one of them is checked against the bytes when it is used.

use std::cell::Cell;

use object::pod::{Pod, slice_from_bytes};
use object::read::StringTable;
use object::read::elf::SectionTable;

use crate::link::elf::names::Names;
use crate::link::elf::{ElfObject, Symbols};

/// Where the tables of an object stand: of one as nearly all are, whose names are plain, and few.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    sections: Table,
    symbols: Table,
    names: Table,
    section_names: Table,
}

/// A part of the object, which is smaller than 4 GiB.
#[derive(Debug, Clone, Copy)]
struct Table {
    start: u32,
    /// Of what it consists of: headers, symbols, bytes.
    count: u32,
}

impl Outline {
    /// That of an object, if it has one.
    pub(super) fn of(object: &ElfObject<'_>) -> Option<Outline> {
        let plain = |names: &Option<Names<'_>>| {
            let names = names.as_ref().filter(|names| names.is_plain())?;
            Some(Table { start: names.start(), count: names.len() as u32 })
        };
        let is_usual = object.has_few_names && object.symbols.extended.is_empty();
        let (names, section_names) = (plain(&object.names)?, plain(&object.section_names)?);
        let sections = Table::of(object.sections.iter().as_slice(), object.bytes);
        let symbols = Table::of(object.symbols.all, object.bytes);
        is_usual.then_some(Outline { sections, symbols, names, section_names })
    }

    /// The object, without another look at its headers; `None` when the bytes are not those that it was made of.
    pub(super) fn open<'a>(&self, name: &'a str, bytes: &'a [u8]) -> Option<ElfObject<'a>> {
        let (names, section_names) = (self.names.bytes(bytes)?, self.section_names.bytes(bytes)?);
        let symbols = self.symbols.items(bytes)?;
        Some(ElfObject {
            name,
            bytes,
            sections: SectionTable::new(self.sections.items(bytes)?, self.section_names.strings(bytes)),
            symbols: Symbols::new(symbols, &[], self.names.strings(bytes)),
            names: Some(Names::plain(names, self.names.start)),
            section_names: Some(Names::plain(section_names, self.section_names.start)),
            has_few_names: true,
            names_left: Cell::new(0),
        })
    }
}

impl Table {
    /// That of `items`, which are a part of the bytes; where they are not, it is outside, too.
    fn of<T>(items: &[T], bytes: &[u8]) -> Table {
        let start = (items.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
        Table { start: u32::try_from(start).unwrap_or(u32::MAX), count: items.len() as u32 }
    }

    fn items<'a, T: Pod>(&self, bytes: &'a [u8]) -> Option<&'a [T]> {
        let (items, _) = slice_from_bytes(bytes.get(self.start as usize..)?, self.count as usize).ok()?;
        Some(items)
    }

    fn bytes<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.start as usize..)?.get(..self.count as usize)
    }

    fn strings<'a>(&self, bytes: &'a [u8]) -> StringTable<'a> {
        let start = u64::from(self.start);
        StringTable::new(bytes, start, start + u64::from(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_again_and_is_none_of_bytes_that_it_reaches_past() {
        let bytes: Vec<u8> = (0..100).collect();
        let table = Table::of(&bytes[20..30], &bytes);
        assert_eq!((table.bytes(&bytes), table.items(&bytes)), (Some(&bytes[20..30]), Some(&bytes[20..30])));
        for fewer in [&bytes[..29], &bytes[..20], &bytes[..5], &[]] {
            assert_eq!((table.bytes(fewer), table.items::<u8>(fewer)), (None, None));
        }
        let outside = Table::of(&bytes[..10], &bytes[20..]);
        assert_eq!((outside.bytes(&bytes), outside.items::<u8>(&bytes)), (None, None));
        let none = Table::of::<u8>(&[], &bytes);
        assert!(none.items::<u8>(&bytes).is_none_or(<[u8]>::is_empty));
    }
}
