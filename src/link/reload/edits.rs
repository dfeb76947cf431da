//! [`Edits`]: changes of an object, and the bytes that result.
//!
//! The symbol table and its names are written again at the end of the file. Relocations keep their places, because an entry
//! has a fixed size. Sections keep their indices: a section that is not wanted gets the type of an unused one.

use std::collections::{BTreeMap, BTreeSet};

use crate::link::elf::{shf, sht, st};
use crate::link::reload::object_file::{ObjectFile, RELA_SIZE};

/// Changes of an object.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// The number of symbols that the object has.
    symbol_count: usize,
    undefined: BTreeSet<usize>,
    added: Vec<AddedSymbol>,
    /// The undefined symbols among `added`, by name.
    references: BTreeMap<String, usize>,
    /// By offset of the relocation in the object: symbol and addend.
    retargeted: BTreeMap<usize, (usize, i64)>,
    dropped: BTreeSet<usize>,
}

#[derive(Debug)]
struct AddedSymbol {
    name: String,
    /// `st_info`.
    info: u8,
    /// `None` for an undefined symbol.
    place: Option<NewPlace>,
}

/// Where a new symbol is.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewPlace {
    pub(super) section: usize,
    /// Offset in bytes in the section.
    pub(super) value: u64,
    /// Size in bytes.
    pub(super) size: u64,
}

impl Edits {
    pub(super) fn new(file: &ObjectFile<'_>) -> Edits {
        Edits { symbol_count: file.symbols.len(), ..Edits::default() }
    }

    /// Lets a global symbol be defined elsewhere.
    pub(super) fn undefine(&mut self, symbol: usize) {
        self.undefined.insert(symbol);
    }

    /// Adds a hidden definition. Returns its index.
    pub(super) fn define(&mut self, name: String, kind: u8, is_weak: bool, place: NewPlace) -> usize {
        let binding = if is_weak { st::BIND_WEAK } else { BIND_GLOBAL };
        self.added.push(AddedSymbol { name, info: binding << 4 | kind, place: Some(place) });
        self.symbol_count + self.added.len() - 1
    }

    /// The index of an undefined symbol of this name.
    pub(super) fn refer_to(&mut self, name: &str, kind: u8) -> usize {
        let (next, added) = (self.symbol_count + self.added.len(), &mut self.added);
        *self.references.entry(name.to_string()).or_insert_with(|| {
            added.push(AddedSymbol { name: name.to_string(), info: BIND_GLOBAL << 4 | kind, place: None });
            next
        })
    }

    /// Lets a relocation refer to another symbol. `at` is its offset in bytes in the object.
    pub(super) fn retarget(&mut self, at: usize, symbol: usize, addend: i64) {
        self.retargeted.insert(at, (symbol, addend));
    }

    /// Leaves a section out, with its relocations.
    pub(super) fn drop_section(&mut self, section: usize) {
        self.dropped.insert(section);
    }

    pub(super) fn is_dropped(&self, section: usize) -> bool {
        self.dropped.contains(&section)
    }

    /// The changed object.
    pub(super) fn apply(&self, file: &ObjectFile<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(file.bytes.len() * 5 / 4 + self.added.len() * 48);
        bytes.extend_from_slice(file.bytes);
        for (at, (symbol, addend)) in &self.retargeted {
            let entry = &mut bytes[*at..*at + RELA_SIZE];
            // `r_info` has the type in its low half and the symbol in its high half; `r_addend` follows.
            entry[12..16].copy_from_slice(&(*symbol as u32).to_le_bytes());
            entry[16..24].copy_from_slice(&addend.to_le_bytes());
        }
        self.edit_sections(file, &mut bytes);
        let mut names = file.sections[file.name_table].content.to_vec();
        let mut symbols = file.sections[file.symbol_table].content.to_vec();
        for symbol in &self.undefined {
            undefine(&mut symbols[symbol * SYMBOL_SIZE..][..SYMBOL_SIZE]);
        }
        for added in &self.added {
            symbols.extend_from_slice(&entry_of(added, names.len() as u32));
            names.extend_from_slice(added.name.as_bytes());
            names.push(0);
        }
        append(file, &mut bytes, file.symbol_table, &symbols);
        append(file, &mut bytes, file.name_table, &names);
        bytes
    }

    fn edit_sections(&self, file: &ObjectFile<'_>, bytes: &mut [u8]) {
        for (index, section) in file.sections.iter().enumerate() {
            let is_dropped =
                self.is_dropped(index) || section.relocated.is_some_and(|section| self.is_dropped(section));
            let header = header_of(file, bytes, index);
            if is_dropped || section.sh_type == sht::GROUP {
                header[SH_TYPE..SH_TYPE + 4].copy_from_slice(&0u32.to_le_bytes());
            }
            let unwanted = if is_dropped { shf::ALLOC | shf::GROUP } else { shf::GROUP };
            header[SH_FLAGS..SH_FLAGS + 8].copy_from_slice(&(section.flags & !unwanted).to_le_bytes());
        }
    }
}

/// Makes a symbol undefined and global, with the visibility of symbols of other objects.
fn undefine(entry: &mut [u8]) {
    let kind = match entry[ST_INFO] & 0xf {
        st::TYPE_TLS => st::TYPE_TLS,
        _ => st::TYPE_NOTYPE,
    };
    entry[ST_INFO] = BIND_GLOBAL << 4 | kind;
    entry[ST_OTHER..].fill(0);
}

fn entry_of(symbol: &AddedSymbol, name: u32) -> [u8; SYMBOL_SIZE] {
    let mut entry = [0; SYMBOL_SIZE];
    entry[..4].copy_from_slice(&name.to_le_bytes());
    entry[ST_INFO] = symbol.info;
    if let Some(NewPlace { section, value, size }) = symbol.place {
        entry[ST_OTHER] = st::VISIBILITY_HIDDEN;
        entry[6..8].copy_from_slice(&(section as u16).to_le_bytes());
        entry[8..16].copy_from_slice(&value.to_le_bytes());
        entry[16..24].copy_from_slice(&size.to_le_bytes());
    }
    entry
}

/// Puts new content of a section at the end of the object.
fn append(file: &ObjectFile<'_>, bytes: &mut Vec<u8>, section: usize, content: &[u8]) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let start = bytes.len() as u64;
    bytes.extend_from_slice(content);
    let header = header_of(file, bytes, section);
    header[SH_OFFSET..SH_OFFSET + 8].copy_from_slice(&start.to_le_bytes());
    header[SH_SIZE..SH_SIZE + 8].copy_from_slice(&(content.len() as u64).to_le_bytes());
}

fn header_of<'b>(file: &ObjectFile<'_>, bytes: &'b mut [u8], section: usize) -> &'b mut [u8] {
    &mut bytes[file.headers_at + section * HEADER_SIZE..][..HEADER_SIZE]
}

/// `STB_GLOBAL`.
const BIND_GLOBAL: u8 = 1;
/// Size in bytes of an ELF symbol and of a section header, and offsets of their fields (gABI).
const SYMBOL_SIZE: usize = 24;
const ST_INFO: usize = 4;
const ST_OTHER: usize = 5;
const HEADER_SIZE: usize = 64;
const SH_TYPE: usize = 4;
const SH_FLAGS: usize = 8;
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;
