//! Size relocations (`R_X86_64_SIZE32`, `R_X86_64_SIZE64`) to symbols of other objects. Only the object that defines a
//! symbol knows its size. So the link lists these symbols after claiming and dead-stripping, and the caller sets their
//! sizes when it has found them.

use crate::base::sort_by_number;
use crate::error::{Error, LinkFault};
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, SymbolIndex};

/// Lists the externals whose sizes the edges of blocks that are not dropped refer to, in `LinkGraph::sized_externals`.
pub(crate) fn find(graph: &mut LinkGraph) {
    let is_elsewhere = |edge: &&Edge| edge.kind.is_size() && graph.definition(edge.symbol) == Definition::External;
    let mut found: Vec<SymbolIndex> = graph.live_edges().filter(is_elsewhere).map(|edge| edge.symbol).collect();
    sort_by_number(&mut found, SymbolIndex::number);
    found.dedup();
    graph.sized_externals = found;
}

/// The error for an external whose definition has no known size.
#[cold]
pub(crate) fn unknown_size(graph: &LinkGraph, symbol: SymbolIndex) -> Error {
    let blocks = graph.blocks().filter(|(_, block)| !block.is_dropped);
    let uses_size = |edge: &&Edge| edge.kind.is_size() && edge.symbol == symbol;
    let mut edges = blocks.filter_map(|(id, _)| Some((id, graph.edges(id).iter().find(uses_size)?)));
    let place: Option<(BlockId, &Edge)> = edges.next();
    let relocation = place.map_or("", |(_, edge)| graph.relocation_name(edge.kind));
    graph.fault(LinkFault::Unsupported {
        what: format!(
            "relocation {relocation} to a symbol without a known size: it is absolute or of a library, or its \
             definition states no size"
        ),
        section: place.map_or("", |(id, _)| graph.block_name(id)).to_string(),
        offset: place.map_or(0, |(_, edge)| edge.offset.into()),
        symbol: graph.symbol_name(symbol).to_string(),
    })
}
