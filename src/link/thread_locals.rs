//! Thread-local storage: which bytes every thread gets a copy of, and what links need to know of where (psABI,
//! "Thread-Local Storage"; Drepper, "ELF Handling For Thread-Local Storage").
//!
//! All thread-local sections of one object make one block, which is a module of its own for the C library: that hands out
//! a number for it, and copies its image for each thread that asks. This room only says how large it is, what stands in it,
//! and what the code wants to be told: the number, and offsets; or a distance from the thread pointer, for code of the
//! static models, which works only while the C library has room for the block in what it gives to every thread from the
//! start.
//!
//! Code that uses descriptors gets a function of its own for them, which keeps all registers but `%rax`, as the psABI
//! asks, and calls `__tls_get_addr`. The upper halves of 256-bit registers are the exception, when that call allocates.

use crate::base::{SegmentKind, align_up};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Binding, BlockId, Definition, Edge, LinkGraph, Role, Symbol, SymbolIndex, Text};
use crate::link::layout;
use crate::link::x86_64::{EdgeKind, KindSet};

/// What an object's thread-local block needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLocalPlan {
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// How many of the first bytes are not simply zero.
    pub image_size: u64,
    /// Whether the object's own code wants it at one distance from every thread's pointer.
    pub is_static: bool,
    /// Whether other objects may reach its variables from their own blocks, as the object itself does: then it had better be
    /// at such a distance, too.
    pub is_shared: bool,
}

/// What the C library said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLocalPlace {
    /// The module's number.
    pub module: u32,
    /// Distance of the block from the thread pointer, if it is the same in every thread.
    pub static_offset: Option<i64>,
}

/// Gives every thread-local block of the graph its offset; what is needed for them, if there are any.
pub(crate) fn assign(graph: &mut LinkGraph) -> Result<Option<ThreadLocalPlan>, Error> {
    let is_thread_local = |role| role == Role::TlsIndex;
    if !graph.special().any(|(_, block)| is_thread_local(block.role) && !block.is_dropped) {
        return Ok(None);
    }
    let mut plan = ThreadLocalPlan { size: 0, align: 1, image_size: 0, is_static: false, is_shared: false };
    let mut padding = 0;
    for is_zero in [false, true] {
        for index in 0..graph.blocks.len() {
            let block = &mut graph.blocks[index];
            if !is_thread_local(block.role) || block.is_dropped || block.is_zero_fill() != is_zero {
                continue;
            }
            let id = BlockId(index as u32);
            if block.align > MAX_ALIGN {
                let problem = format!(
                    "thread-local section `{}` is aligned to {}, and {MAX_ALIGN} is the most that is given to threads",
                    graph.block_name(id),
                    graph.blocks[index].align
                );
                return Err(graph.fault(LinkFault::Malformed(problem)));
            }
            let offset = align_up(plan.size, block.align).filter(|offset| *offset < 1 << 31);
            let end = offset.and_then(|offset| offset.checked_add(block.size)).filter(|end| *end < 1 << 31);
            let (Some(offset), Some(end)) = (offset, end) else {
                let problem = "its thread-local sections add up to more than 2 GiB".to_string();
                return Err(graph.fault(LinkFault::Malformed(problem)));
            };
            block.offset = offset;
            let gap = offset - plan.size;
            padding += if is_zero { 0 } else { gap };
            if padding > layout::MAX_PADDING {
                return Err(layout::too_sparse(graph, id, gap));
            }
            let block = &graph.blocks[index];
            plan.size = end;
            plan.align = plan.align.max(block.align);
            if !is_zero {
                plan.image_size = end;
            }
        }
    }
    // Code of the local-dynamic model may reach other objects' variables from its own block: that works where both blocks are
    // at fixed distances from the thread pointer, and so from each other.
    plan.is_static = live_edges(graph).any(|edge| wants_static_block(graph, edge));
    plan.is_shared = live_edges(graph).any(|edge| {
        let is_local = graph.symbols[edge.symbol.index()].binding == Binding::Local;
        edge.kind.is_block_offset() && !is_local && is_own(graph, edge.symbol)
    });
    Ok(Some(plan))
}

/// `_TLS_MODULE_BASE_` is the start of the object's own block (Oliva and de Araujo, "Speeding Up Thread-Local Storage
/// Access").
pub(crate) fn define_module_base(graph: &mut LinkGraph) {
    let Some(base) = graph.find_external("_TLS_MODULE_BASE_") else { return };
    let own = || graph.special().filter(|(_, block)| block.role == Role::TlsIndex && !block.is_dropped);
    // The first in the layout is the one at the start.
    let first = own().find(|(_, block)| !block.is_zero_fill()).or_else(|| own().next()).map(|(id, _)| id);
    if let Some(first) = first {
        graph.define(base, Definition::Block(first, 0));
        graph.blocks[first.index()].is_retained = true;
    }
}

