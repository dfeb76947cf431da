//! `.init` and `.fini` sections: code fragments that a native linker concatenates to the functions `_init` and `_fini`
//! (System V ABI, "Special Sections").
//!
//! `crti.o` holds the beginning of both functions and `crtn.o` holds the end. An object that is linked between them
//! adds calls, without a return. In a session objects come and go, so the fragments of each object become functions of
//! that object:
//!
//! ```text
//!   beginning │ fragment │ nops │ fragment │ end          one function for `.init`, one for `.fini`
//! ```
//!
//! The nops align a fragment, as a native linker does. An FDE describes the function, unless the object has one for a
//! fragment. `src/platform/init_fini.rs` calls the functions: those of `.init` before the lists of initialisers, those of
//! `.fini` after the lists of finalisers, in the order of the objects.
//!
//! # Differences from one function for all objects
//! - A fragment must not jump to a fragment of another object: the rest of its own object would be skipped.
//! - A fragment leaves no value in a register for a fragment of another object.
//!
//! # What is ignored or refused
//! The fragments of `crti.o` and `crtn.o` do nothing by themselves and are ignored. A fragment is refused if it defines
//! `_init` or `_fini`, or ends with a return: it brings its own beginning or end of the function.

use crate::arch::{CrtFragment, EdgeKind};
use crate::base::{SegmentKind, align_up};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Binding, Block, BlockId, Definition, Edge, LinkGraph, Role};
use crate::link::initializers::InitializerKind;
use crate::link::layout::too_sparse;

/// The most filler between the fragments of one function, in bytes. Unlike padding between other sections, it is content of a block,
/// and runs. Compilers align fragments to a few bytes.
const MAX_FILLER: u64 = 1 << 20;

/// Whether a section of this name holds fragments.
pub(crate) fn has_fragment(section: &[u8]) -> bool {
    matches!(section, b".init" | b".fini")
}

/// Makes functions of the fragments of the object.
///
/// # Errors
/// [`LinkFault::Unsupported`], for a fragment that brings its own beginning or end of the function.
pub(crate) fn build_functions(graph: &mut LinkGraph) -> Result<(), Error> {
    if !graph.special().any(|(_, block)| block.is_fragment()) {
        return Ok(());
    }
    for (kind, section) in [(InitializerKind::Init, ".init"), (InitializerKind::Fini, ".fini")] {
        let is_wanted = |(id, block): &(BlockId, &Block)| {
            block.is_fragment()
                && graph.block_name(*id) == section
                && !is_of_c_library(graph, *id, graph.content(block).unwrap_or_default())
        };
        let fragments: Vec<BlockId> = graph.special().filter(is_wanted).map(|(id, _)| id).collect();
        if !fragments.is_empty() {
            check_complete(graph, &fragments)?;
            build_function(graph, kind, section, &fragments)?;
        }
    }
    Ok(())
}

/// Refuses fragments that bring the beginning or the end of the function themselves.
fn check_complete(graph: &LinkGraph, fragments: &[BlockId]) -> Result<(), Error> {
    let refuse = |id: BlockId, what: &str, symbol: &str| {
        let (section, symbol) = (graph.block_name(id).to_string(), symbol.to_string());
        Err(graph.fault(LinkFault::Unsupported { what: what.to_string(), section, offset: 0, symbol }))
    };
    let code = |id: &BlockId| graph.content(&graph.blocks[id.index()]).unwrap_or_default();
    if let Some(id) = fragments.iter().find(|id| graph.arch.ends_with_return(code(id))) {
        let what = "fragment that ends with a return, so that no fragment after it runs; leave out the frame and the \
                    return, which jittison adds";
        return refuse(*id, what, "");
    }
    for (index, symbol) in graph.symbols().skip(graph.first_global as usize) {
        if let Definition::Block(id, _) = symbol.definition
            && symbol.binding != Binding::Local
            && matches!(graph.name_bytes(index), b"_init" | b"_fini")
            && fragments.contains(&id)
        {
            let what = "fragment that begins the function itself; leave out the beginning, which jittison adds";
            return refuse(id, what, graph.symbol_name(index));
        }
    }
    Ok(())
}

