//! The file that tells a debugger of a finished link: the object's own tables, with the addresses that it got.
//!
//! ```text
//!   the object                    the symbol file, section for section
//!   .text, .data, .bss …     ─►   header with its address, no bytes: a debugger reads those in the process
//!   .eh_frame                ─►   header with its address, and the bytes as they were fixed up
//!   .symtab, .strtab         ─►   the same; what was dropped is undefined, common symbols are absolute
//!   .debug_*, .rela.debug_*  ─►   the same: a debugger relocates them by the addresses in the headers
//!   everything else          ─►   a null header, so that sections keep their numbers
//! ```
//!
//! It is still a relocatable file; that its sections have addresses already is what the debugger's JIT interface wants.
//! Without debug information it is a small part of the object. What refers to code that was dropped is made to say zero,
//! as a system's linker does, or one for lists that a zero would end.
//!
//! Thread-local sections are left out: debuggers find such variables only in libraries that the loader knows.

use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable};

use crate::link::elf::{Header, LE, SectionHeader, shn};
use crate::link::graph::{BlockId, Role, SymbolIndex};
use crate::link::pipeline::FixedLink;

/// Writes the file; empty when the object's headers cannot be read, which the link would have refused.
pub(super) fn write(link: &mut FixedLink<'_>) -> Vec<u8> {
    let object = link.graph().bytes.clone();
    let Ok(header) = Header::parse(&*object) else { return Vec::new() };
    let Ok(sections) = header.sections(LE, &*object) else { return Vec::new() };
    let names = |section: &SectionHeader| sections.section_name(LE, section).unwrap_or(&[]);
    let headers: Vec<&SectionHeader> = sections.iter().collect();
    let kinds = Kept::of_all(link, &headers, names);
    let gone = gone(&object, &sections, &kinds);
    let mut file = object.get(..EHDR_SIZE).unwrap_or(&[]).to_vec();
    let mut table: Vec<[u8; SHDR_SIZE]> = Vec::with_capacity(headers.len());
    for (section, kept) in headers.iter().zip(&kinds) {
        let mut entry = Entry::of(section);
        let bytes = match kept {
            Kept::Nothing => {
                table.push([0; SHDR_SIZE]);
                continue;
            }
            // The first header may say how many there are.
            Kept::First => Vec::new(),
            Kept::Address(block) => {
                (entry.kind, entry.address) = (SHT_NOBITS, link.block_address(*block).value());
                Vec::new()
            }
            Kept::Frames(block) => {
                (entry.kind, entry.address) = (SHT_PROGBITS, link.block_address(*block).value());
                link.bytes(*block).to_vec()
            }
            Kept::Bytes => section.data(LE, &*object).unwrap_or(&[]).to_vec(),
            Kept::Symbols => symbols(link, section.data(LE, &*object).unwrap_or(&[]), &gone),
            Kept::Relocations { of_list } => relocations(section.data(LE, &*object).unwrap_or(&[]), &gone, *of_list),
        };
        if *kept != Kept::First {
            entry.flags &= !SHF_GROUP;
            file.resize(file.len().next_multiple_of(8), 0);
            entry.offset = file.len() as u64;
        }
        if !matches!(kept, Kept::Address(_) | Kept::First) {
            entry.size = bytes.len() as u64;
        }
        file.extend(bytes);
        table.push(entry.bytes());
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let table_at = file.len() as u64;
    if let Some(field) = file.get_mut(E_SHOFF..E_SHOFF + 8) {
        field.copy_from_slice(&table_at.to_le_bytes());
    }
    table.iter().for_each(|entry| file.extend(entry));
    file
}

/// What of a section goes into the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    First,
    Address(BlockId),
    Frames(BlockId),
    Bytes,
    Symbols,
    /// Of debug information; whether of a kind in which two zeroes end a list.
    Relocations {
        of_list: bool,
    },
}

impl Kept {
    fn of_all<'a>(
        link: &FixedLink<'_>,
        headers: &[&SectionHeader],
        name: impl Fn(&SectionHeader) -> &'a [u8],
    ) -> Vec<Kept> {
        let mut blocks = link.graph().blocks();
        let mut left = link.graph().bytes.len() as u64;
        // Sections that lie on each other in the file could ask for any amount of it.
        let mut while_left = |kept, section: &SectionHeader| match left.checked_sub(section.sh_size(LE)) {
            Some(rest) => {
                left = rest;
                kept
            }
            None => Kept::Nothing,
        };
        let kept = |(index, section): (usize, &&SectionHeader)| {
            let kind = section.sh_type(LE).0;
            if index == 0 {
                return Kept::First;
            }
            if section.sh_flags(LE).0 & SHF_ALLOC != 0 {
                // Blocks stand in the order of the sections that are in memory (`elf/read.rs`).
                let is_read = !matches!(kind, SHT_NOTE | SHT_RELA | SHT_REL | SHT_GROUP);
                return match is_read.then(|| blocks.next()).flatten() {
                    Some((_, block)) if block.is_dropped || block.role == Role::TlsIndex => Kept::Nothing,
                    Some((id, block)) if block.role == Role::EhFrame => Kept::Frames(id),
                    Some((id, _)) => Kept::Address(id),
                    None => Kept::Nothing,
                };
            }
            match kind {
                SHT_SYMTAB => while_left(Kept::Symbols, section),
                SHT_STRTAB | SHT_SYMTAB_SHNDX => while_left(Kept::Bytes, section),
                SHT_RELA => match headers.get(section.sh_info(LE) as usize) {
                    Some(target) if is_debug(name(target)) && target.sh_flags(LE).0 & SHF_ALLOC == 0 => {
                        let of_list = [&b".debug_ranges"[..], b".debug_loc"].contains(&name(target));
                        while_left(Kept::Relocations { of_list }, section)
                    }
                    _ => Kept::Nothing,
                },
                _ if is_debug(name(section)) => while_left(Kept::Bytes, section),
                _ => Kept::Nothing,
            }
        };
        headers.iter().enumerate().map(kept).collect()
    }
}

