//! Splitting of blocks.
//!
//! An assembler resolves most references within a section, so they have no edges, and the addend of a reference to a
//! section's own symbol may reach any of its bytes. So the parts of a split block stay where they were: directly after each
//! other, in order. They are kept or pruned together, as the members of a section group are.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::Result;
use crate::link::content::GivenContent;
use crate::link::graph::{Block, BlockId, Content, Definition, Edge, LinkGraph, Role, SymbolIndex};
use crate::link::use_recorder::ReferrerBit;

impl LinkGraph {
    /// Splits a block at the offsets `at`, which are in bytes and ascend. The block keeps the bytes before the first of
    /// them. Returns the blocks of the other parts, in order.
    ///
    /// Symbols and edges go with their bytes. The parts stay next to each other in memory and are kept or pruned together,
    /// so no reference within the section breaks. A part has bytes, edges, symbols and an address of its own. It cannot be
    /// split again, moved, removed or resized.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, and a block with a fixed place; for unwind tables, lists of
    /// initialisers and thread-local variables, which the linker reads as a whole; for an offset in the middle of a field or
    /// of a symbol with a size; and for bytes that a generator writes later.
    ///
    /// ```
    /// use jittison::Error;
    /// use jittison::link::{BlockId, Definition, LinkGraph};
    ///
    /// /// Splits a block where its symbols begin, for use in a hook.
    /// fn split_at_symbols(graph: &mut LinkGraph, block: BlockId) -> Result<Vec<BlockId>, Error> {
    ///     let starts = graph.symbols().filter_map(|(_, symbol)| match symbol.definition {
    ///         Definition::Block(id, offset) if id == block && offset > 0 => Some(offset),
    ///         _ => None,
    ///     });
    ///     let mut at: Vec<u64> = starts.collect();
    ///     at.sort_unstable();
    ///     at.dedup();
    ///     graph.split_block(block, &at)
    /// }
    /// ```
    pub fn split_block(&mut self, block: BlockId, at: &[u64]) -> Result<Vec<BlockId>> {
        self.check_split(block, at)?;
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let symbols = self.symbols_of(block);
        self.check_symbols_in_parts(block, &symbols, at)?;
        let edges = self.edges_of_parts(block, at)?;
        let contents = self.contents_of_parts(block, at)?;
        let parts = self.add_parts(block, at, contents);
        for (number, edges) in edges.iter().enumerate() {
            self.push_edges(part(block, &parts, number), edges);
        }
        self.move_symbols(block, &parts, &symbols, at);
        for id in [block].into_iter().chain(parts.iter().copied()) {
            self.record_block(id);
            if let Some(adjacent) = &mut self.record().adjacent {
                adjacent.insert(id);
            }
        }
        self.use_recorder.mark_stale();
        Ok(parts)
    }

    fn check_split(&mut self, id: BlockId, at: &[u64]) -> Result<()> {
        let Block { role, size, .. } = *self.movable_block(id, "split")?;
        if role != Role::Plain {
            let problem = match role {
                Role::EhFrame => "an unwind table cannot be split: its records refer to each other without edges",
                _ => "the block cannot be split: the linker reads it as a whole",
            };
            return self.refuse(id, 0, problem.to_string());
        }
        let mut last = 0;
        for cut in at {
            if *cut <= last || *cut >= size {
                let problem = format!("the block has {size:#x} bytes and cannot be split after {last:#x} at {cut:#x}");
                return self.refuse(id, *cut, problem);
            }
            last = *cut;
        }
        Ok(())
    }

    /// The symbols of a block.
    fn symbols_of(&mut self, id: BlockId) -> Vec<SymbolIndex> {
        if self.changes.as_ref().is_none_or(|changes| changes.symbols_of.is_none()) {
            let mut by_block: FxHashMap<BlockId, Vec<SymbolIndex>> = FxHashMap::default();
            for (index, symbol) in self.symbols() {
                if let Definition::Block(block, _) = symbol.definition {
                    by_block.entry(block).or_default().push(index);
                }
            }
            self.record().symbols_of = Some(by_block);
        }
        let by_block = self.changes.as_ref().and_then(|changes| changes.symbols_of.as_ref());
        by_block.and_then(|by_block| by_block.get(&id)).cloned().unwrap_or_default()
    }

    fn check_symbols_in_parts(&self, id: BlockId, symbols: &[SymbolIndex], at: &[u64]) -> Result<()> {
        for index in symbols {
            let symbol = &self.symbols[index.index()];
            let Definition::Block(_, start) = symbol.definition else { continue };
            let (part, end) = (part_of(at, start), start.saturating_add(symbol.size));
            if let Some(cut) = at.get(part).filter(|cut| **cut < end) {
                let problem = format!("has {:#x} bytes from {start:#x} on, so it cannot be split there", symbol.size);
                return Err(self.error_at(id, *cut, *index, &problem));
            }
        }
        Ok(())
    }

