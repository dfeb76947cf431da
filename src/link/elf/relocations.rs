//! Relocations become edges.
//!
//! Objects have more of them than of anything else, so a section's are turned in one go first, which only notes that there
//! is something to look at: a type that makes no edge, or a fault. Then all are gone through again one by one.

use std::ops::Range;

use object::read::elf::{Rela as _, SectionHeader as _};

use crate::error::{Error, LinkFault};
use crate::link::elf::read::Reader;
use crate::link::elf::{LE, Rela, SectionHeader, sht};
use crate::link::graph::{Block, BlockId, Content, Definition, Edge, LinkGraph, SymbolIndex};
use crate::link::use_recorder::{self, ReferrerBit};
use crate::link::x86_64::{self, EdgeKind, KindSet};

impl<'data> Reader<'_, 'data> {
    pub(super) fn relocations(&mut self) -> Result<(), Error> {
        let object = self.object;
        if !self.tables.is_kept() {
            self.check_apart(self.tables_read())?;
        }
        let edge_count = self.edge_count();
        self.graph.edges.make_room(edge_count);
        let relocations = std::mem::take(&mut self.relocations);
        for section in &relocations {
            let block = self.block_of.get(section.sh_info(LE) as usize);
            match (section.sh_type(LE).0, block) {
                (sht::RELA, Some(Some(block))) => self.edges(section, *block)?,
                (sht::RELA, None) => return Err(object.malformed("relocations for a section that does not exist")),
                (kind, Some(Some(_))) => {
                    let name = object.section_name(section)?;
                    let what = if kind == sht::REL {
                        "relocations without addends (SHT_REL)"
                    } else {
                        "compact relocations (SHT_CREL)"
                    };
                    return Err(object.unsupported(what, name, 0, ""));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes note of a table, which is read when there are symbols.
    #[inline]
    pub(super) fn table(&mut self, section: &'data SectionHeader) {
        self.relocations.push(section);
        let (start, size) = section.file_range(LE).unwrap_or_default();
        self.tables.add(&(start as usize..start.saturating_add(size) as usize));
        if matches!(self.block_of.get(section.sh_info(LE) as usize), Some(Some(_))) {
            self.relocation_bytes = self.relocation_bytes.saturating_add(size);
        }
    }

    /// Where the tables that are read stand in the file. One that reaches past its end is refused when it is read.
    fn tables_read(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        self.relocations.iter().filter_map(|section| {
            let is_read = self.block_of.get(section.sh_info(LE) as usize).is_some_and(Option::is_some);
            let (start, size) = section.file_range(LE).filter(|_| is_read && section.sh_type(LE).0 == sht::RELA)?;
            Some(start as usize..start.saturating_add(size) as usize)
        })
    }

    /// About how many edges there will be. The tables are apart, and so no larger than the object.
    fn edge_count(&self) -> usize {
        self.relocation_bytes.min(self.object.bytes.len() as u64) as usize / size_of::<Rela>()
    }

    fn edges(&mut self, section: &SectionHeader, block: BlockId) -> Result<(), Error> {
        let object = self.object;
        let Some((relocations, _)) = section.rela(LE, object.bytes).map_err(|error| object.malformed(error))? else {
            return Ok(());
        };
        let block_size = self.check_relocatable(block, relocations.is_empty())?;
        if relocations.is_empty() {
            return Ok(());
        }
        let (first, source) = (self.graph.edges.len(), self.graph.uses.begin_source());
        if !self.plain_edges(relocations, block_size, source) {
            self.graph.edges.truncate(first);
            self.edges_one_by_one(relocations, block, source)?;
        }
        let end = self.graph.edges.len() as u32;
        let block_to_fill = &mut self.graph.blocks[block.index()];
        (block_to_fill.edges, block_to_fill.source) = (first as u32..end, source);
        if self.graph.kinds.has_any_of(KindSet::SIZE) { self.check_sizes(block) } else { Ok(()) }
    }

    /// False when one of them is no edge, or not as it should be: then the edges are not to be used.
    fn plain_edges(&mut self, relocations: &[Rela], block_size: u64, source: ReferrerBit) -> bool {
        let LinkGraph { edges, uses, kinds, .. } = &mut *self.graph;
        let first = edges.len();
        // Made first and filled in then: what is found out on the way stays in registers.
        edges.push_copies(relocations.len(), &BLANKS);
        let Some(all) = fill_in(&mut edges[first..], relocations, uses.words(), source.bit()) else { return false };
        // Blocks are smaller than 4 GiB.
        let are_in_reach = all.offsets <= u64::from(u32::MAX) && all.last_end <= block_size;
        if !are_in_reach || all.types as usize >= KNOWN.len() || all.seen & !KNOWN_TYPES != 0 {
            return false;
        }
        let mut seen = all.seen;
        while seen != 0 {
            kinds.insert(KNOWN[seen.trailing_zeros() as usize].kind);
            seen &= seen - 1;
        }
        true
    }

    #[cold]
    fn edges_one_by_one(&mut self, relocations: &[Rela], block: BlockId, source: ReferrerBit) -> Result<(), Error> {
        let block_size = self.graph.blocks[block.index()].size;
        for relocation in relocations {
            let (offset, r_type) = (relocation.r_offset(LE), relocation.r_type(LE, false).0);
            let symbol = SymbolIndex(relocation.r_sym(LE, false));
            let Some(kind) = EdgeKind::from_relocation(r_type).filter(|_| symbol.index() < self.graph.symbols.len())
            else {
                if x86_64::is_mark(r_type) {
                    continue;
                }
                return Err(self.unknown(block, relocation));
            };
            if offset > block_size || block_size - offset < kind.width() as u64 {
                let name = self.block_name(block);
                return Err(self.object.malformed(format!(
                    "relocation in `{name}` at {offset:#x} reaches past its end ({block_size:#x})"
                )));
            }
            self.graph.kinds.insert(kind);
            self.graph.uses.words()[symbol.index()] |= use_recorder::uses(kind) | source.bit();
            let (offset, addend) = (offset as u32, relocation.r_addend(LE));
            self.graph.edges.push(Edge { offset, kind, symbol, addend });
        }
        Ok(())
    }

    /// The size of a block that may have relocations.
    fn check_relocatable(&self, block: BlockId, has_none: bool) -> Result<u64, Error> {
        let (object, name) = (self.object, || self.block_name(block));
        let Block { size, content, edges, .. } = &self.graph.blocks[block.0 as usize];
        if !edges.is_empty() {
            return Err(object.unsupported("second relocation section for one section", name(), 0, ""));
        }
        if matches!(content, Content::Zero) && !has_none {
            return Err(object.malformed(format!("relocations in `{}`, which has no bytes", name())));
        }
        Ok(*size)
    }

    fn block_name(&self, block: BlockId) -> &str {
        self.graph.text_of(self.object.bytes, &self.graph.blocks[block.index()].name)
    }

    fn symbol_name(&self, symbol: SymbolIndex) -> &str {
        self.graph.text_of(self.object.bytes, &self.graph.symbols[symbol.index()].name)
    }

    /// What is wrong with a relocation whose symbol or type is not known.
    fn unknown(&self, block: BlockId, relocation: &Rela) -> Error {
        let (section, offset) = (self.block_name(block).to_string(), relocation.r_offset(LE));
        let symbol = relocation.r_sym(LE, false);
        if symbol as usize >= self.graph.symbols.len() {
            return self.object.malformed(format!(
                "relocation in `{section}` at {offset:#x} names symbol {symbol}, which does not exist"
            ));
        }
        let what = x86_64::relocation_name(relocation.r_type(LE, false).0);
        let symbol = self.symbol_name(SymbolIndex(symbol)).to_string();
        self.object.fault(LinkFault::Unsupported { what, section, offset, symbol })
    }

    /// Only the object that defines a symbol knows its size.
    fn check_sizes(&self, block: BlockId) -> Result<(), Error> {
        let is_elsewhere = |edge: &&Edge| self.graph.definition(edge.symbol) == Definition::External;
        let Some(edge) = self.graph.edges(block).iter().filter(|edge| edge.kind.is_size()).find(is_elsewhere) else {
            return Ok(());
        };
        Err(self.object.fault(LinkFault::Unsupported {
            what: format!("relocation {} to another object's symbol", edge.kind.name()),
            section: self.block_name(block).to_string(),
            offset: edge.offset.into(),
            symbol: self.symbol_name(edge.symbol).to_string(),
        }))
    }
}

/// What is found out of relocations on the way: what is not as it should be shows in it.
struct Together {
    /// All types below 64, a bit for each.
    seen: u64,
    /// All bits of all offsets, and of all types.
    offsets: u64,
    types: u32,
    /// Of the field that reaches farthest.
    last_end: u64,
}

/// Makes edges of relocations, and notes what they use symbols for, by symbol, and from which source. `None` when one of them
/// names a symbol that there is not.
#[inline(never)] // a loop that has the registers to itself
fn fill_in(edges: &mut [Edge], relocations: &[Rela], words: &mut [u32], source: u32) -> Option<Together> {
    let (mut seen, mut offsets, mut types, mut last_end) = (0, 0, 0, 0);
    for (relocation, edge) in relocations.iter().zip(edges) {
        let (offset, place) = (relocation.r_offset.get(LE), relocation.r_info.get(LE));
        let (r_type, symbol) = (place as u32, (place >> 32) as u32);
        let known = &KNOWN[r_type as usize % KNOWN.len()];
        (seen, offsets, types) = (seen | 1 << (r_type % u64::BITS), offsets | offset, types | r_type);
        last_end = u64::max(last_end, offset.wrapping_add(known.width.into()));
        *words.get_mut(symbol as usize)? |= known.uses | source;
        let (offset, addend) = (offset as u32, relocation.r_addend.get(LE));
        *edge = Edge { offset, kind: known.kind, symbol: SymbolIndex(symbol), addend };
    }
    Some(Together { seen, offsets, types, last_end })
}

/// What a type of relocations means.
#[derive(Clone, Copy)]
struct Known {
    /// What for, as [`use_recorder::uses`] says.
    uses: u32,
    kind: EdgeKind,
    /// Bytes stored.
    width: u8,
}

/// By type; of those that make no edge, it means nothing.
static KNOWN: [Known; u64::BITS as usize] = {
    let mut known = [Known { uses: 0, kind: EdgeKind::Pointer64, width: 0 }; u64::BITS as usize];
    let mut r_type = 0;
    while r_type < known.len() {
        if let Some(kind) = EdgeKind::from_relocation(r_type as u32) {
            known[r_type] = Known { uses: use_recorder::uses(kind), kind, width: kind.width() as u8 };
        }
        r_type += 1;
    }
    known
};

/// The types that make edges, a bit for each.
const KNOWN_TYPES: u64 = {
    let (mut known, mut r_type) = (0, 0);
    while r_type < u64::BITS {
        if EdgeKind::from_relocation(r_type).is_some() {
            known |= 1 << r_type;
        }
        r_type += 1;
    }
    known
};

/// What stands where edges will be.
static BLANKS: [Edge; 64] = [Edge { offset: 0, kind: EdgeKind::Pointer64, symbol: SymbolIndex(0), addend: 0 }; 64];
