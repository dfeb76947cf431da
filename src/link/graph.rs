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
//! A plugin gets `&mut LinkGraph` before dead-stripping. It may add blocks, symbols and edges, and define externals. It
//! cannot remove anything. See [`PlanStage`](crate::link::PlanStage).
//!
//! # Positions
//! A [`BlockId`] or [`SymbolIndex`] is a position in the arrays of one graph. A method panics, or answers for another
//! block or symbol, if the position is of another graph.

use std::ops::Range;

use smallvec::SmallVec;

use crate::arch::{Arch, EdgeKind, KindSet};
use crate::base::{ExecutorAddr, RecycledVec, SegmentKind, impl_recycle, until_nul};
use crate::error::{Error, ErrorKind, LinkFault};
use crate::link::block_lines::BlockLines;
use crate::link::buffer::ObjectBuffer;
pub(crate) use crate::link::content::{Content, SyntheticData, Text};
pub use crate::link::definition::Definition;
pub use crate::link::edge::{BlockId, Edge, SymbolIndex};
use crate::link::graph_description::GraphDescription;
use crate::link::prefix_filter::PrefixFilter;
use crate::link::section_part::{Placement, RequestedBounds};
use crate::link::thread_local_plan::ThreadLocalPlace;
use crate::link::use_recorder::{ReferrerBit, UseRecorder};
use crate::sync::Arc;

impl_recycle!(Block, GraphSymbol, Edge, BlockId, SymbolIndex, Option<BlockId>, u8, u32, bool);

/// An object that is being linked.
#[derive(Default)]
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
    /// Number of symbols in the object's own symbol table. Added symbols follow them.
    pub(crate) own_symbol_count: u32,
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
}

/// A contiguous range of bytes that is placed as a unit: a section, a common symbol, or a table that the linker makes
/// (ORC: `jitlink::Block`).
#[derive(Debug)]
pub struct Block {
    pub(crate) name: Text,
    /// The kind of memory that the block goes to.
    pub pool: SegmentKind,
    pub(crate) content: Content,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// The block's edges, as a range of [`LinkGraph::edges`].
    pub(crate) edges: Range<u32>,
    /// The bit of this block in the [`UseRecorder`]. Valid only if the block has edges.
    pub(crate) referrer_bit: ReferrerBit,
    pub(crate) role: Role,
    /// Number of the COMDAT section group (gABI, "Section Groups") that the block belongs to.
    pub(crate) group: Option<u32>,
    /// The block of the section's `sh_link`, for a section with `SHF_LINK_ORDER`. Dead-stripping keeps this
    /// block if that one is live.
    pub(crate) linked_to: Option<BlockId>,
    /// Whether the block is a root of dead-stripping.
    pub(crate) is_retained: bool,
    /// Before layout: the block that must come directly after this one, because both have one name and the object
    /// refers to that name's bounds. From layout on: the next block with bytes in the same segment.
    pub(crate) followed_by: Option<BlockId>,
    /// Whether a root leads to the block. Dead-stripping sets it.
    pub(crate) is_live: bool,
    /// Whether the block was dropped with its group, or because no root leads to it. Such a block is not laid out and
    /// not copied.
    pub(crate) is_dropped: bool,
    /// Offset in bytes in the segment, or in the thread-local block. Zero before layout.
    pub(crate) offset: u64,
    /// The number of this block among the large sections, from layout on. Such a block is in no segment. The blocks in
    /// areas follow the large sections.
    pub(crate) large_index: Option<u32>,
}

/// The addresses of the memory of one link.
#[derive(Default)]
pub(crate) struct BlockAddresses {
    /// The segments, by [`SegmentKind::index`].
    pub(crate) segments: [ExecutorAddr; 3],
    /// The large sections and the blocks in areas, by [`Block::large_index`].
    pub(crate) large_sections: Vec<ExecutorAddr>,
    /// The thread-local block, if there is one. It is known later than the other addresses.
    pub(crate) thread_locals: Option<ThreadLocalPlace>,
}

impl BlockAddresses {
    /// The address of a block that is not thread-local. Call it after layout.
    #[inline]
    pub(crate) fn address(&self, block: &Block) -> ExecutorAddr {
        match block.large_index {
            Some(index) => self.large_sections[index as usize],
            None => self.segments[block.pool.index()].offset(block.offset),
        }
    }
}

