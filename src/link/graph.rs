//! [`LinkGraph`]: one object as arrays of blocks, symbols and edges.
//!
//! ```text
//!   blocks:  [ .text │ .rodata │ .data │ … │ GOT │ stubs ]     one per section, then what the linker makes
//!               │ edges: a range of `edges`
//!               ▼
//!   edges:   [ (offset, kind, symbol, addend) … ]
//!                               │
//!   symbols: [ null │ .text │ main │ printf … ]                the object's own order, so an ELF index is an index here
//! ```
//!
//! Names and contents are ranges of the object's bytes: nothing is copied before there is memory to copy it to. The
//! graph has no lifetime, so a link can wait for its externals without holding a stack.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, RecycledVec, SegmentKind, ahead_of_null, impl_recycle};
use crate::error::{Error, ErrorKind, LinkFault};
use crate::link::buffer::ObjectBuffer;
use crate::link::thread_locals::ThreadLocalPlace;
use crate::link::use_recorder::{self, ReferrerBit, UseRecorder};
use crate::link::x86_64::{EdgeKind, KindSet};
use crate::sync::Arc;

impl_recycle!(Block, Symbol, Edge, BlockId, SymbolIndex, Option<BlockId>, u8, u32, bool);

/// An object being linked.
#[derive(Default)]
pub struct LinkGraph {
    /// None, if there is no object yet.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) bytes: ObjectBuffer,
    pub(crate) blocks: RecycledVec<Block>,
    pub(crate) symbols: RecycledVec<Symbol>,
    pub(crate) edges: RecycledVec<Edge>,
    /// By section of the object.
    pub(crate) block_of: RecycledVec<Option<BlockId>>,
    /// Blocks whose role is not plain, in order.
    pub(crate) special: SmallVec<[BlockId; 4]>,
    /// Bytes and names that did not come with the object. Blocks and symbols say which are theirs, and own nothing: so many
    /// of them need not be looked at when the link ends.
    pub(crate) made: SyntheticData,
    /// Number of section groups; blocks name theirs.
    pub(crate) group_count: u32,
    /// Symbols whose definition is the resolver of an indirect function, until they have stubs.
    pub(crate) indirect: Vec<SymbolIndex>,
    /// The first symbol that is not local; the linker's own stand behind all of the object's.
    pub(crate) first_global: u32,
    /// How many symbols the object has itself; what was added stands behind them.
    pub(crate) own_symbol_count: u32,
    /// How the names of its externals begin, for those who look for one that few objects have.
    pub(crate) beginnings: PrefixFilter,
    /// Every kind of edge that the object has, or was given.
    pub(crate) kinds: KindSet,
    /// What the edges use symbols for.
    pub(crate) uses: UseRecorder,
    /// The function behind the descriptors of thread-local variables, if there are any.
    pub(crate) descriptor_function: Option<SymbolIndex>,
    /// Whether it has a section with bytes whose name is a C identifier: one that may be asked for its bounds.
    pub(crate) has_named_sections: bool,
    /// The sections that it asks for the bounds of.
    pub(crate) asked_bounds: Vec<AskedBounds>,
}

/// A section whose bounds an object asks for.
#[derive(Debug)]
pub(crate) struct AskedBounds {
    pub(crate) section: Box<str>,
    /// Whether the object has a section of that name itself.
    pub(crate) has_own: bool,
}

/// Position of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(crate) u32);

/// Position of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolIndex(pub(crate) u32);

/// A contiguous piece of one pool.
#[derive(Debug)]
pub struct Block {
    pub(crate) name: Text,
    /// The pool it goes to.
    pub pool: SegmentKind,
    pub(crate) content: Content,
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    pub(crate) edges: Range<u32>,
    /// Which source these are, if there are any.
    pub(crate) source: ReferrerBit,
    pub(crate) role: Role,
    /// The section group that it belongs to.
    pub(crate) group: Option<u32>,
    /// The section that it says something about: lives and dies with that one.
    pub(crate) linked_to: Option<BlockId>,
    /// Kept, whoever refers to it.
    pub(crate) is_retained: bool,
    /// The block that must stand behind it: of the same name, when somebody asks for that name's bounds. From layout on, the
    /// one that does: the next with bytes in its segment.
    pub(crate) followed_by: Option<BlockId>,
    /// Something leads to it: known when the graph is pruned.
    pub(crate) is_live: bool,
    /// Dropped with its group, or because nothing leads to it: not laid out, not copied.
    pub(crate) is_dropped: bool,
    /// Offset in its pool's segment, from layout on.
    pub(crate) offset: u64,
    /// Its number among the sections apart, from layout on, if it is one: then it is in no segment.
    pub(crate) apart: Option<u32>,
}

