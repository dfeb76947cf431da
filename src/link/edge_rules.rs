//! What every edge must be, whether a generator or a plugin made it.

use crate::arch::Arch;
use crate::link::block::{Block, Role};
use crate::link::definition::Definition;
use crate::link::edge::Edge;
use crate::link::graph::LinkGraph;

/// Why an edge of a block names no symbol or no bytes. `symbol_count` is the number of symbols in the graph, and `arch`
/// its architecture.
pub(crate) fn place_problem(arch: Arch, symbol_count: usize, block: &Block, edge: &Edge) -> Option<String> {
    let end = u64::from(edge.offset) + edge.kind.width() as u64;
    if edge.symbol.index() >= symbol_count || edge.symbol.index() == 0 {
        return Some(format!("symbol {} is not in this graph", edge.symbol.index()));
    }
    if !arch.has_kind(edge.kind) {
        return Some(format!("no code of {} has edges of the kind {:?}", arch.name(), edge.kind));
    }
    if block.is_zero_fill() {
        return Some("the block is zero-filled, so it has no fields".to_string());
    }
    (end > block.size).then(|| format!("the field ends at {end:#x}, and the block has {:#x} bytes", block.size))
}

/// Why an edge uses a variable as what it is not.
pub(crate) fn use_problem(graph: &LinkGraph, edge: &Edge) -> Option<&'static str> {
    let Definition::Block(block, _) = graph.definition(edge.symbol) else { return None };
    let target = graph.blocks.get(block.index())?; // refused with its symbol
    match (target.role == Role::ThreadLocal, edge.kind.is_thread_local()) {
        (true, false) if edge.kind.thread_local_entry().is_none() && !edge.kind.is_size() => Some(
            "the symbol is a thread-local variable, which has no address of its own: use a thread-local kind of edge",
        ),
        (false, true) => Some("the symbol is no thread-local variable"),
        _ => None,
    }
}