/// What the linker must do with a block besides copying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    Plain,
    /// Unwind tables (`.eh_frame`).
    EhFrame,
    /// Part of the thread-local block, of which every thread has a copy (`SHF_TLS`).
    ThreadLocal,
    /// A fragment of `_init` or `_fini` (`.init`, `.fini`).
    InitFragment,
    /// The beginning of a function that the linker made of such fragments.
    FragmentFunction { kind: super::InitializerKind },
    /// A list of function addresses.
    Initializers {
        kind: super::InitializerKind,
        stage: super::InitializerStage,
        priority: u32,
        /// Whether the functions are called from the end of the list to its beginning.
        backward: bool,
    },
}

/// A symbol of an object (ORC: `jitlink::Symbol`). [`LinkGraph::symbol_name`] has its name.
#[derive(Debug)]
pub struct GraphSymbol {
    pub(crate) name: Text,
    /// What the symbol stands for.
    pub definition: Definition,
    /// Size in bytes, as the object states it (`st_size`). Zero if the object states none.
    pub size: u64,
    pub(crate) binding: Binding,
    /// Whether the visibility is not `STV_DEFAULT`. No shared library defines such a symbol.
    pub(crate) is_hidden: bool,
}

/// The binding of a symbol (gABI, "Symbol Binding"). `STB_GNU_UNIQUE` counts as global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Local,
    Global,
    Weak,
}

impl Block {
    #[inline]
    pub(crate) fn new(name: Text, pool: SegmentKind, content: Content, size: u64, align: u64) -> Block {
        Block {
            name,
            pool,
            content,
            size,
            align: align.max(1),
            edges: 0..0,
            referrer_bit: ReferrerBit::FIRST,
            role: Role::Plain,
            group: None,
            linked_to: None,
            is_retained: false,
            followed_by: None,
            is_live: false,
            is_dropped: false,
            offset: 0,
            large_index: None,
        }
    }

    /// Offset in bytes from the start of the segment, or of the thread-local block for a thread-local block. Zero
    /// before layout, for a dropped block, and for a block that [`is_large`](Self::is_large).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the block is in no segment: a large section with a mapping of its own, at any address, or a part of a
    /// section that several objects have. False before layout.
    pub fn is_large(&self) -> bool {
        self.large_index.is_some()
    }

    /// Whether the block has no bytes in the object and starts as zeroes (`SHT_NOBITS`, common symbols).
    pub fn is_zero_fill(&self) -> bool {
        matches!(self.content, Content::Zero)
    }

    /// Whether the linker or a plugin made the block.
    pub fn is_synthetic(&self) -> bool {
        matches!(self.content, Content::Synthetic(_) | Content::Table)
    }

    /// Whether the block was dropped with its section group or by dead-stripping. A dropped block takes no memory.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Whether the block holds fragments of initialisers or finalisers.
    pub(crate) fn is_fragment(&self) -> bool {
        self.role == Role::InitFragment && self.pool == SegmentKind::Code && !self.is_dropped && self.size > 0
    }

    /// The kind and priority of the functions that the block lists, if it is a list of initialisers or finalisers
    /// (gABI, "Initialization and Termination Functions"). A lower priority is initialised earlier.
    pub fn initializer_list(&self) -> Option<(super::InitializerKind, u32)> {
        match self.role {
            Role::Initializers { kind, priority, .. } => Some((kind, priority)),
            _ => None,
        }
    }
}

impl GraphSymbol {
    /// Whether the symbol is visible in its own object only (`STB_LOCAL`, or defined by [`LinkGraph::define`]).
    pub fn is_local(&self) -> bool {
        self.binding == Binding::Local
    }

    /// Whether another definition may replace this one. A weak external may stay undefined; its address is then null.
    pub fn is_weak(&self) -> bool {
        self.binding == Binding::Weak
    }
}

