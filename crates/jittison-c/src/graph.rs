//! Graphs: what a code generator has in memory, handed over without an object file.
//!
//! The caller names blocks and symbols by their positions. Each position is checked here, and the rest when the graph is
//! handed over.

use std::ffi::c_void;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::link::{
    BlockContent, BlockId, BuiltGraph, Edge, EdgeKind, GraphBuilder, InitializerKind, NewBlock, NewSymbol, SymbolIndex,
    SymbolScope,
};
use jittison::{CompiledFunction, Jit, ResourceTracker};
use parking_lot::Mutex;

use crate::callbacks::{Dropped, OwnedContext};
use crate::entry::{check_out, put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, SESSIONS, Session, choice, read_options};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker};
use crate::unit::{Responsibility, with_responsibility};

/// `jittison_graph`.
pub(crate) type GraphHandle = Handle<Mutex<Option<Graph>>>;
/// `None` after the graph was handed over.
pub(crate) static GRAPHS: Table<Mutex<Option<Graph>>> = Table::new(Kind::Graph);

/// A graph that is being made, and the positions that it gave out.
pub(crate) struct Graph {
    builder: GraphBuilder,
    blocks: Vec<BlockId>,
    symbols: Vec<SymbolIndex>,
    callees: Vec<String>,
}

/// `jittison_edge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawEdge {
    offset: u32,
    kind: u32,
    symbol: u32,
    reserved: u32,
    addend: i64,
}

/// `jittison_new_block`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawBlock {
    size: usize,
    section: Str,
    pool: u32,
    flags: u32,
    align: u64,
    content: *const u8,
    content_size: u64,
    write: Option<unsafe extern "C-unwind" fn(*mut u8, usize, *mut c_void)>,
    dropped: Option<Dropped>,
    context: *mut c_void,
}

/// `jittison_new_symbol`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSymbol {
    size: usize,
    name: Str,
    place: u32,
    block: u32,
    offset: u64,
    symbol_size: u64,
    scope: u32,
    flags: u32,
}

/// `jittison_line_row`.
#[repr(C)]
struct LineRow {
    offset: u32,
    line: u32,
}

const BLOCK_THREAD_LOCAL: u32 = 1;
const BLOCK_RETAINED: u32 = 2;
const SYMBOL_WEAK: u32 = 2;
const SYMBOL_CALLABLE: u32 = 4;

/// `JITTISON_EDGE_AARCH64`: the kind of a relocation of AArch64 is this and its number.
const EDGE_AARCH64: u32 = 0x10000;

/// In the order of `JITTISON_EDGE_…`.
const EDGE_KINDS: [EdgeKind; 30] = [
    EdgeKind::Pointer64,
    EdgeKind::Pointer32,
    EdgeKind::Pointer32Signed,
    EdgeKind::Pointer16,
    EdgeKind::Pointer8,
    EdgeKind::Delta64,
    EdgeKind::Delta32,
    EdgeKind::Delta16,
    EdgeKind::Delta8,
    EdgeKind::Branch32,
    EdgeKind::GotLoad32,
    EdgeKind::GotLoad32Relaxable,
    EdgeKind::GotLoad32RexRelaxable,
    EdgeKind::GotLoad32Apx,
    EdgeKind::GotLoad64,
    EdgeKind::GotSlot64,
    EdgeKind::GotSlot32,
    EdgeKind::GotOffset64,
    EdgeKind::GotBase32,
    EdgeKind::GotBase64,
    EdgeKind::Size32,
    EdgeKind::Size64,
    EdgeKind::ThreadLocalPair32,
    EdgeKind::ThreadLocalBlock32,
    EdgeKind::ThreadLocalOffset32,
    EdgeKind::ThreadLocalOffset64,
    EdgeKind::StaticLoad32,
    EdgeKind::StaticOffset32,
    EdgeKind::StaticOffset64,
    EdgeKind::ThreadLocalDescriptor32,
];

