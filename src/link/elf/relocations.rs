//! Turns relocations into edges.
//!
//! An object has more relocations than anything else, so each section's relocations are converted in two steps:
//!
//! 1. [`convert`] makes all edges in one loop without branches for errors. It accumulates what it sees in a
//!    [`Summary`].
//! 2. If the summary shows an unusual relocation (a type that makes no edge, or an error), the edges are discarded, and
//!    [`Reader::edges_one_by_one`] reads the relocations again and reports the error.
//!
//! Compact relocations (`compact.rs`) take the same steps, some at a time.

use std::ops::Range;

use object::read::elf::{Rela as _, SectionHeader as _};

use crate::arch::{EdgeKind, KindSet, RelocationType, RelocationTypes};
use crate::error::{Error, LinkFault};
use crate::link::elf::compact::CompactTable;
use crate::link::elf::read::Reader;
use crate::link::elf::{LE, Rela, SectionHeader, sht};
use crate::link::graph::{Block, BlockId, Content, Edge, LinkGraph, SymbolIndex};
use crate::link::use_recorder::ReferrerBit;

impl<'data> Reader<'_, 'data> {
    /// Makes the edges of all blocks. Relocations of sections without a block are ignored.
    pub(super) fn relocations(&mut self) -> Result<(), Error> {
        let object = self.object;
        if !self.relocation_order.is_ascending() {
            self.check_no_overlap(self.read_tables())?;
        }
        let edge_count = self.edge_count();
        self.graph.edges.ensure_capacity(edge_count);
        let relocations = std::mem::take(&mut self.relocation_sections);
        for section in &relocations {
            let block = self.block_of.get(section.sh_info(LE) as usize);
            match (section.sh_type(LE).0, block) {
                (sht::RELA, Some(Some(block))) => self.edges(section, *block)?,
                (sht::CREL, Some(Some(block))) => self.compact_edges(section, *block)?,
                (sht::RELA | sht::CREL, None) => {
                    return Err(object.malformed("relocations for a section that does not exist"));
                }
                (_, Some(Some(_))) => {
                    let name = object.section_name(section)?;
                    return Err(object.unsupported("relocations without addends (SHT_REL)", name, 0, ""));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records a relocation section. It is read after the symbols.
    #[inline]
    pub(super) fn note_relocations(&mut self, section: &'data SectionHeader) {
        self.relocation_sections.push(section);
        let (start, size) = section.file_range(LE).unwrap_or_default();
        self.relocation_order.add(&(start as usize..start.saturating_add(size) as usize));
        if matches!(self.block_of.get(section.sh_info(LE) as usize), Some(Some(_))) {
            self.relocation_bytes = self.relocation_bytes.saturating_add(size);
        }
    }

    /// The file ranges of the relocation sections that are read. A range that reaches past the end of the file is
    /// refused when it is read.
    fn read_tables(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        self.relocation_sections.iter().filter_map(|section| {
            let is_read = self.block_of.get(section.sh_info(LE) as usize).is_some_and(Option::is_some);
            let (start, size) = section.file_range(LE).filter(|_| is_read && section.sh_type(LE).0 != sht::REL)?;
            Some(start as usize..start.saturating_add(size) as usize)
        })
    }

    /// An estimate of the number of edges. The tables do not overlap, so together they are not larger than the object.
    fn edge_count(&self) -> usize {
        self.relocation_bytes.min(self.object.bytes.len() as u64) as usize / size_of::<Rela>()
    }

    /// Makes the edges of one block.
    fn edges(&mut self, section: &SectionHeader, block: BlockId) -> Result<(), Error> {
        let object = self.object;
        let Some((relocations, _)) = section.rela(LE, object.bytes).map_err(|error| object.malformed(error))? else {
            return Ok(());
        };
        let block_size = self.check_relocatable(block, relocations.is_empty())?;
        if relocations.is_empty() {
            return Ok(());
        }
        let (first, referrer) = (self.graph.edges.len(), self.graph.use_recorder.next_referrer());
        self.add_edges(relocations, block, block_size, referrer)?;
        self.set_edges(block, first, referrer);
        Ok(())
    }

    /// As [`edges`](Self::edges), for a table of compact relocations.
    #[cold]
    fn compact_edges(&mut self, section: &SectionHeader, block: BlockId) -> Result<(), Error> {
        let object = self.object;
        let malformed = |problem: String| {
            let name = object.section_name(section).unwrap_or_default();
            object.malformed(format!("compact relocations (SHT_CREL) in `{name}`: {problem}"))
        };
        let Some(mut table) = CompactTable::open(section, object.bytes).map_err(malformed)? else { return Ok(()) };
        let block_size = self.check_relocatable(block, table.remaining() == 0)?;
        if !table.has_addends() {
            let name = object.section_name(section)?;
            return Err(object.unsupported("compact relocations without addends (SHT_CREL)", name, 0, ""));
        }
        let (first, referrer) = (self.graph.edges.len(), self.graph.use_recorder.next_referrer());
        loop {
            match table.next_piece().map_err(malformed)? {
                [] => break,
                piece => self.add_edges(piece, block, block_size, referrer)?,
            }
        }
        self.set_edges(block, first, referrer);
        Ok(())
    }

    /// Makes the edges of some relocations of a block.
    #[inline(always)] // into `edges`, which runs for each section
    fn add_edges(
        &mut self,
        relocations: &[Rela],
        block: BlockId,
        block_size: u64,
        referrer: ReferrerBit,
    ) -> Result<(), Error> {
        let first = self.graph.edges.len();
        if !self.plain_edges(relocations, block_size, referrer) {
            self.graph.edges.truncate(first);
            self.edges_one_by_one(relocations, block, referrer)?;
        }
        Ok(())
    }

    /// Gives a block the edges from `first` on.
    #[inline(always)]
    fn set_edges(&mut self, block: BlockId, first: usize, referrer: ReferrerBit) {
        let end = self.graph.edges.len() as u32;
        let target = &mut self.graph.blocks[block.index()];
        (target.edges, target.referrer_bit) = (first as u32..end, referrer);
    }

    /// Step 1. Returns false if a relocation is unusual. The edges are then invalid and must be discarded.
    #[inline(always)]
    fn plain_edges(&mut self, relocations: &[Rela], block_size: u64, referrer: ReferrerBit) -> bool {
        let LinkGraph { edges, use_recorder, kinds, arch, .. } = &mut *self.graph;
        let first = edges.len();
        // The edges exist before the loop fills them in, so that the loop cannot grow the vector and keeps its state in
        // registers.
        edges.extend_repeated(relocations.len(), &BLANK_EDGES);
        let bits = use_recorder.bits_mut();
        let (edges, referrer) = (&mut edges[first..], referrer.bit());
        let (summary, count) = match arch.relocation_types() {
            RelocationTypes::UpTo64(types) => (convert(edges, relocations, types, bits, referrer), types.len()),
            RelocationTypes::UpTo1024(types) => (convert(edges, relocations, types, bits, referrer), types.len()),
        };
        let Some(summary) = summary else { return false };
        // A block is smaller than 4 GiB, so the union of valid offsets fits into 32 bits.
        let is_in_block = summary.offsets <= u64::from(u32::MAX) && summary.last_end <= block_size;
        let is_known = (summary.types as usize) < count && !summary.kinds.has_any_of(KindSet::NO_EDGE);
        if is_in_block && is_known {
            kinds.insert_all(summary.kinds);
        }
        is_in_block && is_known
    }

    /// Step 2. Reports the first error, if there is one.
    #[cold]
    fn edges_one_by_one(&mut self, relocations: &[Rela], block: BlockId, referrer: ReferrerBit) -> Result<(), Error> {
        let block_size = self.graph.blocks[block.index()].size;
        for relocation in relocations {
            let (offset, r_type) = (relocation.r_offset(LE), relocation.r_type(LE, false).0);
            let symbol = SymbolIndex(relocation.r_sym(LE, false));
            let Some(kind) = self.graph.arch.kind_of(r_type).filter(|_| symbol.index() < self.graph.symbols.len())
            else {
                if self.graph.arch.is_marker(r_type) {
                    continue;
                }
                return Err(self.unknown_relocation(block, relocation));
            };
            if offset > block_size || block_size - offset < kind.width() as u64 {
                let name = self.block_name(block);
                return Err(self.object.malformed(format!(
                    "relocation in `{name}` at {offset:#x} reaches past its end ({block_size:#x})"
                )));
            }
            self.graph.kinds.insert(kind);
            self.graph.use_recorder.bits_mut()[symbol.index()] |= kind.uses() | referrer.bit();
            let (offset, addend) = (offset as u32, relocation.r_addend(LE));
            self.graph.edges.push(Edge { offset, kind, symbol, addend });
        }
        Ok(())
    }

    /// Checks that a block may get relocations from this section, and returns the block's size in bytes.
    #[inline(always)]
    fn check_relocatable(&self, block: BlockId, is_empty: bool) -> Result<u64, Error> {
        let (object, name) = (self.object, || self.block_name(block));
        let Block { size, content, edges, .. } = &self.graph.blocks[block.0 as usize];
        if !edges.is_empty() {
            return Err(object.unsupported("second relocation section for one section", name(), 0, ""));
        }
        if matches!(content, Content::Zero) && !is_empty {
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

    /// The error for a relocation whose symbol or type is not known.
    fn unknown_relocation(&self, block: BlockId, relocation: &Rela) -> Error {
        let (section, offset) = (self.block_name(block).to_string(), relocation.r_offset(LE));
        let symbol = relocation.r_sym(LE, false);
        if symbol as usize >= self.graph.symbols.len() {
            return self.object.malformed(format!(
                "relocation in `{section}` at {offset:#x} names symbol {symbol}, which does not exist"
            ));
        }
        let what = self.graph.arch.unsupported_name(relocation.r_type(LE, false).0);
        let symbol = self.symbol_name(SymbolIndex(symbol)).to_string();
        self.object.fault(LinkFault::Unsupported { what, section, offset, symbol })
    }
}

/// What [`convert`] saw in the relocations of one section. An unusual relocation shows in it.
struct Summary {
    /// The kinds of all edges.
    kinds: KindSet,
    /// The union of the bits of all offsets.
    offsets: u64,
    /// The union of the bits of all types.
    types: u32,
    /// The greatest end of a field.
    last_end: u64,
}

/// Makes edges of relocations. Records in `bits`, by symbol, what the edges use the symbol for, and the bit `referrer`.
/// `None` if a relocation names a symbol that does not exist. A type past the end of `types` counts as another type.
#[inline(never)] // a loop of its own, so that its variables stay in registers
fn convert<const TYPES: usize>(
    edges: &mut [Edge],
    relocations: &[Rela],
    types: &[RelocationType; TYPES],
    bits: &mut [u32],
    referrer: u32,
) -> Option<Summary> {
    let mut summary = Summary { kinds: KindSet::default(), offsets: 0, types: 0, last_end: 0 };
    let Summary { kinds, offsets, types: all_types, last_end } = &mut summary;
    for (relocation, edge) in relocations.iter().zip(edges) {
        let (offset, info) = (relocation.r_offset.get(LE), relocation.r_info.get(LE));
        let (r_type, symbol) = (info as u32, (info >> 32) as u32);
        let known = &types[r_type as usize % TYPES];
        kinds.insert_all(known.kinds);
        (*offsets, *all_types) = (*offsets | offset, *all_types | r_type);
        *last_end = u64::max(*last_end, offset.wrapping_add(known.width.into()));
        *bits.get_mut(symbol as usize)? |= known.uses | referrer;
        let (offset, addend) = (offset as u32, relocation.r_addend.get(LE));
        *edge = Edge { offset, kind: known.kind, symbol: SymbolIndex(symbol), addend };
    }
    Some(summary)
}

/// Placeholders, to be repeated.
static BLANK_EDGES: [Edge; 64] = [Edge { offset: 0, kind: EdgeKind::Pointer64, symbol: SymbolIndex(0), addend: 0 }; 64];
