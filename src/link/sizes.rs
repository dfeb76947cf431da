//! Refuses size relocations (`R_X86_64_SIZE32`, `R_X86_64_SIZE64`) to symbols of other objects. Only the object that
//! defines a symbol knows its size, so this runs after claiming and dead-stripping.

use crate::arch::KindSet;
use crate::error::{Error, LinkFault};
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph};

/// Checks the edges of all blocks that are not dropped. `kinds` has all their kinds.
///
/// # Errors
/// [`LinkFault::Unsupported`] for the first size of another object's symbol.
pub(crate) fn check(graph: &LinkGraph, kinds: KindSet) -> Result<(), Error> {
    if !kinds.has_any_of(KindSet::SIZE) {
        return Ok(());
    }
    let is_elsewhere = |edge: &&Edge| edge.kind.is_size() && graph.definition(edge.symbol) == Definition::External;
    let blocks = graph.blocks().filter(|(_, block)| !block.is_dropped);
    let mut found = blocks.filter_map(|(id, _)| Some((id, graph.edges(id).iter().find(is_elsewhere)?)));
    found.next().map_or(Ok(()), |(id, edge)| Err(refusal(graph, id, edge)))
}

#[cold]
fn refusal(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Error {
    graph.fault(LinkFault::Unsupported {
        what: format!("relocation {} to another object's symbol", graph.relocation_name(edge.kind)),
        section: graph.block_name(id).to_string(),
        offset: edge.offset.into(),
        symbol: graph.symbol_name(edge.symbol).to_string(),
    })
}
