//! Thread-local storage of an object (psABI 4.4.1; Drepper, "ELF Handling For Thread-Local Storage").
//!
//! All thread-local sections of one object make one TLS block, which the C library knows as a module. The C library
//! gives the module a number and copies its image for each thread that asks.
//!
//! | step | here |
//! |---|---|
//! | plan | [`assign`]: offsets in the block, its size, alignment and image size, and whether it needs a static TLS offset |
//! | special symbols | [`define_module_base`]: `_TLS_MODULE_BASE_`; [`add_descriptor_function`]: the function of TLS descriptors |
//! | errors | the refusals below: a use that does not match the variable's definition, or a distance that nothing computes |
//!
//! A static model (initial exec, local exec) needs the block at one distance from the thread pointer in every thread.
//! The C library grants that only while it has space for the block in the static TLS area of every thread. Otherwise
//! thunks compute the distance (`thread_local_thunks.rs`).
//!
//! # Descriptor function
//! Code that uses descriptors calls one function of the object. The function preserves all registers but the one of its
//! result, as the descriptor convention requires, and calls `__tls_get_addr`. `arch` has its code, and says which
//! registers may be lost if that call allocates.

use crate::arch::EdgeKind;
use crate::base::{SegmentKind, align_up};
use crate::error::{Error, LinkFault};
use crate::link::graph::{
    Binding, BlockId, Content, Definition, Edge, GraphSymbol, LinkGraph, Role, SymbolIndex, Text,
};
use crate::link::layout;
use crate::link::thread_local_plan::ThreadLocalPlan;

/// Assigns every thread-local block of the graph its offset in the TLS block: those with contents first, then
/// zero-fill. Returns the plan; `None` for an object without thread-local blocks.
///
/// # Errors
/// [`LinkFault::Malformed`] for a block that is too large, too strictly aligned, or mostly padding.
pub(crate) fn assign(graph: &mut LinkGraph) -> Result<Option<ThreadLocalPlan>, Error> {
    let is_thread_local = |role| role == Role::ThreadLocal;
    if !graph.special().any(|(_, block)| is_thread_local(block.role) && !block.is_dropped) {
        return Ok(None);
    }
    let mut plan = ThreadLocalPlan { size: 0, align: 1, image_size: 0, is_static: false };
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
                    "thread-local section `{}` is aligned to {} bytes, and the limit is {MAX_ALIGN}",
                    graph.block_name(id),
                    graph.blocks[index].align
                );
                return Err(graph.fault(LinkFault::Malformed(problem)));
            }
            let offset = align_up(plan.size, block.align).filter(|offset| *offset < 1 << 31);
            let end = offset.and_then(|offset| offset.checked_add(block.size)).filter(|end| *end < 1 << 31);
            let (Some(offset), Some(end)) = (offset, end) else {
                let problem = "its thread-local sections have more than 2 GiB".to_string();
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
    // Code of the local-dynamic model may reach a variable of another object by its distance from the block of the
    // code's own object. That needs no thunk if both blocks are at fixed distances from the thread pointer.
    plan.is_static = graph.live_edges().any(|edge| needs_static_block(graph, edge));
    Ok(Some(plan))
}

/// Defines `_TLS_MODULE_BASE_` as the start of the object's own block (Oliva and de Araujo, "Speeding Up Thread-Local
/// Storage Access"), if the object refers to it. An object without a block gets one of a word: its code adds distances from
/// the start to variables of other objects.
pub(crate) fn define_module_base(graph: &mut LinkGraph) {
    let Some(base) = graph.find_external("_TLS_MODULE_BASE_") else { return };
    let own = || graph.special().filter(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped);
    // `assign` puts the first block with contents at the start of the TLS block, else the first zero-fill block.
    let first = own().find(|(_, block)| !block.is_zero_fill()).or_else(|| own().next()).map(|(id, _)| id);
    let first = first.unwrap_or_else(|| {
        let block = graph.push_block(Text::Fixed(".tbss"), SegmentKind::Data, Content::Zero, 8, 8);
        graph.blocks[block.index()].role = Role::ThreadLocal;
        graph.special.push(block);
        block
    });
    graph.set_definition(base, Definition::Block(first, 0));
    graph.blocks[first.index()].is_retained = true;
}

/// Adds the function that the object's TLS descriptors point to.
pub(crate) fn add_descriptor_function(graph: &mut LinkGraph) {
    let name = "__tls_get_addr";
    let get_address = graph.find_external(name).unwrap_or_else(|| graph.insert_external(name));
    let block = graph.insert_code(".tlsdesc", graph.arch.tls_descriptor(), |()| get_address);
    let function = graph.push_symbol(GraphSymbol {
        name: Text::Fixed(""),
        definition: Definition::Block(block, 0),
        size: 0,
        binding: Binding::Local,
        is_hidden: true,
    });
    graph.descriptor_function = Some(function);
}

/// Whether an edge needs the object's own block at one distance from the thread pointer in every thread.
fn needs_static_block(graph: &LinkGraph, edge: &Edge) -> bool {
    if is_own(graph, edge.symbol) { edge.kind.needs_static_tls() } else { edge.kind.is_block_offset() }
}

/// Whether the object defines a symbol.
fn is_own(graph: &LinkGraph, symbol: SymbolIndex) -> bool {
    matches!(graph.definition(symbol), Definition::Block(..))
}