    /// The edges of each part, with offsets in the part.
    fn edges_of_parts(&self, id: BlockId, at: &[u64]) -> Result<Vec<Vec<Edge>>> {
        let mut by_part = vec![Vec::new(); at.len() + 1];
        for edge in self.edges(id) {
            let (offset, width) = (u64::from(edge.offset), edge.kind.width() as u64);
            let part = part_of(at, offset);
            if let Some(cut) = at.get(part).filter(|cut| **cut < offset + width) {
                return Err(self.edge_error(id, edge, format!("the block cannot be split at {cut:#x}, in this field")));
            }
            let start = if part == 0 { 0 } else { at[part - 1] };
            by_part[part].push(Edge { offset: (offset - start) as u32, ..*edge });
        }
        Ok(by_part)
    }

    /// The contents of each part.
    fn contents_of_parts(&mut self, id: BlockId, at: &[u64]) -> Result<Vec<Content>> {
        let Block { size, .. } = self.blocks[id.index()];
        let ends = at.iter().copied().chain([size]);
        let ranges: SmallVec<[_; 8]> = [0].into_iter().chain(at.iter().copied()).zip(ends).collect();
        match &self.blocks[id.index()].content {
            Content::Zero => Ok(ranges.iter().map(|_| Content::Zero).collect()),
            Content::Object(range) => {
                let start = range.start;
                let of_object = |(from, to): &(u64, u64)| start + *from as usize..start + *to as usize;
                Ok(ranges.iter().map(|range| Content::Object(of_object(range))).collect())
            }
            Content::Synthetic(_) | Content::Given(_) | Content::Table => {
                let Some(bytes) = self.content(&self.blocks[id.index()]) else {
                    return self.refuse(
                        id,
                        0,
                        "the block cannot be split: a generator writes its bytes later".to_string(),
                    );
                };
                let parts: Vec<Vec<u8>> =
                    ranges.iter().map(|(from, to)| bytes[*from as usize..*to as usize].to_vec()).collect();
                Ok(parts.into_iter().map(|bytes| self.synthetic.add_given(GivenContent::owned(bytes))).collect())
            }
        }
    }

    /// Shortens the block and adds the other parts.
    fn add_parts(&mut self, id: BlockId, at: &[u64], contents: Vec<Content>) -> Vec<BlockId> {
        let group = match self.blocks[id.index()].group {
            Some(group) => group,
            None => {
                // No symbol is the signature of the group. Claiming, which reads signatures, comes before the plugins.
                self.group_signatures.push(SymbolIndex(0));
                self.group_signatures.len() as u32 - 1
            }
        };
        let Block { pool, size, align, linked_to, is_retained, is_live, .. } = self.blocks[id.index()];
        // A block that the linker or a plugin made is a root of dead-stripping. Its parts are, too.
        let is_retained = is_retained || self.blocks[id.index()].is_synthetic();
        let name = self.blocks[id.index()].name.clone();
        let mut contents = contents.into_iter();
        let head = &mut self.blocks[id.index()];
        head.size = at[0];
        head.content = contents.next().unwrap_or(Content::Zero);
        (head.group, head.is_retained) = (Some(group), is_retained);
        let (mut before, mut parts) = (id, Vec::with_capacity(at.len()));
        let ends = at.iter().skip(1).copied().chain([size]);
        for ((start, end), content) in at.iter().zip(ends).zip(contents) {
            // The largest alignment that needs no padding.
            let align = align.min(1 << start.trailing_zeros());
            let part = self.push(Block {
                group: Some(group),
                referrer_bit: ReferrerBit::FIRST,
                linked_to,
                is_retained,
                is_live,
                ..Block::new(name.clone(), pool, content, end - start, align)
            });
            self.place_after(before, part);
            before = part;
            parts.push(part);
        }
        parts
    }

    fn move_symbols(&mut self, id: BlockId, parts: &[BlockId], symbols: &[SymbolIndex], at: &[u64]) {
        let by_block = self.record().symbols_of.take();
        let mut moved: Vec<Vec<SymbolIndex>> = vec![Vec::new(); at.len() + 1];
        for symbol in symbols {
            let Definition::Block(_, offset) = self.definition(*symbol) else { continue };
            let number = part_of(at, offset);
            moved[number].push(*symbol);
            if number > 0 {
                self.record_symbol(*symbol);
                let place = Definition::Block(part(id, parts, number), offset - at[number - 1]);
                self.symbols[symbol.index()].definition = place;
            }
        }
        self.record().symbols_of = by_block.map(|mut by_block| {
            by_block.extend(moved.into_iter().enumerate().map(|(number, symbols)| (part(id, parts, number), symbols)));
            by_block
        });
    }
}

/// The number of the part that an offset is in. An offset where a part begins is in that part.
fn part_of(at: &[u64], offset: u64) -> usize {
    at.partition_point(|cut| *cut <= offset)
}

/// The block of a part.
fn part(head: BlockId, parts: &[BlockId], number: usize) -> BlockId {
    if number == 0 { head } else { parts[number - 1] }
}