fn is_debug(name: &[u8]) -> bool {
    name.starts_with(b".debug_") || name.starts_with(b".zdebug_")
}

/// By number: whether a symbol stands for nothing in the file, because its section is not there.
fn gone(object: &[u8], sections: &SectionTable<'_, Header>, kinds: &[Kept]) -> Vec<bool> {
    let Ok(symbols) = sections.symbols(LE, object, object::elf::SHT_SYMTAB) else { return Vec::new() };
    let is_gone = |(index, symbol)| match symbols.symbol_section(LE, symbol, index) {
        Ok(Some(section)) => kinds.get(section.0) == Some(&Kept::Nothing),
        _ => false,
    };
    symbols.enumerate().map(is_gone).collect()
}

/// The symbol table, without what is not there any more.
fn symbols(link: &FixedLink<'_>, table: &[u8], gone: &[bool]) -> Vec<u8> {
    let mut table = table.to_vec();
    for (index, symbol) in table.chunks_exact_mut(SYMBOL_SIZE).enumerate() {
        let is_common = symbol[6..8] == shn::COMMON.to_le_bytes();
        let (section, value) = match gone.get(index) {
            Some(true) => (shn::UNDEF, 0),
            _ if is_common => (shn::ABS, link.symbol_address(SymbolIndex(index as u32)).value()),
            _ => continue,
        };
        if section == shn::UNDEF {
            symbol[4] &= 0xf0; // of no type, of the binding that it had
        }
        symbol[6..8].copy_from_slice(&section.to_le_bytes());
        symbol[8..16].copy_from_slice(&value.to_le_bytes());
    }
    table
}

/// Relocations of debug information, in which those against what was dropped say zero or one.
fn relocations(table: &[u8], gone: &[bool], of_list: bool) -> Vec<u8> {
    let mut table = table.to_vec();
    for relocation in table.chunks_exact_mut(RELA_SIZE) {
        let symbol = u32::from_le_bytes([relocation[12], relocation[13], relocation[14], relocation[15]]);
        if gone.get(symbol as usize) == Some(&true) {
            let (r_type, addend) = if of_list { (R_X86_64_64, 1u64) } else { (R_X86_64_NONE, 0) };
            relocation[8..16].copy_from_slice(&r_type.to_le_bytes());
            relocation[16..24].copy_from_slice(&addend.to_le_bytes());
        }
    }
    table
}

/// A section header.
struct Entry {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
}

impl Entry {
    fn of(section: &SectionHeader) -> Entry {
        Entry {
            name: section.sh_name(LE),
            kind: section.sh_type(LE).0,
            flags: section.sh_flags(LE).0,
            address: 0,
            offset: 0,
            size: section.sh_size(LE),
            link: section.sh_link(LE),
            info: section.sh_info(LE),
            align: section.sh_addralign(LE),
            entry_size: section.sh_entsize(LE),
        }
    }

    fn bytes(&self) -> [u8; SHDR_SIZE] {
        let mut bytes = [0; SHDR_SIZE];
        let halves = [(0, self.name), (4, self.kind), (40, self.link), (44, self.info)];
        for (at, word) in halves {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let words = [(8, self.flags), (16, self.address), (24, self.offset), (32, self.size)];
        for (at, word) in words.into_iter().chain([(48, self.align), (56, self.entry_size)]) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

// Of the gABI.
const EHDR_SIZE: usize = 64;
const E_SHOFF: usize = 40;
const SHDR_SIZE: usize = 64;
const SYMBOL_SIZE: usize = 24;
const RELA_SIZE: usize = 24;
const SHF_ALLOC: u64 = 2;
const SHF_GROUP: u64 = 0x200;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_REL: u32 = 9;
const SHT_GROUP: u32 = 17;
const SHT_SYMTAB_SHNDX: u32 = 18;
const R_X86_64_NONE: u64 = 0;
const R_X86_64_64: u64 = 1;