// ---- refusals ----

/// The error for an ordinary reference to a thread-local variable (`is_variable`), or a thread-local reference to
/// another symbol.
#[cold]
pub(crate) fn wrong_kind(graph: &LinkGraph, id: BlockId, edge: &Edge, is_variable: bool) -> Error {
    let (kind, variable) = (graph.relocation_name(edge.kind), variable_name(graph, edge));
    let what = match edge.kind.thread_local_model() {
        None => format!(
            "{kind} to a thread-local variable: the code takes `{variable}` for an ordinary variable, and it is in the \
             thread-local storage of {}, which only code of a thread-local model reaches; declare it `_Thread_local` (C) or \
             `thread_local` (C++) where it is used",
            owner_of(graph, edge)
        ),
        Some(model) if !is_variable && edge.kind.general() != EdgeKind::ThreadLocalBlock32 => format!(
            "{kind} to a symbol that is no thread-local variable: the code uses the {model} model, and `{variable}` is defined as \
             an ordinary variable or function; declare it alike where it is used and where it is defined"
        ),
        Some(model) => format!(
            "{kind} in an object without thread-local sections: the code uses the {model} model and asks for a block, and the \
             object has no thread-local variable and refers to none by an offset; compile the code with \
             -ftls-model=global-dynamic"
        ),
    };
    refuse(graph, id, edge, variable, what)
}

/// The error for a thread-local reference to a weak variable that nothing defines.
#[cold]
pub(crate) fn undefined_weak(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Error {
    let variable = variable_name(graph, edge);
    let what = format!(
        "{} to an undefined weak thread-local variable: nothing defines `{variable}`, and a thread-local variable has no null \
         address that code could test; define it",
        graph.relocation_name(edge.kind)
    );
    refuse(graph, id, edge, variable, what)
}

/// The error for a variable without a fixed distance from the thread pointer, or from the local-dynamic block, in a
/// place that no thunk can stand for.
#[cold]
pub(crate) fn not_static(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Error {
    not_computed(graph, id, edge, &[], "no thunk can compute a field of this kind")
}

/// The error for a distance that differs from thread to thread and that no thunk computes. `instruction` is the
/// instruction's bytes, if they are known; `problem` is a clause.
#[cold]
pub(crate) fn not_computed(graph: &LinkGraph, id: BlockId, edge: &Edge, instruction: &[u8], problem: &str) -> Error {
    let variable = variable_name(graph, edge);
    let hex: String = instruction.iter().map(|byte| format!(" {byte:02x}")).collect();
    let of_instruction = if hex.is_empty() { String::new() } else { format!(" in the instruction{hex}") };
    let what = format!(
        "{}{of_instruction} of the {} model: it needs `{variable}` at a fixed distance from {}, and the variable lives in {}, to \
         which the C library gave no static TLS offset, because its static space is too small or a thread has used the block \
         already; and {problem}. Start the process with a larger GLIBC_TUNABLES=glibc.rtld.optional_static_tls, link the code \
         before the variable is used, or compile it with -fPIC and -ftls-model=global-dynamic",
        graph.relocation_name(edge.kind),
        edge.kind.thread_local_model().unwrap_or("static"),
        if edge.kind.is_block_offset() { "the block that the code asks for" } else { "the thread pointer" },
        owner_of(graph, edge)
    );
    refuse(graph, id, edge, variable, what)
}

/// The error for a block that the C library refused.
#[cold]
pub(crate) fn block_refused(graph: &LinkGraph, size: u64, problem: &str) -> Error {
    let own = graph.special().find(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped);
    let section = own.map_or("", |(id, _)| graph.block_name(id)).to_string();
    let symbol = own.and_then(|(id, _)| symbol_at(graph, id, 0)).unwrap_or_default().to_string();
    let what = format!("thread-local block of {size} bytes: {problem}");
    graph.fault(LinkFault::Unsupported { what, section, offset: 0, symbol })
}

/// Words for the object whose block a variable is in.
fn owner_of(graph: &LinkGraph, edge: &Edge) -> &'static str {
    if is_own(graph, edge.symbol) { "this object" } else { "another object or library" }
}

/// The name of the variable that an edge refers to. For a variable that is local to the object, compilers name its
/// section and an offset; then this finds the symbol at the offset, or returns the section's name.
fn variable_name<'a>(graph: &'a LinkGraph, edge: &Edge) -> &'a str {
    let name = graph.symbol_name(edge.symbol);
    let Definition::Block(block, start) = graph.definition(edge.symbol) else { return name };
    if !name.is_empty() {
        return name;
    }
    // The addend of a relative field mostly counts from the end of the instruction, four bytes after the field's
    // address.
    let from_end = if edge.kind.formula().is_none() && edge.kind.depends_on_place() { 4 } else { 0 };
    let offset = start.wrapping_add_signed(edge.addend.wrapping_add(from_end));
    symbol_at(graph, block, offset).unwrap_or_else(|| graph.block_name(block))
}

/// The name of the symbol at an offset of a block.
fn symbol_at(graph: &LinkGraph, block: BlockId, offset: u64) -> Option<&str> {
    let holds = |symbol: &GraphSymbol| match symbol.definition {
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

/// Greatest alignment of a thread-local section in bytes: a huge page. The C library reads the image from a file that
/// is larger than this.
const MAX_ALIGN: u64 = 2 << 20;
