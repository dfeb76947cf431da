//! [`LinkGraph`]: one object as arrays of blocks, symbols and edges (ORC: `jitlink::LinkGraph`).
//!
//! ```text
//!   blocks:  [ .text │ .rodata │ .data │ … │ GOT │ stubs ]     one per section, then those that the linker adds
//!               │ edges: a range of `edges`
//!               ▼
//!   edges:   [ (offset, kind, symbol, addend) … ]
//!                               │
//!   symbols: [ null │ .text │ main │ printf … ]                in the object's order: an ELF symbol index is an index here
//! ```
//!
//! Names and contents are ranges of the object's bytes. The link copies the bytes once, when it has memory. The graph
//! has no lifetime parameter, so a link can wait for its externals without a stack frame.
//!
//! # Changes by plugins
//! A plugin gets `&mut LinkGraph` before and after dead-stripping. `changes/` has the methods by which it changes the graph,
//! and what is checked afterwards. See [`PlanStage`](crate::link::PlanStage).
//!
//! # Positions
//! A [`BlockId`] or [`SymbolIndex`] is a position in the arrays of one graph. With a position of another graph, a method that
//! reads panics or answers for another block or symbol; a method that changes the graph refuses it, or changes another one.

use smallvec::SmallVec;

use crate::arch::{Arch, EdgeKind, KindSet};
use crate::base::{ExecutorAddr, RecycledVec, SegmentKind, impl_recycle};
use crate::error::{Error, ErrorKind, LinkFault};
pub use crate::link::block::Block;
pub(crate) use crate::link::block::{BlockAddresses, Role};
use crate::link::block_lines::BlockLines;
use crate::link::buffer::ObjectBuffer;
use crate::link::change_record::ChangeRecord;
pub(crate) use crate::link::content::{Content, SyntheticData, Text};
pub use crate::link::definition::Definition;
pub use crate::link::edge::{BlockId, Edge, SymbolIndex};
use crate::link::graph_description::GraphDescription;
pub(crate) use crate::link::graph_symbol::Binding;
pub use crate::link::graph_symbol::GraphSymbol;
use crate::link::prefix_filter::PrefixFilter;
use crate::link::section_part::{Placement, RequestedBounds};
use crate::link::use_recorder::UseRecorder;
use crate::sync::Arc;

impl_recycle!(Block, GraphSymbol, Edge, BlockId, SymbolIndex, Option<BlockId>, u8, u32, bool);

/// An object that is being linked.
pub struct LinkGraph {
    /// `None` before an object is read.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) bytes: ObjectBuffer,
    /// Whether a generator built the graph, so that `bytes` is no object.
    pub(crate) is_built: bool,
    /// The architecture of the object.
    pub(crate) arch: Arch,
    /// Whether the object says that it marks the entries that indirect branches may reach ([`Arch::is_mark_property`]).
    pub(crate) marks_entries: bool,
    pub(crate) blocks: RecycledVec<Block>,
    pub(crate) symbols: RecycledVec<GraphSymbol>,
    pub(crate) edges: RecycledVec<Edge>,
    /// The block of each section of the object, by section index.
    pub(crate) block_of: RecycledVec<Option<BlockId>>,
    /// Blocks whose role is not [`Role::Plain`], in order.
    pub(crate) special: SmallVec<[BlockId; 4]>,
    /// Bytes and names that are not in the object. Blocks and symbols refer to them by number and own nothing, so
    /// dropping the arrays of a link runs no destructor per element.
    pub(crate) synthetic: SyntheticData,
    /// The symbol of the signature of each COMDAT section group. A block's `group` is an index here. The symbol may not
    /// exist.
    pub(crate) group_signatures: RecycledVec<SymbolIndex>,
    /// Symbols of type `STT_GNU_IFUNC`, whose definition is a resolver. `indirect.rs` gives them stubs and clears the
    /// list.
    pub(crate) indirect: Vec<SymbolIndex>,
    /// Externals whose sizes the link needs, ascending.
    pub(crate) sized_externals: Vec<SymbolIndex>,
    /// Common symbols that another definition replaces, ascending, each with the alignment in bytes that the object needs.
    pub(crate) lost_commons: Vec<(SymbolIndex, u64)>,
    /// Index of the first symbol that is not local. The symbols that the linker adds follow all of the object's.
    pub(crate) first_global: u32,
    /// Prefixes of the names of all externals. Answers most searches for rare names without a walk.
    pub(crate) external_prefixes: PrefixFilter,
    /// Whether the object has weak references: undefined symbols of weak binding.
    pub(crate) has_weak_externals: bool,
    /// Every edge kind in `edges`.
    pub(crate) kinds: KindSet,
    /// What the edges use each symbol for.
    pub(crate) use_recorder: UseRecorder,
    /// The function that TLS descriptors point to, if the object has descriptors.
    pub(crate) descriptor_function: Option<SymbolIndex>,
    /// Whether a section's name may be a C identifier, so that `__start_NAME` and `__stop_NAME` may name it. May be
    /// true for other objects, too.
    pub(crate) has_named_sections: bool,
    /// The sections whose `__start_` or `__stop_` symbols the object refers to.
    pub(crate) requested_bounds: Vec<RequestedBounds>,
    /// Source lines that a generator handed over.
    pub(crate) lines: Vec<BlockLines>,
    /// What a generator handed over, for the verifier. `None` for a graph of an object.
    pub(crate) description: Option<Box<GraphDescription>>,
    /// The parts of sections that are not in the memory of this link alone, but in an area. Empty once memory is
    /// allocated.
    pub(crate) placements: Vec<Placement>,
    /// Whether some block has one that must come directly after it: [`Block::followed_by`].
    pub(crate) has_followers: bool,
    /// Whether the object has parts or bounds in an area below 2 GiB, which only memory there reaches.
    pub(crate) is_near_low_area: bool,
    /// Whether large sections stay in the window, because the memory manager has no memory outside of it.
    pub(crate) keeps_large_sections: bool,
    /// What plugins have changed. `None` if they changed nothing.
    pub(crate) changes: Option<Box<ChangeRecord>>,
}

