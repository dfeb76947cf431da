//! [`Outline`]: the positions of an object's tables, so that its headers are checked once and not twice.
//!
//! An object is opened when its interface is read, and again when it is linked. The first time makes an outline. The
//! second time opens the object from it and skips the headers. An outline consists of offsets and holds no bytes. Each
//! offset is checked against the bytes when it is used.

use std::cell::Cell;

use object::pod::{Pod, slice_from_bytes};
use object::read::StringTable;
use object::read::elf::SectionTable;

use crate::arch::Arch;
use crate::link::elf::names::NameTable;
use crate::link::elf::{ElfObject, Symbols};

/// The positions of the tables of a usual object: its string tables are plain, its names need not be counted, and it
/// has no extended section indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    arch: Arch,
    sections: TableRange,
    symbols: TableRange,
    names: TableRange,
    section_names: TableRange,
}

/// A range of the object, which is smaller than 4 GiB.
#[derive(Debug, Clone, Copy)]
struct TableRange {
    /// Offset in bytes.
    start: u32,
    /// Number of elements: section headers, symbols or bytes.
    count: u32,
}

impl Outline {
    /// The outline of an object. `None` if the object is not a usual one.
    pub(super) fn of(object: &ElfObject<'_>) -> Option<Outline> {
        let plain = |names: &Option<NameTable<'_>>| {
            let names = names.as_ref().filter(|names| names.is_plain())?;
            Some(TableRange { start: names.start(), count: names.len() as u32 })
        };
        let is_usual = object.has_bounded_names && object.symbols.extended.is_empty();
        let (names, section_names) = (plain(&object.names)?, plain(&object.section_names)?);
        let sections = TableRange::of(object.sections.iter().as_slice(), object.bytes);
        let symbols = TableRange::of(object.symbols.all, object.bytes);
        is_usual.then_some(Outline { arch: object.arch, sections, symbols, names, section_names })
    }

    /// Opens the object without its headers. `None` if a table does not fit into `bytes`, which are then not the bytes
    /// that the outline was made from.
    pub(super) fn open<'a>(&self, name: &'a str, bytes: &'a [u8]) -> Option<ElfObject<'a>> {
        let (names, section_names) = (self.names.bytes(bytes)?, self.section_names.bytes(bytes)?);
        let symbols = self.symbols.items(bytes)?;
        Some(ElfObject {
            name,
            bytes,
            arch: self.arch,
            sections: SectionTable::new(self.sections.items(bytes)?, self.section_names.strings(bytes)),
            symbols: Symbols::new(symbols, &[], self.names.strings(bytes)),
            names: Some(NameTable::plain(names, self.names.start)),
            section_names: Some(NameTable::plain(section_names, self.section_names.start)),
            has_bounded_names: true,
            name_budget: Cell::new(0),
        })
    }
}

impl TableRange {
    /// The position of `items`, which are a part of `bytes`. If they are not, the range lies outside `bytes`.
    fn of<T>(items: &[T], bytes: &[u8]) -> TableRange {
        let start = (items.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
        TableRange { start: u32::try_from(start).unwrap_or(u32::MAX), count: items.len() as u32 }
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
    fn a_table_range_is_none_for_bytes_that_it_reaches_past() {
        let bytes: Vec<u8> = (0..100).collect();
        let table = TableRange::of(&bytes[20..30], &bytes);
        assert_eq!((table.bytes(&bytes), table.items(&bytes)), (Some(&bytes[20..30]), Some(&bytes[20..30])));
        for fewer in [&bytes[..29], &bytes[..20], &bytes[..5], &[]] {
            assert_eq!((table.bytes(fewer), table.items::<u8>(fewer)), (None, None));
        }
        let outside = TableRange::of(&bytes[..10], &bytes[20..]);
        assert_eq!((outside.bytes(&bytes), outside.items::<u8>(&bytes)), (None, None));
        let none = TableRange::of::<u8>(&[], &bytes);
        assert!(none.items::<u8>(&bytes).is_none_or(<[u8]>::is_empty));
    }
}
