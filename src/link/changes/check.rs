//! What is checked after a hook that has changed the graph.
//!
//! | refused | why |
//! |---|---|
//! | wrong use of a method that only adds | it had no place in the graph |
//! | alignment that is no power of two | no segment can place the block |
//! | edge that is outside of its block, or to a removed symbol | its value would be undefined |
//! | two edges with a common byte | the value would depend on their order |
//! | edge that uses a variable as an address, or the reverse | a thread-local variable has no address |
//! | symbol past the end of its block | it would name another block |
//! | visible symbol without a name | no other object could use it |
//! | two strong definitions of one name | a reference could mean either |
//! | unwind record that is malformed, or that covers more than its code (`unwind.rs`) | a throw would find the wrong frame |
//!
//! Phases after this one rely on it as on what the reader of objects checks. The work is in proportion to what the hook
//! changed, except that a removal, a resized block or a visible definition costs one walk over the edges or the symbols.

use std::mem;

use rustc_hash::FxHashMap;

use crate::base::sort_by_number;
use crate::error::Result;
use crate::link::change_record::{RemovedSymbol, Unchecked};
use crate::link::edge_rules;
use crate::link::graph::{Binding, BlockId, Definition, Edge, GraphSymbol, LinkGraph, SymbolIndex};

/// Checks what the last hook has changed.
///
/// # Errors
/// [`LinkFault::InvalidGraph`](crate::error::LinkFault::InvalidGraph): the first change that breaks the graph.
#[inline]
pub(crate) fn check(graph: &mut LinkGraph) -> Result<()> {
    if graph.has_unchecked_changes() { check_recorded(graph) } else { Ok(()) }
}

/// Checks the changes that are recorded.
#[cold]
fn check_recorded(graph: &mut LinkGraph) -> Result<()> {
    if graph.record().unchecked.has_removed_blocks {
        graph.remove_symbols_of_removed_blocks();
    }
    let mut unchecked = mem::take(&mut graph.record().unchecked);
    if let Some(fault) = unchecked.fault.take() {
        return Err(graph.fault(fault));
    }
    sort_by_number(&mut unchecked.blocks, BlockId::number);
    unchecked.blocks.dedup();
    sort_by_number(&mut unchecked.symbols, SymbolIndex::number);
    unchecked.symbols.dedup();
    check_blocks(graph, &unchecked.blocks)?;
    check_symbols(graph, &unchecked)?;
    check_names(graph, &unchecked.symbols)?;
    if unchecked.has_removed {
        check_references(graph)?;
    }
    graph.check_unwind(&unchecked)
}

fn check_blocks(graph: &LinkGraph, blocks: &[BlockId]) -> Result<()> {
    for id in blocks {
        let block = &graph.blocks[id.index()];
        if block.is_dropped {
            continue;
        }
        if !block.align.is_power_of_two() {
            let problem = format!("the block is aligned to {} bytes, which is no power of two", block.align);
            return graph.refuse(*id, 0, problem);
        }
        let edges = graph.edges(*id);
        for edge in edges {
            let problem = edge_rules::place_problem(graph.arch, graph.symbols.len(), block, edge);
            let problem = problem.or_else(|| edge_rules::use_problem(graph, edge).map(str::to_string));
            if let Some(problem) = problem.or_else(|| removed_problem(graph, *id, edge)) {
                return Err(graph.edge_error(*id, edge, problem));
            }
        }
        if let Some((edge, other)) = overlapping(edges) {
            let problem = format!("the field overlaps that of the edge at {:#x}", other.offset);
            return Err(graph.edge_error(*id, &edge, problem));
        }
    }
    Ok(())
}

/// Two edges with a common byte.
fn overlapping(edges: &[Edge]) -> Option<(Edge, Edge)> {
    let mut order: Vec<Edge> = edges.to_vec();
    sort_by_number(&mut order, |edge| edge.offset.into());
    let overlaps = |pair: &&[Edge]| u64::from(pair[0].offset) + pair[0].kind.width() as u64 > pair[1].offset.into();
    order.windows(2).find(overlaps).map(|pair| (pair[1], pair[0]))
}

