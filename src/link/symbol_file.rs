//! `FixedLink::symbol_file`: an ELF file that describes a finished link to a debugger. It holds the object's own tables
//! with the addresses of the link.
//!
//! ```text
//!   the object                    the symbol file, section for section
//!   .text, .data, .bss …     ─►   header with its address, no bytes: a debugger reads those in the process
//!   .eh_frame                ─►   header with its address, and the bytes after fix-up
//!   .symtab, .strtab         ─►   the same; symbols of dropped sections are undefined, common symbols are absolute
//!   .debug_*, .rela.debug_*  ─►   the same: a debugger relocates them by the addresses in the headers; compact
//!                                 relocations become usual ones
//!   everything else          ─►   a null header, so that sections keep their numbers
//! ```
//!
//! The file is a relocatable file (`ET_REL`) whose sections have addresses, as the debuggers' JIT interface expects.
//! Without debug information it is a small part of the object. A relocation of debug information that refers to a
//! dropped section becomes zero, as with a static linker; in a list that zero would end, it becomes one.
//!
//! A graph that a generator built has no object; `symbol_file/built.rs` makes its file.
//!
//! Thread-local sections get a null header: debuggers find such variables only in libraries that the loader knows.

mod built;

use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable};

use crate::arch::Arch;
use crate::link::elf::{
    E_SHOFF, EHDR_SIZE, Header, HeaderFields, LE, SHDR_SIZE, SYMBOL_SIZE, SectionHeader, relocations_of,
    section_name_table, shn, sht, st,
};
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{BlockId, Role, SymbolIndex};

impl FixedLink<'_> {
    /// An ELF file for debuggers: the object's symbols and debug information, with the section addresses of this link.
    ///
    /// Without debug information, the file is a small part of the object. It refers to no memory: it may be kept,
    /// written to disk, or given to a debugger by other means than [`Debugger`]. Empty if the object's headers cannot
    /// be read, which the link would have refused.
    ///
    /// [`Debugger`]: crate::platform::Debugger
    pub fn symbol_file(&mut self) -> Vec<u8> {
        if self.graph().is_built { built::write(self) } else { write(self) }
    }
}

