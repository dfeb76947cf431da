//! Compact relocations (`SHT_CREL`, a proposal of LLVM for the gABI): a table in which each entry is the difference to the
//! one before it, in LEB128 numbers.
//!
//! The table is decoded into entries of the usual form (`Elf64_Rela`), so that everything after it is the same. The link
//! decodes piece by piece ([`CompactTable::next_piece`]) and keeps no decoded entries. Debug information is read as a
//! whole ([`relocations_of`]).

use std::borrow::Cow;

use object::read::elf::{Crel, CrelIterator, SectionHeader as _};
use object::{I64, U64};

use crate::link::elf::{LE, Rela, SectionHeader, sht};

/// A table of compact relocations that is being read.
pub(super) struct CompactTable<'a> {
    entries: CrelIterator<'a>,
    piece: [Rela; PIECE],
}

impl<'a> CompactTable<'a> {
    /// The table of a section. `None` for a section of another type.
    ///
    /// # Errors
    /// The text of what is wrong with its header, or with its place in the file.
    pub(super) fn open(section: &SectionHeader, bytes: &'a [u8]) -> Result<Option<CompactTable<'a>>, String> {
        let table = section.crel(LE, bytes).map_err(|error| error.to_string())?;
        Ok(table.map(|(entries, _)| CompactTable { entries, piece: [rela(Crel::default()); PIECE] }))
    }

    /// Whether its entries have addends. Without them, the fields of the section do.
    pub(super) fn has_addends(&self) -> bool {
        self.entries.is_rela()
    }

    /// The number of entries that are left, as the table states it. It may have fewer.
    pub(super) fn remaining(&self) -> usize {
        self.entries.len()
    }

    /// Decodes the next entries. Empty at the end.
    ///
    /// # Errors
    /// The text of what is wrong with an entry: the table ends too early, or a number has too many bytes.
    pub(super) fn next_piece(&mut self) -> Result<&[Rela], String> {
        let mut count = 0;
        for (place, entry) in self.piece.iter_mut().zip(&mut self.entries) {
            *place = rela(entry.map_err(|error| error.to_string())?);
            count += 1;
        }
        Ok(&self.piece[..count])
    }
}

/// The relocations of a table, compact or with addends (`SHT_RELA`). `None` for other sections, and for a table that cannot
/// be read.
pub(crate) fn relocations_of<'a>(section: &SectionHeader, bytes: &'a [u8]) -> Option<Cow<'a, [Rela]>> {
    if section.sh_type(LE).0 != sht::CREL {
        let (relocations, _) = section.rela(LE, bytes).ok()??;
        return Some(Cow::Borrowed(relocations));
    }
    let mut table = CompactTable::open(section, bytes).ok()?.filter(CompactTable::has_addends)?;
    let mut relocations = Vec::new();
    loop {
        match table.next_piece().ok()? {
            [] => return Some(Cow::Owned(relocations)),
            piece => relocations.extend_from_slice(piece),
        }
    }
}

fn rela(entry: Crel) -> Rela {
    Rela {
        r_offset: U64::new(LE, entry.r_offset),
        r_info: U64::new(LE, u64::from(entry.r_sym) << 32 | u64::from(entry.r_type.0)),
        r_addend: I64::new(LE, entry.r_addend),
    }
}

/// Number of entries that are decoded at a time.
const PIECE: usize = 64;
