//! [`GraphBuilder`]: makes the graph of a link from what a code generator has in memory (ORC: a client that makes its own
//! `jitlink::LinkGraph`).
//!
//! An object file is not needed. A generator hands over blocks, symbols and edges, and the builder writes them into the
//! arrays of a [`LinkGraph`], where the reader of objects writes them otherwise. From there on both ways are one.
//!
//! ```text
//!   add_block ─► BlockId ─► add_symbol ─► SymbolIndex ─► set_edges ─► finish ─► BuiltGraph ─► Jit::add_graph, link_graph
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `new_block.rs` | [`NewBlock`], [`BlockContent`]: what a block is made from |
//! | `new_symbol.rs` | [`NewSymbol`], [`SymbolScope`] |
//! | `unwind.rs` | the `.eh_frame` of functions that have call frame instructions |
//! | `extents.rs` | the sizes of variables |
//! | `check.rs` | what [`finish`](GraphBuilder::finish) refuses |
//!
//! No method panics or fails before [`finish`](GraphBuilder::finish). A wrong position is noted, and `finish` returns it as
//! an error with the block and the edge.

mod check;
mod extents;
mod new_block;
mod new_symbol;
mod unwind;

use extents::Extents;
use new_block::ContentSource;
pub use new_block::{BlockContent, NewBlock};
pub use new_symbol::{NewSymbol, SymbolScope};

use crate::arch::{Arch, EdgeKind};
use crate::base::{Name, RecycledVec, SegmentKind};
use crate::error::{Error, LinkFault};
use crate::link::block_lines::BlockLines;
use crate::link::buffer::ObjectBuffer;
use crate::link::elf::{InterfaceSymbol, ObjectVariable};
use crate::link::graph::{
    Binding, Block, BlockId, Content, Definition, Edge, GraphSymbol, LinkGraph, Role, SymbolIndex, Text,
};
use crate::link::graph_description::{DescribedBlock, DescribedSymbol, GraphDescription};
use crate::link::initializers::{Initializer, InitializerKind, InitializerStage};
use crate::link::pipeline::ReadLink;
use crate::sync::Arc;
use unwind::UnwindTable;

/// Makes a graph block by block. The result is linked by [`Jit::link_graph`](crate::Jit::link_graph) or added by
/// [`Jit::add_graph`](crate::Jit::add_graph), as an object is.
///
/// ```
/// use jittison::link::{Edge, EdgeKind, GraphBuilder, NewBlock, NewSymbol};
/// use jittison::Jit;
///
/// # fn main() -> Result<(), jittison::Error> {
/// // long add_one(long x) { return x + one; }, where `one` is a constant of the graph:
/// //     mov one(%rip), %rax; add %rdi, %rax; ret
/// let code = [0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x01, 0xf8, 0xc3];
///
/// let mut graph = GraphBuilder::new("add_one");
/// let text = graph.add_block(NewBlock::code(&code[..]));
/// let constants = graph.add_block(NewBlock::constants(&1u64.to_le_bytes()[..]));
/// let one = graph.add_symbol(NewSymbol::local("one", constants, 0));
/// graph.add_symbol(NewSymbol::function("add_one", text, 0).with_size(code.len() as u64));
/// // The field is at offset 3. The processor counts from the end of the field, four bytes later.
/// graph.set_edges(text, &[Edge { offset: 3, kind: EdgeKind::Delta32, symbol: one, addend: -4 }]);
///
/// let jit = Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.link_graph(&tracker, graph.finish()?)?;
/// // Safety: the function has this signature, and all that was added may run.
/// let add_one = unsafe { jit.lookup::<extern "C" fn(i64) -> i64>("add_one")? };
/// assert_eq!(add_one.call(41), 42);
/// drop(add_one);
/// tracker.remove()?;
/// # Ok(()) }
/// ```
pub struct GraphBuilder {
    name: Arc<str>,
    read: ReadLink,
    /// Names, and contents that were copied. The graph has ranges of it.
    bytes: RecycledVec<u8>,
    /// The definitions that other graphs and objects can see.
    visible: RecycledVec<VisibleSymbol>,
    unwind: UnwindTable,
    /// Debug builds only.
    description: Option<Box<GraphDescription>>,
    /// The first wrong position.
    fault: Option<LinkFault>,
}

