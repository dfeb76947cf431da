//! Changes to a graph by the linker and by the services of this crate: added blocks, edges and symbols, and new
//! definitions. They name positions of the graph, so nothing is checked and nothing is recorded. Plugins have the methods in
//! `changes/`.

use crate::arch::CodeTemplate;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::link::graph::{Binding, BlockId, Definition, Edge, GraphSymbol, LinkGraph, SymbolIndex};

impl LinkGraph {
    /// Adds a block with the bytes `content`. `align` is in bytes, a power of two. Dead-stripping keeps such a block.
    ///
    /// The field of each edge must lie within `content`, and its symbol in the graph.
    pub(crate) fn insert_block(
        &mut self,
        name: &str,
        pool: SegmentKind,
        content: Vec<u8>,
        align: u64,
        edges: &[Edge],
    ) -> BlockId {
        let size = content.len() as u64;
        let (name, content) =
            (self.synthetic.add_name(name), self.synthetic.add_content(content.into_iter().collect()));
        let id = self.push_block(name, pool, content, size, align);
        self.push_edges(id, edges);
        id
    }

    /// Adds a block of machine code from a template. `symbol_of` gives the symbol of each target.
    pub(crate) fn insert_code<T: Copy>(
        &mut self,
        name: &str,
        code: &CodeTemplate<T>,
        symbol_of: impl Fn(T) -> SymbolIndex,
    ) -> BlockId {
        let edges: Vec<Edge> =
            code.fields.iter().map(|field| Edge::of_field(field, 0, symbol_of(field.target))).collect();
        self.insert_block(name, SegmentKind::Code, code.bytes.to_vec(), CODE_ALIGN, &edges)
    }

    /// Sets the bytes and edges of a block that was added empty. For a block whose edges refer to the block itself.
    pub(crate) fn fill_block(&mut self, id: BlockId, content: Vec<u8>, edges: &[Edge]) {
        let block = &mut self.blocks[id.index()];
        block.size = content.len() as u64;
        block.content = self.synthetic.add_content(content.into_iter().collect());
        self.push_edges(id, edges);
    }

    /// Sets the edges of a block that has none, and records what they use.
    pub(crate) fn push_edges(&mut self, id: BlockId, edges: &[Edge]) {
        let first = self.edges.len() as u32;
        self.edges.extend_from_slice(edges);
        self.blocks[id.index()].edges = first..self.edges.len() as u32;
        if edges.is_empty() {
            return;
        }
        let referrer = self.use_recorder.next_referrer();
        self.blocks[id.index()].referrer_bit = referrer;
        self.use_recorder.extend_to(self.symbols.len());
        for edge in edges {
            self.kinds.insert(edge.kind);
            self.use_recorder.bits_mut()[edge.symbol.index()] |= edge.kind.uses() | referrer.bit();
        }
    }

    /// Adds a global external. The link looks it up if some edge uses it, and fails without a definition.
    pub(crate) fn insert_external(&mut self, name: &str) -> SymbolIndex {
        self.external_prefixes.insert(name.as_bytes());
        let name = self.synthetic.add_name(name);
        self.push_symbol(GraphSymbol {
            name,
            definition: Definition::External,
            size: 0,
            binding: Binding::Global,
            is_hidden: false,
        })
    }

    /// Adds a local symbol at `offset` bytes in a block. In a block that was dropped it has no address.
    pub(crate) fn insert_local(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolIndex {
        let name = self.synthetic.add_name(name);
        let definition = self.in_memory(Definition::Block(block, offset));
        self.push_symbol(GraphSymbol { name, definition, size: 0, binding: Binding::Local, is_hidden: true })
    }

    /// Adds a local symbol with a fixed address, which need not be in this link.
    pub(crate) fn insert_local_absolute(&mut self, name: &str, address: ExecutorAddr) -> SymbolIndex {
        let definition = Definition::Absolute(address.value());
        let name = self.synthetic.add_name(name);
        self.push_symbol(GraphSymbol { name, definition, size: 0, binding: Binding::Local, is_hidden: true })
    }

    /// Makes a block come directly after another of the same segment.
    pub(crate) fn place_after(&mut self, first: BlockId, second: BlockId) {
        self.blocks[first.index()].followed_by = Some(second);
        self.has_followers = true;
    }

    /// Gives a symbol another name.
    pub(crate) fn rename_symbol(&mut self, symbol: SymbolIndex, name: &str) {
        self.external_prefixes.insert(name.as_bytes());
        self.symbols[symbol.index()].name = self.synthetic.add_name(name);
    }

    /// Turns a definition into a global external, because another object's definition of the name counts.
    pub(crate) fn make_external(&mut self, symbol: SymbolIndex) {
        let mut prefixes = self.external_prefixes;
        prefixes.insert(self.name_bytes(symbol));
        self.external_prefixes = prefixes;
        let symbol = &mut self.symbols[symbol.0 as usize];
        symbol.definition = Definition::External;
        symbol.binding = Binding::Global;
    }

    /// Defines an external for this link only: the symbol becomes local.
    pub(crate) fn set_definition(&mut self, symbol: SymbolIndex, definition: Definition) {
        let definition = self.in_memory(definition);
        let symbol = &mut self.symbols[symbol.0 as usize];
        symbol.definition = definition;
        symbol.binding = Binding::Local;
    }

    /// The definition, or [`Definition::Nowhere`] in a dropped block. Such a block is not laid out. Its symbols would
    /// get the address of the first block of the segment.
    pub(crate) fn in_memory(&self, definition: Definition) -> Definition {
        match definition {
            Definition::Block(block, _) if self.blocks[block.index()].is_dropped => Definition::Nowhere,
            other => other,
        }
    }
}

/// Alignment in bytes of machine code that the linker adds.
const CODE_ALIGN: u64 = 16;