/// Why an edge leads nowhere: a plugin has removed its symbol.
fn removed_problem(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Option<String> {
    let removed = graph.changes.as_ref()?.removed.get(&edge.symbol)?;
    // As after dead-stripping: the records of removed code describe nothing.
    let is_allowed = *removed == RemovedSymbol::WithCode && graph.describes_dropped_code(id);
    (!is_allowed).then(|| "the symbol was removed".to_string())
}

/// Refuses edges to removed symbols, in all blocks.
fn check_references(graph: &LinkGraph) -> Result<()> {
    for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
        for edge in graph.edges(id) {
            if let Some(problem) = removed_problem(graph, id, edge) {
                return Err(graph.edge_error(id, edge, problem));
            }
        }
    }
    Ok(())
}

fn check_symbols(graph: &LinkGraph, unchecked: &Unchecked) -> Result<()> {
    let is_past_end = |symbol: &GraphSymbol, size: u64| match symbol.definition {
        Definition::Block(block, offset) => {
            offset.checked_add(size).is_none_or(|end| end > graph.blocks[block.index()].size)
        }
        _ => false,
    };
    let refuse = |index: SymbolIndex| {
        let Definition::Block(block, offset) = graph.definition(index) else { return Ok(()) };
        let (size, end) = (graph.symbols[index.index()].size, graph.blocks[block.index()].size);
        let problem = format!("has {size:#x} bytes, which are not in its block: the block has {end:#x} bytes");
        Err(graph.error_at(block, offset, index, &problem))
    };
    let is_bad = |index: &SymbolIndex| {
        let symbol = &graph.symbols[index.index()];
        is_past_end(symbol, symbol.size)
    };
    if let Some(index) = unchecked.symbols.iter().find(|index| is_bad(index)) {
        return refuse(*index);
    }
    if unchecked.has_resized {
        let is_resized = |symbol: &GraphSymbol| match symbol.definition {
            Definition::Block(block, _) => unchecked.blocks.binary_search(&block).is_ok(),
            _ => false,
        };
        let mut bad = graph.symbols().filter(|(_, symbol)| is_resized(symbol) && is_past_end(symbol, symbol.size));
        if let Some((index, _)) = bad.next() {
            return refuse(index);
        }
    }
    Ok(())
}

/// Refuses names that no other object could use, and two strong visible definitions of one name. Of several weak ones, the
/// first that is claimed counts.
fn check_names(graph: &LinkGraph, changed: &[SymbolIndex]) -> Result<()> {
    let visible = || changed.iter().copied().filter(|index| graph.symbols[index.index()].binding != Binding::Local);
    let is_unusable = |index: &SymbolIndex| {
        let name = graph.symbol_name(*index);
        name.is_empty() || name.contains('\0')
    };
    if let Some(index) = visible().find(is_unusable) {
        return graph.refuse_symbol(index, "is visible to other objects and has no name that they could use");
    }
    let is_strong = |symbol: &GraphSymbol| {
        symbol.binding == Binding::Global
            && matches!(symbol.definition, Definition::Block(..) | Definition::Absolute(_))
    };
    let strong = visible().filter(|index| is_strong(&graph.symbols[index.index()]));
    let by_name: FxHashMap<&[u8], SymbolIndex> = strong.map(|index| (graph.name_bytes(index), index)).collect();
    if by_name.is_empty() {
        return Ok(());
    }
    let strong = graph.symbols().filter(|(_, symbol)| is_strong(symbol));
    for (index, _) in strong {
        if by_name.get(graph.name_bytes(index)).is_some_and(|other| *other != index) {
            return graph.refuse_symbol(index, "has two strong definitions: rename one of them, or make it local");
        }
    }
    Ok(())
}