/// Makes one function of `fragments`, in their order.
fn build_function(
    graph: &mut LinkGraph,
    kind: InitializerKind,
    section: &str,
    fragments: &[BlockId],
) -> Result<(), Error> {
    let frame = graph.arch.crt_frame();
    let align = fragments.iter().map(|id| graph.blocks[id.index()].align).max().unwrap_or(1).max(MIN_ALIGN);
    let beginning = graph.insert_block(section, SegmentKind::Code, frame.beginning.to_vec(), align, &[]);
    graph.blocks[beginning.index()].role = Role::FragmentFunction { kind };
    graph.special.push(beginning);
    let (mut last, mut size, mut padding) = (beginning, frame.beginning.len() as u64, 0);
    for id in fragments {
        let Block { align, size: fragment_size, .. } = graph.blocks[id.index()];
        // The beginning has the strictest alignment, so offsets in the function are aligned as addresses are. The sizes
        // have 32 bits each, and a graph has at most 2^32 blocks.
        let gap = align_up(size, align).map_or(u64::MAX, |aligned| aligned - size);
        padding += gap.min(MAX_FILLER + 1);
        if padding > MAX_FILLER {
            return Err(too_sparse(graph, *id, gap));
        }
        if gap > 0 {
            let filler = frame.filler.iter().copied().cycle().take(gap as usize).collect();
            let filler = graph.insert_block(section, SegmentKind::Code, filler, 1, &[]);
            graph.place_after(last, filler);
            last = filler;
        }
        graph.place_after(last, *id);
        last = *id;
        size += gap + fragment_size;
    }
    let end = graph.insert_block(section, SegmentKind::Code, frame.end.to_vec(), 1, &[]);
    graph.place_after(last, end);
    size += frame.end.len() as u64;
    if let Ok(size) = u32::try_from(size)
        && !has_unwind_table(graph, fragments)
    {
        let start = graph.insert_local("", beginning, 0);
        let edge = Edge { offset: frame.unwind_start, kind: EdgeKind::Delta32, symbol: start, addend: 0 };
        let table = graph.insert_block(".eh_frame", SegmentKind::ReadOnly, (frame.unwind)(size), 8, &[edge]);
        graph.blocks[table.index()].role = Role::EhFrame;
        graph.special.push(table);
    }
    Ok(())
}

/// Whether an unwind table of the object describes a fragment. Two descriptions of one address would be ambiguous.
fn has_unwind_table(graph: &LinkGraph, fragments: &[BlockId]) -> bool {
    let tables = graph.special().filter(|(_, block)| block.role == Role::EhFrame && !block.is_dropped);
    let mut edges = tables.flat_map(|(id, _)| graph.edges(id));
    edges.any(|edge| matches!(graph.definition(edge.symbol), Definition::Block(id, _) if fragments.contains(&id)))
}

/// Whether `code` is the beginning or the end of the two functions, as in glibc and musl. The beginning of glibc's
/// `_init` also calls `__gmon_start__` if it is defined (gprof), which a JIT does not need.
fn is_of_c_library(graph: &LinkGraph, id: BlockId, code: &[u8]) -> bool {
    match graph.arch.crt_fragment(code) {
        None => false,
        Some(CrtFragment::End) => true,
        Some(CrtFragment::Beginning) => graph.edges(id).is_empty(),
        Some(CrtFragment::BeginningWithCall) => {
            matches!(graph.edges(id), [edge] if is_gmon_start(graph, edge) || calls_gmon_start(graph, edge))
        }
    }
}

fn is_gmon_start(graph: &LinkGraph, edge: &Edge) -> bool {
    graph.symbol_name(edge.symbol) == "__gmon_start__"
}

/// Whether an edge leads to a function of the object that refers to nothing but `__gmon_start__`, as on AArch64.
fn calls_gmon_start(graph: &LinkGraph, edge: &Edge) -> bool {
    let Definition::Block(function, _) = graph.definition(edge.symbol) else { return false };
    let edges = graph.edges(function);
    !edges.is_empty() && edges.iter().all(|edge| is_gmon_start(graph, edge))
}

/// The least alignment of a function in bytes.
const MIN_ALIGN: u64 = 16;