impl LinkGraph {
    /// A graph without an object. There is no public constructor, so a plugin has no graph that it could put into the place
    /// of another one.
    pub(crate) fn empty() -> LinkGraph {
        LinkGraph {
            name: None,
            bytes: ObjectBuffer::default(),
            is_built: false,
            arch: Arch::default(),
            marks_entries: false,
            blocks: RecycledVec::new(),
            symbols: RecycledVec::new(),
            edges: RecycledVec::new(),
            block_of: RecycledVec::new(),
            special: SmallVec::new(),
            synthetic: SyntheticData::default(),
            group_signatures: RecycledVec::new(),
            indirect: Vec::new(),
            sized_externals: Vec::new(),
            lost_commons: Vec::new(),
            first_global: 0,
            external_prefixes: PrefixFilter::default(),
            has_weak_externals: false,
            kinds: KindSet::default(),
            use_recorder: UseRecorder::default(),
            descriptor_function: None,
            has_named_sections: false,
            requested_bounds: Vec::new(),
            lines: Vec::new(),
            description: None,
            placements: Vec::new(),
            has_followers: false,
            is_near_low_area: false,
            keeps_large_sections: false,
            changes: None,
        }
    }

    /// Clears the graph and keeps the buffers of its arrays for the next object.
    pub(crate) fn reset(&mut self) {
        // Without `..`, so that a new field must be handled here.
        let LinkGraph {
            name,
            bytes,
            is_built,
            arch,
            marks_entries,
            blocks,
            symbols,
            edges,
            block_of,
            special,
            synthetic,
            group_signatures,
            indirect,
            sized_externals,
            lost_commons,
            first_global,
            external_prefixes,
            has_weak_externals,
            kinds,
            use_recorder,
            descriptor_function,
            has_named_sections,
            requested_bounds,
            lines,
            description,
            placements,
            has_followers,
            is_near_low_area,
            keeps_large_sections,
            changes,
        } = self;
        (*name, *bytes, *is_built) = (None, ObjectBuffer::default(), false);
        (*arch, *marks_entries) = (Arch::default(), false);
        blocks.reset();
        symbols.reset();
        edges.reset();
        block_of.reset();
        use_recorder.reset();
        group_signatures.reset();
        // Few objects use the following; their buffers are freed.
        *special = SmallVec::new();
        if !synthetic.is_empty() {
            *synthetic = SyntheticData::default();
        }
        if !(indirect.is_empty() && lost_commons.is_empty() && sized_externals.is_empty()) {
            (*indirect, *lost_commons, *sized_externals) = (Vec::new(), Vec::new(), Vec::new());
        }
        *first_global = 0;
        (*external_prefixes, *kinds, *descriptor_function) = (PrefixFilter::default(), KindSet::default(), None);
        (*has_named_sections, *has_weak_externals) = (false, false);
        (*has_followers, *is_near_low_area, *keeps_large_sections) = (false, false, false);
        if !(requested_bounds.is_empty() && placements.is_empty()) {
            (*requested_bounds, *placements) = (Vec::new(), Vec::new());
        }
        if !(lines.is_empty() && description.is_none() && changes.is_none()) {
            (*lines, *description, *changes) = (Vec::new(), None, None);
        }
    }