/// A definition that others can see.
#[derive(Clone, Copy)]
struct VisibleSymbol {
    index: SymbolIndex,
    is_exported: bool,
    is_callable: bool,
    is_comdat: bool,
}

crate::base::impl_recycle!(VisibleSymbol);

/// A graph that [`GraphBuilder::finish`] has checked.
pub struct BuiltGraph {
    pub(crate) name: Arc<str>,
    pub(crate) read: ReadLink,
    visible: RecycledVec<VisibleSymbol>,
}

impl GraphBuilder {
    /// Begins a graph for the architecture of this process. `name` is its name in errors, reports and maps, as the name of an
    /// object is.
    pub fn new(name: &str) -> GraphBuilder {
        GraphBuilder::for_arch(name, Arch::NATIVE)
    }

    /// As [`new`](Self::new), for the machine with this number (`e_machine` of the ELF header), such as that of an executor. `None` if
    /// nothing is linked for it.
    pub fn for_machine(name: &str, machine: u16) -> Option<GraphBuilder> {
        Arch::of_machine(machine).map(|arch| GraphBuilder::for_arch(name, arch))
    }

    /// As [`new`](Self::new), for an architecture.
    pub(crate) fn for_arch(name: &str, arch: Arch) -> GraphBuilder {
        let mut read = ReadLink::empty();
        (read.graph_mut().is_built, read.graph_mut().arch) = (true, arch);
        // The null symbol, as in the symbol table of an object.
        read.graph_mut().push_symbol(GraphSymbol {
            name: Text::Object(0..0),
            definition: Definition::Nowhere,
            size: 0,
            binding: Binding::Local,
            is_hidden: false,
        });
        let description = cfg!(debug_assertions).then(Box::default);
        let (visible, unwind) = (RecycledVec::new(), UnwindTable::default());
        GraphBuilder {
            name: Arc::from(name),
            read,
            bytes: RecycledVec::new(),
            visible,
            unwind,
            description,
            fault: None,
        }
    }

    /// Adds a block: a function, a constant, a variable. What no visible symbol leads to is dropped, as in an object.
    pub fn add_block(&mut self, block: NewBlock<'_>) -> BlockId {
        let NewBlock { section, kind, align, content, is_thread_local, is_retained } = block;
        if let Some(description) = &mut self.description {
            let (section, size, content) = (section.to_string(), content.size(), content.to_bytes());
            description.blocks.push(DescribedBlock { section, kind, align, size, content, edges: Vec::new() });
        }
        let (name, size) = (self.text(section), content.size());
        let graph = self.read.graph_mut();
        let content = match content.0 {
            ContentSource::Copied(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Content::Object(start..self.bytes.len())
            }
            ContentSource::Zero(_) => Content::Zero,
            ContentSource::Given(given) => graph.synthetic.add_given(given),
        };
        graph.has_named_sections |= !section.starts_with('.');
        let role = if is_thread_local { Role::ThreadLocal } else { Role::Plain };
        let id = graph.push(Block { role, is_retained, ..Block::new(name, kind, content, size, align) });
        if role != Role::Plain {
            graph.special.push(id);
        }
        id
    }

    /// Adds a definition.
    pub fn add_symbol(&mut self, symbol: NewSymbol<'_>) -> SymbolIndex {
        let NewSymbol { name, definition, size, scope, is_weak, is_callable } = symbol;
        let (binding, is_hidden) = (scope.binding(is_weak), scope != SymbolScope::Exported);
        let index = self.push_symbol(name, definition, size, binding, is_hidden);
        if binding != Binding::Local {
            let is_exported = !is_hidden;
            self.visible.push(VisibleSymbol { index, is_exported, is_callable, is_comdat: false });
        }
        index
    }