impl RawEdge {
    /// The edge as C sees it.
    pub(crate) fn of(edge: &Edge) -> RawEdge {
        let kind = match edge.kind {
            EdgeKind::Aarch64(relocation) => EDGE_AARCH64 + relocation.number(),
            kind => EDGE_KINDS.iter().position(|known| *known == kind).map_or(u32::MAX, |kind| kind as u32),
        };
        RawEdge { offset: edge.offset, kind, symbol: edge.symbol.index() as u32, reserved: 0, addend: edge.addend }
    }

    /// The position of the symbol.
    pub(crate) fn symbol(&self) -> u32 {
        self.symbol
    }

    /// The edge, with a symbol that `symbol_at` finds.
    pub(crate) fn read(&self, symbol_at: impl Fn(u32) -> Result<SymbolIndex, Failure>) -> Result<Edge, Failure> {
        let of_aarch64 = self.kind.checked_sub(EDGE_AARCH64).and_then(EdgeKind::of_aarch64);
        let kind = of_aarch64.map_or_else(|| choice("kind", self.kind, &EDGE_KINDS), Ok)?;
        Ok(Edge { offset: self.offset, kind, symbol: symbol_at(self.symbol)?, addend: self.addend })
    }
}

/// The memory of `JITTISON_POOL_…`.
pub(crate) fn read_pool(pool: u32) -> Result<SegmentKind, Failure> {
    choice("pool", pool, &SegmentKind::ALL)
}

/// The scope of `JITTISON_SCOPE_…`.
pub(crate) fn read_scope(scope: u32) -> Result<SymbolScope, Failure> {
    choice("scope", scope, &[SymbolScope::Exported, SymbolScope::Hidden, SymbolScope::Local])
}

/// What a caller says of a new block.
pub(crate) struct BlockRequest<'a> {
    pub(crate) section: &'a str,
    pub(crate) pool: SegmentKind,
    pub(crate) align: u64,
    pub(crate) content: Option<&'a [u8]>,
    pub(crate) size: u64,
    raw: RawBlock,
}

impl BlockRequest<'_> {
    /// Reads a `jittison_new_block`.
    ///
    /// # Safety
    /// C1 for the struct and what it refers to, for as long as the result is used.
    pub(crate) unsafe fn read<'a>(block: *const c_void) -> Result<BlockRequest<'a>, Failure> {
        check_out(block.cast_mut().cast::<usize>(), "block")?;
        // SAFETY: C1 - the caller promises the struct, in which null pointers are values.
        let raw: RawBlock = unsafe { read_options(block.cast())? };
        if raw.flags & !(BLOCK_THREAD_LOCAL | BLOCK_RETAINED) != 0 {
            return Err(Failure::argument(format!("the block flags {:#x} have unknown bits", raw.flags)));
        }
        let pool = read_pool(raw.pool)?;
        // SAFETY: C1 - the caller promises it.
        let section = unsafe { raw.section.read("section")? };
        let section = match pool {
            _ if !section.is_empty() => section,
            _ if raw.flags & BLOCK_THREAD_LOCAL != 0 => ".tdata",
            SegmentKind::Code => ".text",
            SegmentKind::ReadOnly => ".rodata",
            SegmentKind::Data if raw.content.is_null() && raw.write.is_none() => ".bss",
            SegmentKind::Data => ".data",
        };
        let size = usize::try_from(raw.content_size).map_err(|_| Failure::argument("the block is too large"))?;
        let content = match raw.content.is_null() {
            true => None,
            // SAFETY: C1 - the caller promises it.
            false => Some(unsafe { read_slice(raw.content, size, "content")? }),
        };
        if content.is_some() && raw.write.is_some() {
            return Err(Failure::argument("a block has `content` or `write`, not both"));
        }
        let align = if raw.align == 0 { 16 } else { raw.align };
        Ok(BlockRequest { section, pool, align, content, size: raw.content_size, raw })
    }

    /// Whether the bytes come from a callback, or the block is of a kind that only a graph under construction can have.
    pub(crate) fn is_plain(&self) -> bool {
        self.raw.write.is_none() && self.raw.flags == 0
    }

    fn to_block(&self) -> NewBlock<'_> {
        let content = match (self.content, self.raw.write) {
            (Some(bytes), _) => BlockContent::from(bytes),
            (None, Some(write)) => {
                let context = OwnedContext::new(self.raw.context, self.raw.dropped);
                BlockContent::written(self.size, move |bytes: &mut [u8]| {
                    // SAFETY: C5 - the caller promises the callback and its context.
                    unsafe { write(bytes.as_mut_ptr(), bytes.len(), context.get()) }
                })
            }
            (None, None) => BlockContent::zeroes(self.size),
        };
        let block = match self.raw.flags & BLOCK_THREAD_LOCAL {
            0 => NewBlock::new(self.section, self.pool, content),
            _ => NewBlock::thread_local(content).in_section(self.section),
        };
        let block = block.with_align(self.align);
        if self.raw.flags & BLOCK_RETAINED != 0 { block.retained() } else { block }
    }
}