/// Where a link's memory stands.
#[derive(Default)]
pub(crate) struct Places {
    /// Its segments, by pool.
    pub(crate) segments: [ExecutorAddr; 3],
    /// Its sections apart.
    pub(crate) apart: Vec<ExecutorAddr>,
    /// Its thread-local block, if it has one: known a little later than the others.
    pub(crate) thread_locals: Option<ThreadLocalPlace>,
}

impl Places {
    /// A block's address, from layout on.
    #[inline]
    pub(crate) fn address(&self, block: &Block) -> ExecutorAddr {
        match block.apart {
            Some(index) => self.apart[index as usize],
            None => self.segments[block.pool.index()].offset(block.offset),
        }
    }
}

/// What the linker must do with a block beyond copying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    EhFrame,
    /// Part of what every thread gets a copy of.
    TlsIndex,
    /// A part of `_init` or `_fini`.
    InitFragment,
    Initializers {
        kind: super::InitializerKind,
        priority: u32,
        backward: bool,
    },
}

/// Where a block's bytes come from.
#[derive(Debug)]
pub(crate) enum Content {
    /// A range of the object.
    Object(Range<usize>),
    /// Bytes that the linker made, by their number.
    SyntheticData(u32),
    /// A table of the linker's, all of which is written when everything is fixed up.
    Table,
    /// Zeroes.
    Zero,
}

/// A name: of the object, or of the linker.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    Object(Range<u32>),
    /// From there to the next null byte: measured when somebody asks. Most local symbols are never asked for their names.
    Terminated(u32),
    /// Of the linker itself.
    Fixed(&'static str),
    /// By its number.
    SyntheticData(u32),
}

/// What others than the object brought.
#[derive(Default)]
pub(crate) struct SyntheticData {
    contents: Vec<RecycledVec<u8>>,
    names: Vec<Box<str>>,
}

impl SyntheticData {
    pub(crate) fn content(&mut self, content: RecycledVec<u8>) -> Content {
        self.contents.push(content);
        Content::SyntheticData(self.contents.len() as u32 - 1)
    }

    pub(crate) fn name(&mut self, name: &str) -> Text {
        self.names.push(Box::from(name));
        Text::SyntheticData(self.names.len() as u32 - 1)
    }
}

/// A symbol of the object.
#[derive(Debug)]
pub struct Symbol {
    pub(crate) name: Text,
    /// Where it is.
    pub definition: Definition,
    /// Bytes, as the object says.
    pub size: u64,
    pub(crate) binding: Binding,
    /// Whether no shared library's can be meant.
    pub(crate) is_hidden: bool,
}

/// Where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// In a block, at an offset.
    Block(BlockId, u64),
    /// A fixed value.
    Absolute(u64),
    /// Elsewhere: looked up by name.
    External,
    /// In a section that is not in memory, or was dropped.
    Nowhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Local,
    Global,
    Weak,
}

/// A place in a block whose bytes depend on where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Offset in the block.
    pub offset: u32,
    /// How the value is computed and stored.
    pub kind: EdgeKind,
    /// What it refers to.
    pub symbol: SymbolIndex,
    /// The addend.
    pub addend: i64,
}

/// A set of beginnings of names, four bytes each, that may say of others, too, that it has them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PrefixFilter([u64; 4]);