    /// Adds a symbol that others define: another graph, an object, a library. The link looks it up if an edge refers to it,
    /// and fails without a definition.
    pub fn add_external(&mut self, name: &str) -> SymbolIndex {
        self.push_external(name, Binding::Global, false)
    }

    /// As [`add_external`](Self::add_external), but the address is null without a definition (a weak reference).
    pub fn add_weak_external(&mut self, name: &str) -> SymbolIndex {
        self.push_external(name, Binding::Weak, false)
    }

    /// As [`add_external`](Self::add_external), but only the dylib of the graph may define the symbol (a hidden reference).
    pub fn add_hidden_external(&mut self, name: &str) -> SymbolIndex {
        self.push_external(name, Binding::Global, true)
    }

    /// Sets the edges of a block, which has none yet. The field of each edge lies within the block.
    pub fn set_edges(&mut self, block: BlockId, edges: &[Edge]) {
        let graph = self.read.graph_mut();
        let fault = match graph.blocks.get(block.index()) {
            None => Some(check::no_block(block)),
            Some(target) if !target.edges.is_empty() => Some(check::edges_twice(&self.bytes, target)),
            Some(target) => check::first_bad_edge(graph, &self.bytes, target, edges),
        };
        match fault {
            Some(fault) => self.note(fault),
            None => {
                graph.push_edges(block, edges);
                if let Some(description) = &mut self.description {
                    description.set_edges(block, edges);
                }
            }
        }
    }

    /// Puts a block into the COMDAT group of `signature`, a symbol of this graph that others can see. If another graph or
    /// object has a group of this signature already, the blocks of this group are dropped, and references to their symbols go
    /// to the other group (gABI, "Section Groups").
    pub fn set_comdat(&mut self, block: BlockId, signature: SymbolIndex) {
        let graph = self.read.graph_mut();
        let Some(visible) = self.visible.iter_mut().find(|symbol| symbol.index == signature) else {
            return self.note(check::no_signature(signature));
        };
        visible.is_comdat = true;
        let Some(member) = graph.blocks.get_mut(block.index()) else { return self.note(check::no_block(block)) };
        let known = graph.group_signatures.iter().position(|known| *known == signature);
        let group = known.unwrap_or_else(|| {
            graph.group_signatures.push(signature);
            graph.group_signatures.len() - 1
        });
        member.group = Some(group as u32);
    }

    /// Adds functions that run when the dylib is initialised or finalised, in this order. A lower priority is initialised
    /// earlier, as in `.init_array.N`; without a number, compilers use 65,535.
    pub fn add_initializers(&mut self, kind: InitializerKind, priority: u32, functions: &[SymbolIndex]) -> BlockId {
        let section = match kind {
            InitializerKind::Init => ".init_array",
            InitializerKind::Fini => ".fini_array",
        };
        let content = vec![0; functions.len() * 8];
        let id = self.add_block(NewBlock::new(section, SegmentKind::ReadOnly, content).with_align(8));
        let graph = self.read.graph_mut();
        let (stage, rank) = (InitializerStage::Lists, Initializer::RANK_WITHOUT_ZEROS);
        graph.blocks[id.index()].role = Role::Initializers { kind, stage, priority, rank, backward: false };
        graph.special.push(id);
        let edge = |(number, symbol): (usize, &SymbolIndex)| Edge {
            offset: number as u32 * 8,
            kind: EdgeKind::Pointer64,
            symbol: *symbol,
            addend: 0,
        };
        let edges: Vec<Edge> = functions.iter().enumerate().map(edge).collect();
        self.set_edges(id, &edges);
        id
    }