    /// The psABI's name of the relocation of a kind of edge, on the architecture of the object.
    pub fn relocation_name(&self, kind: EdgeKind) -> &'static str {
        self.arch.relocation_name(kind)
    }

    /// The object's name, as it stands in errors.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// All blocks, dropped ones included, in the order of their positions.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().enumerate().map(|(index, block)| (BlockId(index as u32), block))
    }

    /// Blocks whose role is not [`Role::Plain`].
    pub(crate) fn special(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.special.iter().map(|id| (*id, &self.blocks[id.index()]))
    }

    /// All symbols, in the order of their positions. The first is the null symbol.
    pub fn symbols(&self) -> impl Iterator<Item = (SymbolIndex, &GraphSymbol)> {
        self.symbols.iter().enumerate().map(|(index, symbol)| (SymbolIndex(index as u32), symbol))
    }

    /// Whether code of the object may hold 32-bit addresses.
    pub(crate) fn may_need_low_memory(&self) -> bool {
        self.kinds.has_any_of(KindSet::LOW)
    }

    /// Whether the object has sections that list initialisers or finalisers, or that hold fragments of them (`.init`,
    /// `.fini`).
    pub fn has_initializers(&self) -> bool {
        self.special().any(|(_, block)| block.initializer_list().is_some() || block.is_fragment())
    }

    /// The machine that the code is for: `e_machine` of the ELF header.
    pub fn machine(&self) -> u16 {
        self.arch.e_machine()
    }

    /// The definition of a symbol.
    ///
    /// # Panics
    /// If `symbol` is out of range.
    pub fn definition(&self, symbol: SymbolIndex) -> Definition {
        self.symbols[symbol.0 as usize].definition
    }

    /// The edges of a block, in the order of its relocations.
    ///
    /// # Panics
    /// If `block` is out of range.
    pub fn edges(&self, block: BlockId) -> &[Edge] {
        let edges = &self.blocks[block.0 as usize].edges;
        &self.edges[edges.start as usize..edges.end as usize]
    }

    /// The edges of all blocks that are not dropped.
    pub(crate) fn live_edges(&self) -> impl Iterator<Item = &Edge> {
        let blocks = self.blocks().filter(|(_, block)| !block.is_dropped);
        blocks.flat_map(|(id, _): (BlockId, _)| self.edges(id))
    }

    /// Gives the symbols of dropped blocks the definition [`Definition::Nowhere`].
    pub(crate) fn undefine_dropped(&mut self) {
        for symbol in self.symbols.iter_mut() {
            if let Definition::Block(block, _) = symbol.definition
                && self.blocks[block.index()].is_dropped
            {
                symbol.definition = Definition::Nowhere;
            }
        }
    }

    pub(crate) fn push_symbol(&mut self, symbol: GraphSymbol) -> SymbolIndex {
        self.symbols.push(symbol);
        SymbolIndex(self.symbols.len() as u32 - 1)
    }

    pub(crate) fn push_block(
        &mut self,
        name: Text,
        pool: SegmentKind,
        content: Content,
        size: u64,
        align: u64,
    ) -> BlockId {
        self.push(Block::new(name, pool, content, size, align))
    }

    pub(crate) fn push(&mut self, block: Block) -> BlockId {
        self.blocks.push(block);
        BlockId(self.blocks.len() as u32 - 1)
    }

    /// The bytes of a block. `None` for zero-fill, and for bytes that the fixup phase or a generator writes.
    pub(crate) fn content<'a>(&'a self, block: &'a Block) -> Option<&'a [u8]> {
        // The reader checked every range against the object's length.
        self.content_in(&self.bytes, block)
    }

    /// As [`content`](Self::content), with the object's bytes at hand.
    #[inline(always)]
    pub(crate) fn content_in<'a>(&'a self, bytes: &'a [u8], block: &'a Block) -> Option<&'a [u8]> {
        match &block.content {
            Content::Object(range) => Some(&bytes[range.clone()]),
            Content::Synthetic(number) => Some(&self.synthetic.contents[*number as usize]),
            Content::Given(number) => self.synthetic.given[*number as usize].bytes(),
            Content::Table | Content::Zero => None,
        }
    }

    /// Writes the bytes of a block that a generator writes in place into its memory. Does nothing for other blocks.
    pub(crate) fn write_given(&self, block: &Block, memory: &mut [u8]) {
        if let Content::Given(number) = block.content {
            self.synthetic.given[number as usize].write(memory);
        }
    }

    /// The address of a block that is not thread-local. Call it after layout.
    pub(crate) fn block_address(&self, block: BlockId, addresses: &BlockAddresses) -> ExecutorAddr {
        addresses.address(&self.blocks[block.0 as usize])
    }

    /// An error of this object.
    pub(crate) fn fault(&self, fault: LinkFault) -> Error {
        ErrorKind::Link { object: self.name().to_string(), fault }.into()
    }
}