impl LinkGraph {
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
            own_symbol_count,
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
        (*first_global, *own_symbol_count) = (0, 0);
        (*external_prefixes, *kinds, *descriptor_function) = (PrefixFilter::default(), KindSet::default(), None);
        (*has_named_sections, *has_weak_externals) = (false, false);
        (*has_followers, *is_near_low_area) = (false, false);
        if !(requested_bounds.is_empty() && placements.is_empty()) {
            (*requested_bounds, *placements) = (Vec::new(), Vec::new());
        }
        if !(lines.is_empty() && description.is_none()) {
            (*lines, *description) = (Vec::new(), None);
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

    /// The section name of a block.
    ///
    /// # Panics
    /// If `block` is out of range.
    pub fn block_name(&self, block: BlockId) -> &str {
        self.text(&self.blocks[block.0 as usize].name)
    }

    /// The name of a symbol. Empty if it has none, or if the name is not UTF-8.
    ///
    /// # Panics
    /// If `symbol` is out of range.
    pub fn symbol_name(&self, symbol: SymbolIndex) -> &str {
        self.text(&self.symbols[symbol.0 as usize].name)
    }

    /// The name of a symbol as bytes. Cheaper than [`symbol_name`](Self::symbol_name), because nothing checks that it
    /// is UTF-8.
    ///
    /// # Panics
    /// If `symbol` is out of range.
    pub fn name_bytes(&self, symbol: SymbolIndex) -> &[u8] {
        self.name_bytes_in(&self.bytes, symbol)
    }

    fn name_bytes_in<'a>(&'a self, object: &'a [u8], symbol: SymbolIndex) -> &'a [u8] {
        self.text_in(object, &self.symbols[symbol.0 as usize].name)
    }

    fn text_in<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a [u8] {
        match text {
            Text::Object(range) => object.get(range.start as usize..range.end as usize).unwrap_or(&[]),
            Text::Terminated(start) => object.get(*start as usize..).and_then(until_nul).unwrap_or(&[]),
            Text::Fixed(text) => text.as_bytes(),
            Text::Synthetic(number) => self.synthetic.names[*number as usize].as_bytes(),
        }
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

    /// The external of this name, if the graph has one.
    #[inline] // so that the filter's bit of a constant name is a constant
    pub fn find_external(&self, name: &str) -> Option<SymbolIndex> {
        if self.may_have_external(name) { self.search_external(name) } else { None }
    }

    #[inline(never)] // few objects get here
    fn search_external(&self, name: &str) -> Option<SymbolIndex> {
        let object: &[u8] = &self.bytes;
        self.externals().find(|index| match &self.symbols[index.index()].name {
            // A different length answers most comparisons.
            Text::Object(range) if range.len() != name.len() => false,
            text => self.text_in(object, text) == name.as_bytes(),
        })
    }

    /// As [`externals`](Self::externals), with their names. Cheaper than a call of [`name_bytes`](Self::name_bytes) for
    /// each.
    pub(crate) fn named_externals(&self) -> impl Iterator<Item = (SymbolIndex, &[u8])> {
        // `ObjectBuffer::deref` is a virtual call; it is made once, not per symbol.
        let object: &[u8] = &self.bytes;
        self.externals().map(|index| (index, self.name_bytes_in(object, index)))
    }

    /// As [`name_bytes`](Self::name_bytes), for several symbols.
    pub(crate) fn names_of(&self, symbols: impl Iterator<Item = SymbolIndex>) -> impl Iterator<Item = &[u8]> {
        // `ObjectBuffer::deref` is a virtual call; it is made once, not per symbol.
        let object: &[u8] = &self.bytes;
        symbols.map(move |symbol| self.name_bytes_in(object, symbol))
    }

    /// Whether an external of this name may exist. If this returns false, there is none. `name` may also be a prefix of
    /// four bytes or more.
    #[inline]
    pub(crate) fn may_have_external(&self, name: &str) -> bool {
        self.external_prefixes.may_contain(name.as_bytes())
    }

    /// Whether an external with one of these names may exist. If this returns false, there is none.
    #[inline]
    pub(crate) fn may_have_any_external(&self, names: &PrefixFilter) -> bool {
        self.external_prefixes.may_intersect(names)
    }

    /// All symbols without a definition in the graph. The link looks up those that some edge uses.
    pub fn externals(&self) -> impl Iterator<Item = SymbolIndex> {
        let all = (self.first_global..self.symbols.len() as u32).map(SymbolIndex);
        all.filter(|index| self.symbols[index.index()].definition == Definition::External)
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

    pub(crate) fn text<'a>(&'a self, text: &Text) -> &'a str {
        self.text_of(&self.bytes, text)
    }

    /// As [`text`](Self::text), for an object that is still being read and whose bytes are not in the graph yet.
    pub(crate) fn text_of<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a str {
        match text {
            Text::Fixed(text) => text,
            Text::Synthetic(number) => &self.synthetic.names[*number as usize],
            // The reader checked names that it made ranges of. A `Terminated` name may be other than UTF-8.
            _ => std::str::from_utf8(self.text_in(object, text)).unwrap_or(""),
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