    /// Describes how `function` is unwound. `size` is its size in bytes. `instructions` are the call frame instructions of
    /// its FDE (DWARF 5, section 6.4.2), for a CIE with a code alignment factor of 1 and a data alignment factor of −8, whose
    /// first row is that of the function's entry. Without instructions, the function never changes the stack pointer.
    ///
    /// For personality routines, use [`add_eh_frame`](Self::add_eh_frame).
    pub fn add_unwind(&mut self, function: SymbolIndex, size: u32, instructions: &[u8]) {
        let arch = self.read.graph_mut().arch;
        self.unwind.add(arch, function, size, instructions);
    }

    /// Adds the unwind table of functions as the bytes of an `.eh_frame` section (LSB 5.0, "Exception Frames"), with the edges
    /// of its pointers. At least the starts of functions have edges.
    pub fn add_eh_frame(&mut self, content: &[u8], edges: &[Edge]) -> BlockId {
        let id = self.add_block(NewBlock::new(".eh_frame", SegmentKind::ReadOnly, content).with_align(8));
        let graph = self.read.graph_mut();
        graph.blocks[id.index()].role = Role::EhFrame;
        graph.special.push(id);
        self.set_edges(id, edges);
        id
    }

    /// Says which source lines the code of a block comes from, for profilers. A row is an offset in the block, in bytes, and
    /// the line of the code from there on, from 1; 0 stands for code without a line.
    pub fn add_lines(&mut self, block: BlockId, file: &str, rows: &[(u32, u32)]) {
        let graph = self.read.graph_mut();
        match graph.blocks.get(block.index()) {
            None => self.note(check::no_block(block)),
            Some(_) => graph.lines.push(BlockLines { block, file: Arc::from(file), rows: rows.to_vec() }),
        }
    }

    /// Says that the code marks all entries that indirect branches may reach (x86-64: `endbr64`, for indirect branch
    /// tracking). The link then marks what it adds, too.
    pub fn marks_indirect_entries(&mut self) {
        self.read.graph_mut().marks_entries = true;
        if let Some(description) = &mut self.description {
            description.marks_entries = true;
        }
    }

    /// Checks the graph. A graph without visible symbols is linked when its dylib is initialised.
    ///
    /// # Errors
    /// [`LinkFault::InvalidGraph`]: the first thing that is wrong, with its block, offset and edge.
    pub fn finish(mut self) -> Result<BuiltGraph, Error> {
        if let Some((content, edges)) = self.unwind.take() {
            self.add_eh_frame(&content, &edges);
        }
        let GraphBuilder { name, mut read, bytes, visible, description, fault, .. } = self;
        let graph = read.graph_mut();
        graph.name = Some(name.clone());
        if bytes.len() >= u32::MAX as usize {
            return Err(graph.fault(check::too_large()));
        }
        (graph.bytes, graph.description) = (ObjectBuffer::new(bytes), description);
        graph.first_global = 1;
        if let Some(fault) = fault {
            return Err(graph.fault(fault));
        }
        check::check(graph, visible.iter().map(|symbol| symbol.index))?;
        Ok(BuiltGraph { name, read, visible })
    }

    fn push_external(&mut self, name: &str, binding: Binding, is_hidden: bool) -> SymbolIndex {
        self.read.graph_mut().external_prefixes.insert(name.as_bytes());
        self.read.graph_mut().has_weak_externals |= binding == Binding::Weak;
        self.push_symbol(name, Definition::External, 0, binding, is_hidden)
    }

    fn push_symbol(
        &mut self,
        name: &str,
        definition: Definition,
        size: u64,
        binding: Binding,
        is_hidden: bool,
    ) -> SymbolIndex {
        if let Some(description) = &mut self.description {
            description.symbols.push(DescribedSymbol {
                name: name.to_string(),
                definition,
                size,
                is_local: binding == Binding::Local,
            });
        }
        let name = self.text(name);
        self.read.graph_mut().push_symbol(GraphSymbol { name, definition, size, binding, is_hidden })
    }

