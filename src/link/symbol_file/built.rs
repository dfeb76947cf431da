//! The symbol file of a graph without an object: a section for each segment, and one for each unwind table.
//!
//! A segment is one section, however many blocks it holds, so the number of blocks has no limit that the format sets.

use super::{SHF_ALLOC, SHT_NOBITS, SHT_PROGBITS};
use crate::base::SegmentKind;
use crate::link::elf::{RelocatableFile, SYMBOL_SIZE, SymbolFields};
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{Block, BlockId, Definition, GraphSymbol, LinkGraph, Role, SymbolIndex};

/// Writes the file of a built graph.
pub(super) fn write(link: &mut FixedLink<'_>) -> Vec<u8> {
    let mut file = RelocatableFile::new();
    for pool in SegmentKind::ALL {
        add_segment(&mut file, link, pool);
    }
    let is_table = |(_, block): &(BlockId, &Block)| block.role == Role::EhFrame && !block.is_dropped;
    let tables: Vec<BlockId> = link.graph().blocks().filter(is_table).map(|(id, _)| id).collect();
    for table in tables {
        let address = link.block_address(table).value();
        let content = link.bytes(table).to_vec();
        file.add_section(b".eh_frame\0", SHT_PROGBITS, SHF_ALLOC, &content).address = address;
    }
    add_symbols(&mut file, link.graph());
    file.finish(link.graph().arch.e_machine())
}

/// Adds the section of a segment: its address and size, no bytes. Its number is one more than the segment's.
fn add_segment(file: &mut RelocatableFile, link: &FixedLink<'_>, pool: SegmentKind) {
    let (name, flags): (&[u8], u64) = match pool {
        SegmentKind::Code => (b".text\0", SHF_ALLOC | SHF_EXECINSTR),
        SegmentKind::ReadOnly => (b".rodata\0", SHF_ALLOC),
        SegmentKind::Data => (b".data\0", SHF_ALLOC | SHF_WRITE),
    };
    let blocks = link.graph().blocks().filter(|(_, block)| block.pool == pool && is_in_segment(block));
    let size = blocks.map(|(_, block)| block.offset + block.size).max().unwrap_or(0);
    let address = link.resolved.addresses.segments[pool.index()].value();
    let header = file.add_section(name, SHT_NOBITS, flags, &[]);
    (header.address, header.size) = (address, size);
}

/// Adds the symbol table: local symbols first, as the gABI requires, and the table of their names.
fn add_symbols(file: &mut RelocatableFile, graph: &LinkGraph) {
    let (mut table, mut names) = (vec![0; SYMBOL_SIZE], vec![0]);
    let mut add_all = |is_local: bool| {
        for (index, symbol) in graph.symbols().filter(|(_, symbol)| symbol.is_local() == is_local) {
            add_symbol(graph, index, symbol, &mut table, &mut names);
        }
        table.len() / SYMBOL_SIZE
    };
    let first_global = add_all(true);
    add_all(false);
    file.add_symbols(&table, first_global, &names);
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
    let fields = SymbolFields {
        name: names.len() as u32,
        binding,
        kind,
        section: block.pool.index() as u16 + 1,
        value: block.offset + offset,
        size: symbol.size,
    };
    fields.append_to(table);
    // A name of a local symbol may hold a null byte, which ends it.
    names.extend(name.split(|byte| *byte == 0).next().unwrap_or_default());
    names.push(0);
}

fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_large() && block.role != Role::ThreadLocal
}

// From the gABI.
const SHF_WRITE: u64 = 1;
const SHF_EXECINSTR: u64 = 4;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
