//! The symbol file of a graph without an object: a section for each segment, and one for each unwind table.
//!
//! A segment is one section, however many blocks it holds, so the number of blocks has no limit that the format sets.

use super::{
    E_SHOFF, EHDR_SIZE, HeaderFields, SHF_ALLOC, SHT_NOBITS, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, SYMBOL_SIZE,
};
use crate::base::SegmentKind;
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{Block, BlockId, Definition, GraphSymbol, LinkGraph, Role, SymbolIndex};

/// Writes the file of a built graph.
pub(super) fn write(link: &mut FixedLink<'_>) -> Vec<u8> {
    let mut file = SymbolFile::new();
    for pool in SegmentKind::ALL {
        file.add_segment(link, pool);
    }
    let is_table = |(_, block): &(BlockId, &Block)| block.role == Role::EhFrame && !block.is_dropped;
    let tables: Vec<BlockId> = link.graph().blocks().filter(is_table).map(|(id, _)| id).collect();
    for table in tables {
        let address = link.block_address(table).value();
        let content = link.bytes(table).to_vec();
        file.add_section(b".eh_frame\0", SHT_PROGBITS, SHF_ALLOC, address, &content);
    }
    file.add_symbols(link.graph());
    file.finish(link.graph().arch.e_machine())
}

/// The file while it grows: the contents of its sections after the ELF header.
struct SymbolFile {
    bytes: Vec<u8>,
    sections: Vec<HeaderFields>,
    section_names: Vec<u8>,
}

impl SymbolFile {
    fn new() -> SymbolFile {
        // The first header is a null header, the first name is empty.
        SymbolFile { bytes: vec![0; EHDR_SIZE], sections: vec![HeaderFields::default()], section_names: vec![0] }
    }

    /// Adds the section of a segment: its address and size, no bytes. Its number is one more than the segment's.
    fn add_segment(&mut self, link: &FixedLink<'_>, pool: SegmentKind) {
        let (name, flags): (&[u8], u64) = match pool {
            SegmentKind::Code => (b".text\0", SHF_ALLOC | SHF_EXECINSTR),
            SegmentKind::ReadOnly => (b".rodata\0", SHF_ALLOC),
            SegmentKind::Data => (b".data\0", SHF_ALLOC | SHF_WRITE),
        };
        let blocks = link.graph().blocks().filter(|(_, block)| block.pool == pool && is_in_segment(block));
        let size = blocks.map(|(_, block)| block.offset + block.size).max().unwrap_or(0);
        let address = link.resolved.addresses.segments[pool.index()].value();
        self.add_section(name, SHT_NOBITS, flags, address, &[]);
        if let Some(section) = self.sections.last_mut() {
            section.size = size;
        }
    }

    fn add_section(&mut self, name: &[u8], kind: u32, flags: u64, address: u64, content: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.sections.push(HeaderFields {
            name: self.section_names.len() as u32,
            kind,
            flags,
            address,
            offset: self.bytes.len() as u64,
            size: content.len() as u64,
            align: 1,
            ..HeaderFields::default()
        });
        self.section_names.extend(name);
        self.bytes.extend(content);
    }

    /// Adds the symbol table: local symbols first, as the gABI requires, and the table of their names.
    fn add_symbols(&mut self, graph: &LinkGraph) {
        let (mut table, mut names) = (vec![0; SYMBOL_SIZE], vec![0]);
        let mut add_all = |is_local: bool| {
            for (index, symbol) in graph.symbols().filter(|(_, symbol)| symbol.is_local() == is_local) {
                add_symbol(graph, index, symbol, &mut table, &mut names);
            }
            table.len() / SYMBOL_SIZE
        };
        let first_global = add_all(true);
        add_all(false);
        let number = self.sections.len() as u32;
        self.add_section(b".symtab\0", SHT_SYMTAB, 0, 0, &table);
        if let Some(section) = self.sections.last_mut() {
            (section.link, section.info, section.entry_size) = (number + 1, first_global as u32, SYMBOL_SIZE as u64);
        }
        self.add_section(b".strtab\0", SHT_STRTAB, 0, 0, &names);
    }

    /// Appends the names and headers of the sections, and writes the ELF header.
    fn finish(mut self, machine: u16) -> Vec<u8> {
        self.section_names.extend(b".shstrtab\0");
        let names = std::mem::take(&mut self.section_names);
        self.section_names = vec![0; names.len() - b".shstrtab\0".len()];
        self.add_section(&[], SHT_STRTAB, 0, 0, &names);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let SymbolFile { mut bytes, sections, .. } = self;
        let table_at = bytes.len() as u64;
        sections.iter().for_each(|section| bytes.extend(section.bytes()));
        // 64-bit, little-endian, version 1, System V.
        bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        let count = sections.len() as u16;
        let halves = [
            (16, ET_REL),
            (18, machine),
            (52, EHDR_SIZE as u16),
            (58, super::SHDR_SIZE as u16),
            (60, count),
            (62, count - 1),
        ];
        for (at, half) in halves {
            bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
        bytes[E_SHOFF..E_SHOFF + 8].copy_from_slice(&table_at.to_le_bytes());
        bytes
    }
}

/// Appends a symbol (`Elf64_Sym`) and its name, if it has a name and an address in a segment.
fn add_symbol(graph: &LinkGraph, index: SymbolIndex, symbol: &GraphSymbol, table: &mut Vec<u8>, names: &mut Vec<u8>) {
    let Definition::Block(block, offset) = symbol.definition else { return };
    let (block, name) = (&graph.blocks[block.index()], graph.name_bytes(index));
    if name.is_empty() || !is_in_segment(block) {
        return;
    }
    let kind = if block.pool == SegmentKind::Code { STT_FUNC } else { STT_OBJECT };
    let binding = if symbol.is_local() { STB_LOCAL } else { STB_GLOBAL };
    table.extend((names.len() as u32).to_le_bytes());
    table.extend([binding << 4 | kind, 0]);
    table.extend((block.pool.index() as u16 + 1).to_le_bytes());
    table.extend((block.offset + offset).to_le_bytes());
    table.extend(symbol.size.to_le_bytes());
    // A name of a local symbol may hold a null byte, which ends it.
    names.extend(name.split(|byte| *byte == 0).next().unwrap_or_default());
    names.push(0);
}

fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_large() && block.role != Role::ThreadLocal
}

// From the gABI.
const ET_REL: u16 = 1;
const SHF_WRITE: u64 = 1;
const SHF_EXECINSTR: u64 = 4;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