/// Reads a `jittison_new_symbol`. `block_at` finds blocks.
///
/// # Safety
/// C1 for the struct and what it refers to, for as long as the result is used.
pub(crate) unsafe fn read_symbol<'a>(
    symbol: *const c_void,
    block_at: impl Fn(u32) -> Result<BlockId, Failure>,
) -> Result<NewSymbol<'a>, Failure> {
    check_out(symbol.cast_mut().cast::<usize>(), "symbol")?;
    // SAFETY: C1 - the caller promises the struct, in which null pointers are values.
    let raw: RawSymbol = unsafe { read_options(symbol.cast())? };
    if raw.flags & !(SYMBOL_WEAK | SYMBOL_CALLABLE) != 0 {
        return Err(Failure::argument(format!("the flags {:#x} are not those of a new symbol", raw.flags)));
    }
    // SAFETY: C1 - the caller promises it.
    let name = unsafe { raw.name.read("the name of a symbol")? };
    let symbol = match (raw.place, raw.flags & SYMBOL_CALLABLE) {
        (PLACE_BLOCK, 0) => NewSymbol::new(name, block_at(raw.block)?, raw.offset),
        (PLACE_BLOCK, _) => NewSymbol::function(name, block_at(raw.block)?, raw.offset),
        (PLACE_ABSOLUTE, _) => NewSymbol::absolute(name, ExecutorAddr::new(raw.offset)),
        _ => return Err(Failure::argument(format!("a new symbol has no place {}", raw.place))),
    };
    let symbol = symbol.with_size(raw.symbol_size).with_scope(read_scope(raw.scope)?);
    Ok(if raw.flags & SYMBOL_WEAK != 0 { symbol.weak() } else { symbol })
}

/// `JITTISON_PLACE_…`.
pub(crate) const PLACE_BLOCK: u32 = 0;
pub(crate) const PLACE_ABSOLUTE: u32 = 1;
pub(crate) const PLACE_EXTERNAL: u32 = 2;
pub(crate) const PLACE_NOWHERE: u32 = 3;

impl Graph {
    /// A graph for a callback of the embedder, which fills it.
    pub(crate) fn new(name: &str) -> Graph {
        Graph { builder: GraphBuilder::new(name), blocks: Vec::new(), symbols: Vec::new(), callees: Vec::new() }
    }

    fn block_at(&self, position: u32) -> Result<BlockId, Failure> {
        find_at(&self.blocks, position, BlockId::index, "block")
    }

    fn symbol_at(&self, position: u32) -> Result<SymbolIndex, Failure> {
        find_at(&self.symbols, position, SymbolIndex::index, "symbol")
    }

    fn keep_block(&mut self, block: BlockId) -> u32 {
        self.blocks.push(block);
        block.index() as u32
    }