/// Adds the function behind the object's descriptors, if it has any.
pub(crate) fn add_descriptor_function(graph: &mut LinkGraph) {
    if !graph.kinds.has_any_of(KindSet::DESCRIPTOR) {
        return;
    }
    let name = "__tls_get_addr";
    let get_address = graph.find_external(name).unwrap_or_else(|| graph.add_external(name));
    let call = Edge { offset: DESCRIPTOR_CALL, kind: EdgeKind::Branch32, symbol: get_address, addend: -4 };
    let block = graph.add_block(".tlsdesc", SegmentKind::Code, DESCRIPTOR.to_vec(), 16, &[call]);
    let function = graph.push_symbol(Symbol {
        name: Text::Fixed(""),
        definition: Definition::Block(block, 0),
        size: 0,
        binding: Binding::Local,
        is_hidden: true,
    });
    graph.descriptor_function = Some(function);
}

/// Whether it works only if the object's own block is at one distance from every thread's pointer.
fn wants_static_block(graph: &LinkGraph, edge: &Edge) -> bool {
    if is_own(graph, edge.symbol) { edge.kind.needs_static_place() } else { edge.kind.is_block_offset() }
}

fn is_own(graph: &LinkGraph, symbol: SymbolIndex) -> bool {
    matches!(graph.definition(symbol), Definition::Block(..))
}

pub(crate) fn live_edges(graph: &LinkGraph) -> impl Iterator<Item = &Edge> {
    let blocks = graph.blocks().filter(|(_, block)| !block.is_dropped);
    blocks.flat_map(|(id, _): (BlockId, _)| graph.edges(id))
}

// ---- refusals ----

/// An ordinary reference to a thread-local variable, or one of thread-local storage to what is none.
#[cold]
pub(crate) fn wrong_kind(graph: &LinkGraph, id: BlockId, edge: &Edge, is_variable: bool) -> Error {
    let (kind, variable) = (edge.kind.name(), variable_name(graph, edge));
    let what = match edge.kind.thread_local_model() {
        None => format!(
            "{kind} to a thread-local variable: the code takes `{variable}` for an ordinary variable, and it lives in the \
             thread-local storage of {}, where only code of a thread-local model reaches it; declare it `_Thread_local` (C) or \
             `thread_local` (C++) where it is used",
            place_of(graph, edge)
        ),
        Some(model) if !is_variable && edge.kind != EdgeKind::ThreadLocalBlock32 => format!(
            "{kind} to a symbol that is no thread-local variable: the code uses the {model} model, and `{variable}` is defined as \
             an ordinary variable or function; declare it alike where it is used and where it is defined"
        ),
        Some(model) => format!(
            "{kind} in an object without thread-local sections: the code uses the {model} model, which reaches the object's own \
             thread-local variables only, and there are none; compile the code with -ftls-model=global-dynamic"
        ),
    };
    refuse(graph, id, edge, variable, what)
}