/// Writes the file; empty when the object's headers cannot be read, which the link would have refused.
fn write(link: &mut FixedLink<'_>) -> Vec<u8> {
    let object = link.graph().bytes.clone();
    let Ok(header) = Header::parse(&*object) else { return Vec::new() };
    let Ok(sections) = header.sections(LE, &*object) else { return Vec::new() };
    let names = section_name_table(header, &sections, &object);
    let from_name = |section: &SectionHeader| names.get(section.sh_name(LE) as usize..).unwrap_or(&[]);
    let headers: Vec<&SectionHeader> = sections.iter().collect();
    let copies = SectionCopy::of_all(link, &headers, from_name);
    let removed = removed_symbols(&object, &sections, &copies);
    let mut file = object.get(..EHDR_SIZE).unwrap_or(&[]).to_vec();
    let mut table: Vec<[u8; SHDR_SIZE]> = Vec::with_capacity(headers.len());
    for (section, copy) in headers.iter().zip(&copies) {
        let mut entry = HeaderFields::of(section);
        let bytes = match copy {
            SectionCopy::Nothing => {
                table.push([0; SHDR_SIZE]);
                continue;
            }
            // The first header holds the number of sections if the ELF header cannot.
            SectionCopy::First => Vec::new(),
            SectionCopy::Address(block) => {
                (entry.kind, entry.address) = (SHT_NOBITS, link.block_address(*block).value());
                Vec::new()
            }
            SectionCopy::Frames(block) => {
                (entry.kind, entry.address) = (SHT_PROGBITS, link.block_address(*block).value());
                link.bytes(*block).to_vec()
            }
            SectionCopy::Bytes => section.data(LE, &*object).unwrap_or(&[]).to_vec(),
            SectionCopy::Symbols => symbols(link, section.data(LE, &*object).unwrap_or(&[]), &removed),
            SectionCopy::Relocations { is_list } => {
                // Debuggers read no compact relocations.
                (entry.kind, entry.entry_size) = (SHT_RELA, RELA_SIZE as u64);
                let table = relocations_of(section, &object).unwrap_or_default();
                relocations(link.graph().arch, object::pod::bytes_of_slice(&table), &removed, *is_list)
            }
        };
        if *copy != SectionCopy::First {
            entry.flags &= !SHF_GROUP;
            file.resize(file.len().next_multiple_of(8), 0);
            entry.offset = file.len() as u64;
        }
        if !matches!(copy, SectionCopy::Address(_) | SectionCopy::First) {
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

/// What the file has of a section of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SectionCopy {
    /// A null header.
    Nothing,
    /// The header of section 0.
    First,
    /// A header with an address, no bytes.
    Address(BlockId),
    /// A header with an address, and the bytes after fix-up.
    Frames(BlockId),
    /// The bytes of the object.
    Bytes,
    /// The symbol table.
    Symbols,
    /// A relocation table of debug information; `is_list` if zero entries end lists in the section.
    Relocations { is_list: bool },
}

impl SectionCopy {
    /// `from_name` returns the string table from a section's name on. Nothing searches for the end of a name: many
    /// sections may share a long one.
    fn of_all<'a>(
        link: &FixedLink<'_>,
        headers: &[&SectionHeader],
        from_name: impl Fn(&SectionHeader) -> &'a [u8],
    ) -> Vec<SectionCopy> {
        let graph = link.graph();
        let mut remaining = graph.bytes.len() as u64;
        // Sections may overlap in a malformed file. The limit keeps the copy no larger than the object, except that a
        // compact relocation of one byte becomes one of 24.
        let mut within_limit = |copy, section: &SectionHeader| match remaining.checked_sub(section.sh_size(LE)) {
            Some(rest) => {
                remaining = rest;
                copy
            }
            None => SectionCopy::Nothing,
        };
        let copy_of = |(index, section): (usize, &&SectionHeader)| {
            let kind = section.sh_type(LE).0;
            if index == 0 {
                return SectionCopy::First;
            }
            if section.sh_flags(LE).0 & SHF_ALLOC != 0 {
                let Some(id) = graph.block_of.get(index).copied().flatten() else { return SectionCopy::Nothing };
                let block = &graph.blocks[id.index()];
                return match block.role {
                    _ if block.is_dropped => SectionCopy::Nothing,
                    Role::ThreadLocal => SectionCopy::Nothing,
                    Role::EhFrame => SectionCopy::Frames(id),
                    _ => SectionCopy::Address(id),
                };
            }
            match kind {
                SHT_SYMTAB => within_limit(SectionCopy::Symbols, section),
                SHT_STRTAB | SHT_SYMTAB_SHNDX => within_limit(SectionCopy::Bytes, section),
                SHT_RELA | sht::CREL => match headers.get(section.sh_info(LE) as usize) {
                    Some(target) if is_debug(from_name(target)) && target.sh_flags(LE).0 & SHF_ALLOC == 0 => {
                        let lists = [&b".debug_ranges\0"[..], b".debug_loc\0"];
                        let is_list = lists.iter().any(|list| from_name(target).starts_with(list));
                        within_limit(SectionCopy::Relocations { is_list }, section)
                    }
                    _ => SectionCopy::Nothing,
                },
                _ if is_debug(from_name(section)) => within_limit(SectionCopy::Bytes, section),
                _ => SectionCopy::Nothing,
            }
        };
        headers.iter().enumerate().map(copy_of).collect()
    }
}

fn is_debug(from_name: &[u8]) -> bool {
    from_name.starts_with(b".debug_") || from_name.starts_with(b".zdebug_")
}

/// By symbol: whether its section is not in the file.
fn removed_symbols(object: &[u8], sections: &SectionTable<'_, Header>, copies: &[SectionCopy]) -> Vec<bool> {
    let Ok(symbols) = sections.symbols(LE, object, object::elf::SHT_SYMTAB) else { return Vec::new() };
    let is_removed = |(index, symbol)| match symbols.symbol_section(LE, symbol, index) {
        Ok(Some(section)) => copies.get(section.0) == Some(&SectionCopy::Nothing),
        _ => false,
    };
    symbols.enumerate().map(is_removed).collect()
}

/// The symbol table, in which removed symbols are undefined and common symbols have the address of this link. A common
/// symbol that is thread-local has no one address and is undefined.
fn symbols(link: &FixedLink<'_>, table: &[u8], removed: &[bool]) -> Vec<u8> {
    let mut table = table.to_vec();
    for (index, symbol) in table.chunks_exact_mut(SYMBOL_SIZE).enumerate() {
        let is_common = symbol[6..8] == shn::COMMON.to_le_bytes();
        let (section, value) = match removed.get(index) {
            Some(true) => (shn::UNDEF, 0),
            _ if is_common && symbol[4] & 0xf == st::TYPE_TLS => (shn::UNDEF, 0),
            _ if is_common => (shn::ABS, link.symbol_address(SymbolIndex(index as u32)).value()),
            _ => continue,
        };
        if section == shn::UNDEF {
            symbol[4] &= 0xf0; // keeps the binding, clears the type
        }
        symbol[6..8].copy_from_slice(&section.to_le_bytes());
        symbol[8..16].copy_from_slice(&value.to_le_bytes());
    }
    table
}

/// A relocation table of debug information, in which relocations against removed symbols give zero, or one in lists.
fn relocations(arch: Arch, table: &[u8], removed: &[bool], is_list: bool) -> Vec<u8> {
    let mut table = table.to_vec();
    for relocation in table.chunks_exact_mut(RELA_SIZE) {
        let symbol = u32::from_le_bytes([relocation[12], relocation[13], relocation[14], relocation[15]]);
        if removed.get(symbol as usize) == Some(&true) {
            let (r_type, addend) = if is_list { (arch.absolute_relocation(), 1u64) } else { (arch.no_relocation(), 0) };
            relocation[8..16].copy_from_slice(&u64::from(r_type).to_le_bytes());
            relocation[16..24].copy_from_slice(&addend.to_le_bytes());
        }
    }
    table
}

// From the gABI.
const RELA_SIZE: usize = 24;
const SHF_ALLOC: u64 = 2;
const SHF_GROUP: u64 = 0x200;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHT_SYMTAB_SHNDX: u32 = 18;