    fn keep_symbol(&mut self, symbol: SymbolIndex) -> u32 {
        self.symbols.push(symbol);
        symbol.index() as u32
    }

    /// # Safety
    /// C1 for the edges.
    unsafe fn read_edges(&self, edges: *const RawEdge, count: usize) -> Result<Vec<Edge>, Failure> {
        // SAFETY: C1 - the caller promises it.
        let edges = unsafe { read_slice(edges, count, "edges")? };
        edges.iter().map(|edge| edge.read(|symbol| self.symbol_at(symbol))).collect()
    }

    /// # Safety
    /// C1 for the positions.
    unsafe fn read_symbols(&self, symbols: *const u32, count: usize) -> Result<Vec<SymbolIndex>, Failure> {
        // SAFETY: C1 - the caller promises it.
        let symbols = unsafe { read_slice(symbols, count, "symbols")? };
        symbols.iter().map(|symbol| self.symbol_at(*symbol)).collect()
    }

    /// The checked graph, with the functions that it is likely to call.
    pub(crate) fn finish(self) -> Result<CompiledFunction, Failure> {
        Ok(CompiledFunction::new(self.builder.finish()?).with_callees(self.callees))
    }
}

/// The value at a position that was given out. Positions ascend.
fn find_at<T: Copy>(given: &[T], position: u32, index: impl Fn(T) -> usize, what: &str) -> Result<T, Failure> {
    let found = given.binary_search_by_key(&(position as usize), |value| index(*value));
    found
        .map(|place| given[place])
        .map_err(|_| Failure::argument(format!("the graph has no {what} {position}; nothing was done")))
}

/// Takes a graph out of its handle.
pub(crate) fn take_graph(graph: GraphHandle) -> Result<Graph, Failure> {
    let held = GRAPHS.get(graph.bits)?;
    let taken = held.lock().take();
    taken.ok_or_else(was_handed_over)
}

fn was_handed_over() -> Failure {
    Failure::argument("the graph was handed over already; nothing was done")
}

/// Takes a graph out of its handle, and checks it.
pub(crate) fn take_built(graph: GraphHandle) -> Result<BuiltGraph, Failure> {
    Ok(take_graph(graph)?.builder.finish()?)
}

