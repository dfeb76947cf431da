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

use crate::base::{Pool, align_up};
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
    let is_thread_local = |role| role == Role::ThreadLocal;
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
    plan.is_static = live_edges(graph).any(|edge| match is_own(graph, edge.symbol) {
        true => edge.kind.needs_static_place(),
        false => edge.kind.is_block_offset(),
    });
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
    let own = || graph.special().filter(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped);
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
    let block = graph.add_block(".tlsdesc", Pool::Code, DESCRIPTOR.to_vec(), 16, &[call]);
    let function = graph.push_symbol(Symbol {
        name: Text::Fixed(""),
        definition: Definition::Block(block, 0),
        size: 0,
        binding: Binding::Local,
        is_hidden: true,
    });
    graph.descriptor_function = Some(function);
}

fn is_own(graph: &LinkGraph, symbol: SymbolIndex) -> bool {
    matches!(graph.definition(symbol), Definition::Block(..))
}

pub(crate) fn live_edges(graph: &LinkGraph) -> impl Iterator<Item = &Edge> {
    let blocks = graph.blocks().filter(|(_, block)| !block.is_dropped);
    blocks.flat_map(|(id, _): (BlockId, _)| graph.edges(id))
}

/// `%rax` is the descriptor's address, and becomes the variable's distance from the thread pointer. The second word of the
/// descriptor is the address of the pair that `__tls_get_addr` takes.
const DESCRIPTOR: [u8; 77] = [
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
const DESCRIPTOR_CALL: u32 = 37;
/// Alignment of a thread-local section, at most: a huge page. The image is handed to the C library in a file that is larger
/// than this.
const MAX_ALIGN: u64 = 2 << 20;