impl PrefixFilter {
    pub(crate) fn add(&mut self, name: &[u8]) {
        let bit = PrefixFilter::bit(name);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn has(&self, name: &[u8]) -> bool {
        let bit = PrefixFilter::bit(name);
        self.0[bit / 64] & 1 << (bit % 64) != 0
    }

    /// Those of some names.
    pub(crate) const fn of(names: &[&str]) -> PrefixFilter {
        let (mut words, mut number) = ([0; 4], 0);
        while number < names.len() {
            let bit = PrefixFilter::bit(names[number].as_bytes());
            words[bit / 64] |= 1 << (bit % 64);
            number += 1;
        }
        PrefixFilter(words)
    }

    /// Whether some name of the one may be a name of the other.
    pub(crate) fn has_any_of(&self, other: &PrefixFilter) -> bool {
        self.0.iter().zip(&other.0).fold(0, |both, (own, others)| both | own & others) != 0
    }

    const fn bit(name: &[u8]) -> usize {
        let first = match *name {
            [a, b, c, d, ..] => [a, b, c, d],
            [a, b, c] => [a, b, c, 0],
            [a, b] => [a, b, 0, 0],
            [a] => [a, 0, 0, 0],
            [] => [0; 4],
        };
        // Knuth's multiplier: the upper bits depend on all of the lower.
        (u32::from_le_bytes(first).wrapping_mul(0x9e37_79b1) >> 24) as usize
    }
}

impl BlockId {
    /// Position among the graph's blocks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl SymbolIndex {
    /// Position among the graph's symbols: for those that the object has itself, their number there.
    pub fn index(self) -> usize {
        self.0 as usize
    }
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
            source: ReferrerBit::FIRST,
            role: Role::Plain,
            group: None,
            linked_to: None,
            is_retained: false,
            followed_by: None,
            is_live: false,
            is_dropped: false,
            offset: 0,
            apart: None,
        }
    }

    /// Offset in its pool's segment; zero before layout, and for what was dropped or [is apart](Self::is_apart).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether it is in no segment, but placed by itself anywhere in the address space; false before layout.
    pub fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Whether it has no bytes of its own in the object, and is zero at first.
    pub fn is_zero_fill(&self) -> bool {
        matches!(self.content, Content::Zero)
    }

    /// Whether the linker made it.
    pub fn is_made(&self) -> bool {
        matches!(self.content, Content::SyntheticData(_) | Content::Table)
    }

    /// Whether it was dropped with its section group, or because nothing leads to it: then it takes no memory.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// What its words list, if they are addresses of initialisers or finalisers, and with which priority.
    pub fn initializer_list(&self) -> Option<(super::InitializerKind, u32)> {
        match self.role {
            Role::Initializers { kind, priority, .. } => Some((kind, priority)),
            Role::Plain | Role::EhFrame | Role::TlsIndex | Role::InitFragment => None,
        }
    }
}

impl Symbol {
    /// Whether only its own object sees it.
    pub fn is_local(&self) -> bool {
        self.binding == Binding::Local
    }

    /// Whether another definition may stand in for it or, where it is external, none at all.
    pub fn is_weak(&self) -> bool {
        self.binding == Binding::Weak
    }
}

impl LinkGraph {
    /// Lets go of the object, and of everything but room for the next.
    pub(crate) fn empty(&mut self) {
        // All of them, so that none is forgotten.
        let LinkGraph {
            name,
            bytes,
            blocks,
            symbols,
            edges,
            block_of,
            special,
            made,
            group_count,
            indirect,
            first_global,
            own_symbol_count,
            beginnings,
            kinds,
            uses,
            descriptor_function,
            has_named_sections,
            asked_bounds,
        } = self;
        (*name, *bytes) = (None, ObjectBuffer::default());
        blocks.empty();
        symbols.empty();
        edges.empty();
        block_of.empty();
        uses.empty();
        // Mostly there are none, or few: their room is not worth keeping, whatever it was.
        (*special, *made, *indirect) = (SmallVec::new(), SyntheticData::default(), Vec::new());
        (*group_count, *first_global, *own_symbol_count) = (0, 0, 0);
        (*beginnings, *kinds, *descriptor_function) = (PrefixFilter::default(), KindSet::default(), None);
        (*has_named_sections, *asked_bounds) = (false, Vec::new());
    }