    /// Keeps a name.
    fn text(&mut self, name: &str) -> Text {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name.as_bytes());
        Text::Object(start..self.bytes.len() as u32)
    }

    #[cold]
    fn note(&mut self, fault: LinkFault) {
        self.fault.get_or_insert(fault);
    }
}

impl BuiltGraph {
    /// The name of the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The definitions that others can see. Their names share one text: that of the graph's name, if there is one definition
    /// and the graph is named after it.
    pub(crate) fn interface(&self) -> impl ExactSizeIterator<Item = InterfaceSymbol> {
        let graph = self.read.graph();
        let extents = Extents::new(graph, &self.visible);
        let names = self.visible.iter().map(|symbol| graph.name_bytes(symbol.index));
        let text = match &self.visible[..] {
            [only] if graph.name_bytes(only.index) == self.name.as_bytes() => self.name.clone(),
            _ => Name::concat(names),
        };
        let mut start = 0;
        self.visible.iter().map(move |visible| {
            let (symbol, name) = (&graph.symbols[visible.index.index()], graph.name_bytes(visible.index));
            let part = Name::from_part(&text, start, name);
            start += name.len();
            InterfaceSymbol {
                name: part,
                index: visible.index,
                is_weak: symbol.binding == Binding::Weak,
                is_exported: visible.is_exported,
                is_callable: visible.is_callable,
                is_untyped: false,
                is_thread_local: is_thread_local(graph, symbol),
                is_absolute: matches!(symbol.definition, Definition::Absolute(_)),
                is_comdat: visible.is_comdat,
                leader: leader(graph, visible.index),
                has_address: true,
                is_common: false,
                size: extents.size_of(visible),
            }
        })
    }

    /// The variables that others can see: symbols of writable or thread-local blocks.
    pub(crate) fn variables(&self) -> Vec<ObjectVariable<'_>> {
        if self.visible.iter().all(|visible| visible.is_callable) {
            return Vec::new();
        }
        let graph = self.read.graph();
        let extents = Extents::new(graph, &self.visible);
        let variable = |visible: &VisibleSymbol| {
            let symbol = &graph.symbols[visible.index.index()];
            let Definition::Block(block, _) = symbol.definition else { return None };
            let is_writable = graph.blocks[block.index()].pool == SegmentKind::Data;
            let is_thread_local = is_thread_local(graph, symbol);
            let name = std::str::from_utf8(graph.name_bytes(visible.index)).ok()?;
            let size = extents.size_of(visible);
            (is_writable || is_thread_local).then_some(ObjectVariable { name, size, is_thread_local })
        };
        self.visible.iter().filter(|visible| !visible.is_callable).filter_map(variable).collect()
    }

    /// Whether a section of the graph may have bounds that can be named.
    pub(crate) fn has_named_sections(&self) -> bool {
        self.read.graph().has_named_sections
    }

    /// Whether the graph has functions that run at initialisation or finalisation.
    pub(crate) fn has_initializers(&self) -> bool {
        self.read.graph().has_initializers()
    }
}

impl std::fmt::Debug for BuiltGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "graph `{}` with {} visible symbols", self.name, self.visible.len())
    }
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "builder of graph `{}`", self.name)
    }
}

/// The signature of the COMDAT group that has a symbol, unless the symbol is the signature itself.
fn leader(graph: &LinkGraph, index: SymbolIndex) -> Option<SymbolIndex> {
    let Definition::Block(block, _) = graph.definition(index) else { return None };
    let group = graph.blocks[block.index()].group?;
    let signature = *graph.group_signatures.get(group as usize)?;
    (signature != index).then_some(signature)
}

fn is_thread_local(graph: &LinkGraph, symbol: &GraphSymbol) -> bool {
    let Definition::Block(block, _) = symbol.definition else { return false };
    graph.blocks[block.index()].role == Role::ThreadLocal
}