/// A variable that has no distance from the thread pointer, or from the object's own block, that is the same in every thread.
#[cold]
pub(crate) fn not_static(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Error {
    let variable = variable_name(graph, edge);
    let what = format!(
        "{} of the {} model: it needs `{variable}` at a fixed distance from {}, and the variable lives in {}, to which the C library \
         gave no such place, so only the global-dynamic model reaches it; compile the code with -fPIC and \
         -ftls-model=global-dynamic",
        edge.kind.name(),
        edge.kind.thread_local_model().unwrap_or("static"),
        if edge.kind.is_block_offset() { "the object's own block" } else { "the thread pointer" },
        place_of(graph, edge)
    );
    refuse(graph, id, edge, variable, what)
}

/// A block that must be at a fixed place, and whose first bytes depend on another object: the C library copies them for all
/// threads before the other object is known.
#[cold]
pub(crate) fn unfinished_static_image(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Error {
    let holder = symbol_at(graph, id, edge.offset.into()).unwrap_or("a thread-local variable");
    let what = format!(
        "{} to another object's symbol in a thread-local variable of a static model: `{holder}` begins as an address of \
         another object, which the global-dynamic model allows, and {}; compile the object with -fPIC and \
         -ftls-model=global-dynamic",
        edge.kind.name(),
        static_use(graph)
            .map_or_else(|| "the object uses a static model".to_string(), |(id, edge)| used_at(graph, id, edge))
    );
    refuse(graph, id, edge, variable_name(graph, edge), what)
}

/// A block that the C library would not keep.
#[cold]
pub(crate) fn block_refused(graph: &LinkGraph, size: u64, problem: &str) -> Error {
    match static_use(graph) {
        Some((id, edge)) => {
            let what = format!(
                "thread-local block of {size} bytes at a fixed distance from the thread pointer: {}, which needs such a place, and \
                 the C library has none ({problem}), so only the global-dynamic model works; compile the object with -fPIC and \
                 -ftls-model=global-dynamic",
                used_at(graph, id, edge)
            );
            refuse(graph, id, edge, variable_name(graph, edge), what)
        }
        None => {
            let own = graph.special().find(|(_, block)| block.role == Role::TlsIndex && !block.is_dropped);
            let section = own.map_or("", |(id, _)| graph.block_name(id)).to_string();
            let symbol = own.and_then(|(id, _)| symbol_at(graph, id, 0)).unwrap_or_default().to_string();
            let what = format!("thread-local block of {size} bytes, of the global-dynamic model: {problem}");
            graph.fault(LinkFault::Unsupported { what, section, offset: 0, symbol })
        }
    }
}

/// The first reference that needs the object's own block at a fixed place.
fn static_use(graph: &LinkGraph) -> Option<(BlockId, &Edge)> {
    let blocks = graph.blocks().filter(|(_, block)| !block.is_dropped);
    let mut edges = blocks.flat_map(|(id, _)| graph.edges(id).iter().map(move |edge| (id, edge)));
    edges.find(|(_, edge)| wants_static_block(graph, edge))
}

fn used_at(graph: &LinkGraph, id: BlockId, edge: &Edge) -> String {
    format!(
        "the code at `{}`+{:#x} uses the {} model for `{}` ({})",
        graph.block_name(id),
        edge.offset,
        edge.kind.thread_local_model().unwrap_or("static"),
        variable_name(graph, edge),
        edge.kind.name()
    )
}

/// Whose storage a variable is part of.
fn place_of(graph: &LinkGraph, edge: &Edge) -> &'static str {
    if is_own(graph, edge.symbol) { "this object" } else { "another object or library" }
}

/// Compilers name the section and a distance for variables that are local to the object.
fn variable_name<'a>(graph: &'a LinkGraph, edge: &Edge) -> &'a str {
    let name = graph.symbol_name(edge.symbol);
    let Definition::Block(block, start) = graph.definition(edge.symbol) else { return name };
    if !name.is_empty() {
        return name;
    }
    // What is relative to the field's place is so to the end of its instruction, mostly.
    let from_end = if edge.kind.depends_on_place() { 4 } else { 0 };
    let offset = start.wrapping_add_signed(edge.addend.wrapping_add(from_end));
    symbol_at(graph, block, offset).unwrap_or_else(|| graph.block_name(block))
}

/// The name of what stands at an offset of a block.
fn symbol_at(graph: &LinkGraph, block: BlockId, offset: u64) -> Option<&str> {
    let holds = |symbol: &Symbol| match symbol.definition {
        Definition::Block(other, start) => other == block && start <= offset && offset - start < symbol.size.max(1),
        _ => false,
    };
    let mut names = graph.symbols().filter(|(_, symbol)| holds(symbol)).map(|(index, _)| graph.symbol_name(index));
    names.find(|name| !name.is_empty())
}

fn refuse(graph: &LinkGraph, id: BlockId, edge: &Edge, variable: &str, what: String) -> Error {
    let section = graph.block_name(id).to_string();
    graph.fault(LinkFault::Unsupported { what, section, offset: edge.offset.into(), symbol: variable.to_string() })
}

/// `%rax` is the descriptor's address, and becomes the variable's distance from the thread pointer. The second word of the
/// descriptor is the address of the pair that `__tls_get_addr` takes.
const DESCRIPTOR: [u8; 81] = [
    0xf3, 0x0f, 0x1e, 0xfa, // endbr64
    0x55, 0x48, 0x89, 0xe5, // push %rbp; mov %rsp,%rbp
    0x57, 0x56, 0x52, 0x51, // push %rdi, %rsi, %rdx, %rcx
    0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, // push %r8, %r9, %r10, %r11
    0x48, 0x83, 0xe4, 0xc0, // and $-64,%rsp
    0x48, 0x81, 0xec, 0x00, 0x02, 0x00, 0x00, // sub $512,%rsp
    0x48, 0x0f, 0xae, 0x04, 0x24, // fxsave64 (%rsp)
    0x48, 0x8b, 0x78, 0x08, // mov 8(%rax),%rdi
    0xe8, 0, 0, 0, 0, // call __tls_get_addr
    0x64, 0x48, 0x2b, 0x04, 0x25, 0, 0, 0, 0, // sub %fs:0,%rax
    0x48, 0x0f, 0xae, 0x0c, 0x24, // fxrstor64 (%rsp)
    0x48, 0x8d, 0x65, 0xc0, // lea -64(%rbp),%rsp
    0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop %r11, %r10, %r9, %r8
    0x59, 0x5a, 0x5e, 0x5f, // pop %rcx, %rdx, %rsi, %rdi
    0x5d, 0xc3, // pop %rbp; ret
    0xcc, 0xcc, 0xcc, 0xcc,
];
const DESCRIPTOR_CALL: u32 = 41;
/// Alignment of a thread-local section, at most: a huge page. The image is handed to the C library in a file that is larger
/// than this.
const MAX_ALIGN: u64 = 2 << 20;