/// Changes a graph.
fn edit(graph: GraphHandle, change: impl FnOnce(&mut Graph) -> Result<(), Failure>) -> *mut ErrorObject {
    run(|| {
        let held = GRAPHS.get(graph.bits)?;
        let mut held = held.lock();
        change(held.as_mut().ok_or_else(was_handed_over)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_create(name: Str, out: *mut GraphHandle) -> *mut ErrorObject {
    let create = || {
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        GRAPHS.insert(Mutex::new(Some(Graph::new(name)))).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_release(graph: GraphHandle) -> *mut ErrorObject {
    run(|| GRAPHS.release(graph.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_block(
    graph: GraphHandle,
    block: *const c_void,
    out: *mut u32,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises it.
        let request = unsafe { BlockRequest::read(block)? };
        let block = graph.builder.add_block(request.to_block());
        let position = graph.keep_block(block);
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(position)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_symbol(
    graph: GraphHandle,
    symbol: *const c_void,
    out: *mut u32,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises it.
        let symbol = unsafe { read_symbol(symbol, |block| graph.block_at(block))? };
        let symbol = graph.builder.add_symbol(symbol);
        let position = graph.keep_symbol(symbol);
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(position)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_external(
    graph: GraphHandle,
    name: Str,
    kind: u32,
    out: *mut u32,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        const KINDS: [fn(&mut GraphBuilder, &str) -> SymbolIndex; 3] =
            [GraphBuilder::add_external, GraphBuilder::add_weak_external, GraphBuilder::add_hidden_external];
        let symbol = choice("kind", kind, &KINDS)?(&mut graph.builder, name);
        let position = graph.keep_symbol(symbol);
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(position)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_set_edges(
    graph: GraphHandle,
    block: u32,
    edges: *const RawEdge,
    count: usize,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        let block = graph.block_at(block)?;
        // SAFETY: C1 - the caller promises it.
        let edges = unsafe { graph.read_edges(edges, count)? };
        graph.builder.set_edges(block, &edges);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_set_comdat(graph: GraphHandle, block: u32, signature: u32) -> *mut ErrorObject {
    edit(graph, |graph| {
        let (block, signature) = (graph.block_at(block)?, graph.symbol_at(signature)?);
        graph.builder.set_comdat(block, signature);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_initializers(
    graph: GraphHandle,
    kind: u32,
    priority: u32,
    functions: *const u32,
    count: usize,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        let kind = choice("kind", kind, &[InitializerKind::Init, InitializerKind::Fini])?;
        // SAFETY: C1 - the caller promises it.
        let functions = unsafe { graph.read_symbols(functions, count)? };
        let block = graph.builder.add_initializers(kind, priority, &functions);
        graph.keep_block(block);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_unwind(
    graph: GraphHandle,
    function: u32,
    size: u32,
    instructions: *const u8,
    count: usize,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        let function = graph.symbol_at(function)?;
        // SAFETY: C1 - the caller promises it.
        let instructions = unsafe { read_slice(instructions, count, "instructions")? };
        graph.builder.add_unwind(function, size, instructions);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_eh_frame(
    graph: GraphHandle,
    bytes: *const u8,
    size: usize,
    edges: *const RawEdge,
    count: usize,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        // SAFETY: C1 - the caller promises both.
        let (bytes, edges) = unsafe { (read_slice(bytes, size, "bytes")?, graph.read_edges(edges, count)?) };
        let block = graph.builder.add_eh_frame(bytes, &edges);
        graph.keep_block(block);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_lines(
    graph: GraphHandle,
    block: u32,
    file: Str,
    rows: *const c_void,
    count: usize,
) -> *mut ErrorObject {
    edit(graph, |graph| {
        let block = graph.block_at(block)?;
        // SAFETY: C1 - the caller promises both.
        let (file, rows) = unsafe { (file.read("file")?, read_slice(rows.cast::<LineRow>(), count, "rows")?) };
        let rows: Vec<_> = rows.iter().map(|row| (row.offset, row.line)).collect();
        graph.builder.add_lines(block, file, &rows);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_mark_indirect_entries(graph: GraphHandle) -> *mut ErrorObject {
    edit(graph, |graph| {
        graph.builder.marks_indirect_entries();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add_callee(graph: GraphHandle, name: Str) -> *mut ErrorObject {
    edit(graph, |graph| {
        // SAFETY: C1 - the caller promises it.
        graph.callees.push(unsafe { name.read("name")? }.to_string());
        Ok(())
    })
}

/// Gives a graph to a session.
fn hand_over(
    session: Session,
    tracker: Tracker,
    graph: GraphHandle,
    give: impl FnOnce(&Jit, &ResourceTracker, BuiltGraph) -> jittison::error::Result<()>,
) -> *mut ErrorObject {
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        Ok(give(&jit, &tracker, take_built(graph)?)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_add(session: Session, tracker: Tracker, graph: GraphHandle) -> *mut ErrorObject {
    hand_over(session, tracker, graph, Jit::add_graph)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_link(session: Session, tracker: Tracker, graph: GraphHandle) -> *mut ErrorObject {
    hand_over(session, tracker, graph, Jit::link_graph)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_graph_emit(
    session: Session,
    responsibility: Responsibility,
    graph: GraphHandle,
) -> *mut ErrorObject {
    run(|| {
        let jit = SESSIONS.get(session.bits)?;
        with_responsibility(responsibility, |responsibility| match take_built(graph) {
            Ok(graph) => {
                jit.layer().emit_graph(responsibility, graph);
                (None, Ok(()))
            }
            Err(failure) => (Some(responsibility), Err(failure)),
        })
    })
}