    /// What the object is called in errors.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// All blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().enumerate().map(|(index, block)| (BlockId(index as u32), block))
    }

    /// Blocks whose role is not plain.
    pub(crate) fn special(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.special.iter().map(|id| (*id, &self.blocks[id.index()]))
    }

    /// All symbols.
    pub fn symbols(&self) -> impl Iterator<Item = (SymbolIndex, &Symbol)> {
        self.symbols.iter().enumerate().map(|(index, symbol)| (SymbolIndex(index as u32), symbol))
    }

    /// Whether it has sections that list initialisers or finalisers.
    pub fn has_initializers(&self) -> bool {
        self.special().any(|(_, block)| block.initializer_list().is_some())
    }

    /// A block's section name.
    pub fn block_name(&self, block: BlockId) -> &str {
        self.text(&self.blocks[block.0 as usize].name)
    }

    /// A symbol's name; empty for those that have none.
    pub fn symbol_name(&self, symbol: SymbolIndex) -> &str {
        self.text(&self.symbols[symbol.0 as usize].name)
    }

    /// As [`symbol_name`](Self::symbol_name), before anybody has made sure that it is text: cheaper to compare.
    pub fn name_bytes(&self, symbol: SymbolIndex) -> &[u8] {
        self.name_bytes_in(&self.bytes, symbol)
    }

    fn name_bytes_in<'a>(&'a self, object: &'a [u8], symbol: SymbolIndex) -> &'a [u8] {
        self.text_in(object, &self.symbols[symbol.0 as usize].name)
    }

    fn text_in<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a [u8] {
        match text {
            Text::Object(range) => object.get(range.start as usize..range.end as usize).unwrap_or(&[]),
            Text::Terminated(start) => object.get(*start as usize..).and_then(ahead_of_null).unwrap_or(&[]),
            Text::Fixed(text) => text.as_bytes(),
            Text::SyntheticData(number) => self.made.names[*number as usize].as_bytes(),
        }
    }

    /// A symbol's definition.
    pub fn definition(&self, symbol: SymbolIndex) -> Definition {
        self.symbols[symbol.0 as usize].definition
    }

    /// The edges of a block.
    pub fn edges(&self, block: BlockId) -> &[Edge] {
        let edges = &self.blocks[block.0 as usize].edges;
        &self.edges[edges.start as usize..edges.end as usize]
    }

    /// The external of this name, if the object has one.
    pub fn find_external(&self, name: &str) -> Option<SymbolIndex> {
        if !self.may_have_external(name) {
            return None;
        }
        let object: &[u8] = &self.bytes;
        self.externals().find(|index| match &self.symbols[index.index()].name {
            // Mostly the length says that it is not.
            Text::Object(range) if range.len() != name.len() => false,
            text => self.text_in(object, text) == name.as_bytes(),
        })
    }

    /// As [`externals`](Self::externals), with their names: cheaper than to ask for each.
    pub(crate) fn named_externals(&self) -> impl Iterator<Item = (SymbolIndex, &[u8])> {
        // Asking a holder for its bytes is done once.
        let object: &[u8] = &self.bytes;
        self.externals().map(|index| (index, self.name_bytes_in(object, index)))
    }

    /// As [`name_bytes`](Self::name_bytes), of several.
    pub(crate) fn names_of(&self, symbols: impl Iterator<Item = SymbolIndex>) -> impl Iterator<Item = &[u8]> {
        // Asking a holder for its bytes is done once.
        let object: &[u8] = &self.bytes;
        symbols.map(move |symbol| self.name_bytes_in(object, symbol))
    }

    /// False when no external's name begins as this one does, or as this beginning of four bytes or more.
    pub(crate) fn may_have_external(&self, name: &str) -> bool {
        self.beginnings.has(name.as_bytes())
    }

    /// All symbols that are looked up, if anything uses them.
    pub fn externals(&self) -> impl Iterator<Item = SymbolIndex> {
        let all = (self.first_global..self.symbols.len() as u32).map(SymbolIndex);
        all.filter(|index| self.symbols[index.index()].definition == Definition::External)
    }

    /// Adds a block that the linker makes.
    pub fn add_block(
        &mut self,
        name: &str,
        pool: SegmentKind,
        content: Vec<u8>,
        align: u64,
        edges: &[Edge],
    ) -> BlockId {
        let size = content.len() as u64;
        let (name, content) = (self.made.name(name), self.made.content(content.into_iter().collect()));
        let id = self.push_block(name, pool, content, size, align);
        self.push_edges(id, edges);
        id
    }

    /// Gives a block that was added empty its bytes and edges: for bytes that refer to themselves.
    pub(crate) fn fill_block(&mut self, id: BlockId, content: Vec<u8>, edges: &[Edge]) {
        let block = &mut self.blocks[id.index()];
        block.size = content.len() as u64;
        block.content = self.made.content(content.into_iter().collect());
        self.push_edges(id, edges);
    }

    /// Gives a block that has no edges its own.
    fn push_edges(&mut self, id: BlockId, edges: &[Edge]) {
        let first = self.edges.len() as u32;
        self.edges.extend_from_slice(edges);
        self.blocks[id.index()].edges = first..self.edges.len() as u32;
        if edges.is_empty() {
            return;
        }
        let source = self.uses.begin_source();
        self.blocks[id.index()].source = source;
        self.uses.cover(self.symbols.len());
        for edge in edges {
            self.kinds.insert(edge.kind);
            self.uses.words()[edge.symbol.index()] |= use_recorder::uses(edge.kind) | source.bit();
        }
    }

    /// Symbols of dropped blocks are nowhere.
    pub(crate) fn forget_dropped(&mut self) {
        for symbol in self.symbols.iter_mut() {
            if let Definition::Block(block, _) = symbol.definition
                && self.blocks[block.index()].is_dropped
            {
                symbol.definition = Definition::Nowhere;
            }
        }
    }

    /// Adds an external that the object itself does not name.
    pub fn add_external(&mut self, name: &str) -> SymbolIndex {
        self.beginnings.add(name.as_bytes());
        let name = self.made.name(name);
        self.push_symbol(Symbol {
            name,
            definition: Definition::External,
            size: 0,
            binding: Binding::Global,
            is_hidden: false,
        })
    }

    /// Adds a local symbol.
    pub fn add_local(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolIndex {
        let name = self.made.name(name);
        self.push_symbol(Symbol {
            name,
            definition: Definition::Block(block, offset),
            size: 0,
            binding: Binding::Local,
            is_hidden: true,
        })
    }

    /// Adds a local symbol with a fixed address.
    pub fn add_local_absolute(&mut self, name: &str, address: ExecutorAddr) -> SymbolIndex {
        let definition = Definition::Absolute(address.value());
        let name = self.made.name(name);
        self.push_symbol(Symbol { name, definition, size: 0, binding: Binding::Local, is_hidden: true })
    }

    /// Adds a weak definition that others see. If the name is taken when the plugins are done, it becomes an external, as
    /// the object's own weak definitions do.
    pub fn add_weak(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolIndex {
        let name = self.made.name(name);
        self.push_symbol(Symbol {
            name,
            definition: Definition::Block(block, offset),
            size: 0,
            binding: Binding::Weak,
            is_hidden: false,
        })
    }

    /// What was added with [`add_weak`](Self::add_weak), and whether it is code.
    pub(crate) fn added_weak(&self) -> Vec<(SymbolIndex, bool)> {
        let code = |block: BlockId| self.blocks[block.index()].pool == SegmentKind::Code;
        let own = self.own_symbol_count as usize;
        let (first, symbols) = (self.own_symbol_count, self.symbols.get(own..).unwrap_or_default());
        if symbols.is_empty() {
            return Vec::new();
        }
        let added = (first..).zip(symbols).filter_map(|(index, symbol)| match (&symbol.name, symbol.definition) {
            (Text::SyntheticData(_), Definition::Block(block, _)) if symbol.binding == Binding::Weak => {
                Some((SymbolIndex(index), code(block)))
            }
            _ => None,
        });
        added.collect()
    }

    /// Somebody else's definition counts.
    pub(crate) fn disown(&mut self, symbol: SymbolIndex) {
        let mut beginnings = self.beginnings;
        beginnings.add(self.name_bytes(symbol));
        self.beginnings = beginnings;
        let symbol = &mut self.symbols[symbol.0 as usize];
        symbol.definition = Definition::External;
        symbol.binding = Binding::Global;
    }

    /// Gives an external a definition of this link's own: it is not looked up then, and nobody else sees it.
    pub fn define(&mut self, symbol: SymbolIndex, definition: Definition) {
        let symbol = &mut self.symbols[symbol.0 as usize];
        symbol.definition = definition;
        symbol.binding = Binding::Local;
    }

    pub(crate) fn push_symbol(&mut self, symbol: Symbol) -> SymbolIndex {
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

    /// A block's bytes; `None` for zero-fill, and for what is written later.
    pub(crate) fn content<'a>(&'a self, block: &'a Block) -> Option<&'a [u8]> {
        // The reader checked every range against the object's length.
        self.content_in(&self.bytes, block)
    }

    pub(crate) fn content_in<'a>(&'a self, bytes: &'a [u8], block: &'a Block) -> Option<&'a [u8]> {
        match &block.content {
            Content::Object(range) => Some(&bytes[range.clone()]),
            Content::SyntheticData(number) => Some(&self.made.contents[*number as usize]),
            Content::Table | Content::Zero => None,
        }
    }

    pub(crate) fn text<'a>(&'a self, text: &Text) -> &'a str {
        self.text_of(&self.bytes, text)
    }

    /// The same, of an object that is being read.
    pub(crate) fn text_of<'a>(&'a self, object: &'a [u8], text: &Text) -> &'a str {
        match text {
            Text::Fixed(text) => text,
            Text::SyntheticData(number) => &self.made.names[*number as usize],
            // The reader made ranges only of what it had seen to be UTF-8.
            _ => std::str::from_utf8(self.text_in(object, text)).unwrap_or(""),
        }
    }

    /// A block's address, from layout on.
    pub(crate) fn block_address(&self, block: BlockId, places: &Places) -> ExecutorAddr {
        places.address(&self.blocks[block.0 as usize])
    }

    pub(crate) fn fault(&self, fault: LinkFault) -> Error {
        ErrorKind::Link { object: self.name().to_string(), fault }.into()
    }
}
