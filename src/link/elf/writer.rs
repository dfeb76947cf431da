//! [`RelocatableFile`]: a relocatable file while it is written.

use object::read::elf::SectionHeader as _;

use crate::link::elf::{LE, SectionHeader};

/// The contents of the sections, after room for the ELF header.
pub(in crate::link) struct RelocatableFile {
    bytes: Vec<u8>,
    sections: Vec<HeaderFields>,
    section_names: Vec<u8>,
}

impl RelocatableFile {
    pub(in crate::link) fn new() -> RelocatableFile {
        // The first header is a null header, the first name is empty.
        RelocatableFile { bytes: vec![0; EHDR_SIZE], sections: vec![HeaderFields::default()], section_names: vec![0] }
    }

    /// Adds a section. `name` ends with a zero byte. Returns its header.
    pub(in crate::link) fn add_section(
        &mut self,
        name: &[u8],
        kind: u32,
        flags: u64,
        content: &[u8],
    ) -> &mut HeaderFields {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let header = HeaderFields {
            name: self.section_names.len() as u32,
            kind,
            flags,
            offset: self.bytes.len() as u64,
            size: content.len() as u64,
            align: 1,
            ..HeaderFields::default()
        };
        self.section_names.extend(name);
        self.bytes.extend(content);
        let at = self.sections.len();
        self.sections.push(header);
        &mut self.sections[at]
    }

    /// Adds a table of symbols, of which the first `local_count` are local, and the table of their names.
    pub(in crate::link) fn add_symbols(&mut self, table: &[u8], local_count: usize, names: &[u8]) {
        let number = self.sections.len() as u32;
        let header = self.add_section(b".symtab\0", SHT_SYMTAB, 0, table);
        (header.link, header.info, header.entry_size) = (number + 1, local_count as u32, SYMBOL_SIZE as u64);
        self.add_section(b".strtab\0", SHT_STRTAB, 0, names);
    }

    /// Appends the names and headers of the sections, and writes the ELF header.
    pub(in crate::link) fn finish(mut self, machine: u16) -> Vec<u8> {
        self.section_names.extend(b".shstrtab\0");
        let names = std::mem::take(&mut self.section_names);
        self.section_names = vec![0; names.len() - b".shstrtab\0".len()];
        self.add_section(&[], SHT_STRTAB, 0, &names);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let RelocatableFile { mut bytes, sections, .. } = self;
        let table_at = bytes.len() as u64;
        sections.iter().for_each(|section| bytes.extend(section.bytes()));
        // 64-bit, little-endian, version 1, System V.
        bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        let count = sections.len() as u16;
        let halves =
            [(16, ET_REL), (18, machine), (52, EHDR_SIZE as u16), (58, SHDR_SIZE as u16), (60, count), (62, count - 1)];
        for (at, half) in halves {
            bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
        bytes[E_SHOFF..E_SHOFF + 8].copy_from_slice(&table_at.to_le_bytes());
        bytes
    }
}

/// A symbol as it is in the file (`Elf64_Sym`), in a section.
pub(in crate::link) struct SymbolFields {
    /// Offset in bytes of its name.
    pub(in crate::link) name: u32,
    /// `STB_*` and `STT_*`.
    pub(in crate::link) binding: u8,
    pub(in crate::link) kind: u8,
    pub(in crate::link) section: u16,
    pub(in crate::link) value: u64,
    pub(in crate::link) size: u64,
}

impl SymbolFields {
    pub(in crate::link) fn append_to(&self, table: &mut Vec<u8>) {
        table.extend(self.name.to_le_bytes());
        table.extend([self.binding << 4 | self.kind, 0]);
        table.extend(self.section.to_le_bytes());
        table.extend(self.value.to_le_bytes());
        table.extend(self.size.to_le_bytes());
    }
}

/// The fields of a section header.
#[derive(Default)]
pub(in crate::link) struct HeaderFields {
    pub(in crate::link) name: u32,
    pub(in crate::link) kind: u32,
    pub(in crate::link) flags: u64,
    pub(in crate::link) address: u64,
    pub(in crate::link) offset: u64,
    pub(in crate::link) size: u64,
    pub(in crate::link) link: u32,
    pub(in crate::link) info: u32,
    pub(in crate::link) align: u64,
    pub(in crate::link) entry_size: u64,
}

impl HeaderFields {
    /// A copy of a header of the object, without address and file offset.
    pub(in crate::link) fn of(section: &SectionHeader) -> HeaderFields {
        HeaderFields {
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

    /// The header as it is in the file (`Elf64_Shdr`).
    pub(in crate::link) fn bytes(&self) -> [u8; SHDR_SIZE] {
        let mut bytes = [0; SHDR_SIZE];
        let words_32 = [(0, self.name), (4, self.kind), (40, self.link), (44, self.info)];
        for (at, word) in words_32 {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let words_64 = [(8, self.flags), (16, self.address), (24, self.offset), (32, self.size)];
        for (at, word) in words_64.into_iter().chain([(48, self.align), (56, self.entry_size)]) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

// From the gABI.
pub(in crate::link) const EHDR_SIZE: usize = 64;
pub(in crate::link) const E_SHOFF: usize = 40;
pub(in crate::link) const SHDR_SIZE: usize = 64;
pub(in crate::link) const SYMBOL_SIZE: usize = 24;
const ET_REL: u16 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
