//! [`BuiltView`]: what a generator handed over, for the verifier: the counterpart of [`ObjectView`](super::object_view) for a
//! graph without an object.
//!
//! It reads the builder's [`GraphDescription`], which no phase of the link reads.

use crate::arch::verify::{Mismatch, Relocation};
use crate::link::graph::{Binding, Block, BlockId, Definition, LinkGraph};
use crate::link::graph_description::{DescribedBlock, DescribedSymbol, GraphDescription};

pub(super) struct BuiltView<'a> {
    description: &'a GraphDescription,
    graph: &'a LinkGraph,
}

impl<'a> BuiltView<'a> {
    /// Checks that the blocks of the graph are those of the description, and those that the linker or a plugin made.
    pub(super) fn new(description: &'a GraphDescription, graph: &'a LinkGraph) -> Result<BuiltView<'a>, Mismatch> {
        if graph.blocks.len() < description.blocks.len() {
            return Err(Mismatch::new(0, "number of blocks", graph.blocks.len(), description.blocks.len()));
        }
        for ((id, block), described) in graph.blocks().zip(&description.blocks) {
            if graph.is_changed_block(id) {
                continue; // checked as a block that a plugin added
            }
            let found = (graph.block_name(id), block.pool, block.size, block.align);
            let expected = (&*described.section, described.kind, described.size, described.align);
            if found != expected || block.is_zero_fill() != described.content.is_none() {
                let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
                return Err(Mismatch::new(id.index() as u64, "block", found, expected));
            }
        }
        Ok(BuiltView { description, graph })
    }

    pub(super) fn marks_entries(&self) -> bool {
        self.description.marks_entries
    }

    /// What the generator handed over of a block, if no plugin has changed it.
    fn described(&self, id: BlockId) -> Option<&DescribedBlock> {
        self.description.blocks.get(id.index()).filter(|_| !self.graph.is_changed_block(id))
    }

    /// A block's bytes before fix-up; `None` for zero-fill, and for a block that the generator did not hand over.
    pub(super) fn content(&self, id: BlockId) -> Option<Option<&[u8]>> {
        self.described(id).map(|block| block.content.as_deref())
    }

    /// The edges of a block as relocations. `None` for a block that the generator did not hand over.
    pub(super) fn relocations(&self, graph: &LinkGraph, id: BlockId) -> Option<Vec<Relocation>> {
        let block = self.described(id)?;
        Some(block.edges.iter().map(|edge| super::object_view::relocation_of(graph, edge)).collect())
    }

    pub(super) fn symbol_size(&self, symbol: u32) -> u64 {
        let described = (symbol as usize).checked_sub(1).and_then(|index| self.description.symbols.get(index));
        described.map_or(0, |symbol| symbol.size)
    }

    /// Checks that every symbol has its name, size and definition in the graph, or a definition that the linker may give it.
    pub(super) fn check_symbols(&self, graph: &LinkGraph) -> Result<(), Mismatch> {
        for (described, (index, found)) in self.description.symbols.iter().zip(graph.symbols().skip(1)) {
            if graph.is_changed_symbol(index) {
                continue;
            }
            let DescribedSymbol { name, definition, size, is_local } = described;
            // Another object's definition, the linker or a plugin may replace the definition of a symbol that others see.
            let is_replaced =
                !is_local && (found.definition == Definition::External || found.binding == Binding::Local);
            let is_agreed = is_replaced || found.definition == in_memory(graph, *definition);
            if graph.symbol_name(index) != name || found.size != *size || !is_agreed {
                let found = format!("`{}` {:?}, {} bytes", graph.symbol_name(index), found.definition, found.size);
                let expected = format!("`{name}` {definition:?}, {size} bytes");
                return Err(Mismatch::new(index.index() as u64, "symbol", found, expected));
            }
        }
        Ok(())
    }
}

/// The definition as the graph has it after dead-stripping.
fn in_memory(graph: &LinkGraph, definition: Definition) -> Definition {
    let is_dropped = |block: &Block| block.is_dropped;
    match definition {
        Definition::Block(block, _) if graph.blocks.get(block.index()).is_none_or(is_dropped) => Definition::Nowhere,
        other => other,
    }
}
