//! Which sections may live apart: in mappings of their own, so that they take nothing of a window's reach.
//!
//! Decided by property, never by name. A section qualifies that
//!
//! - is data or constants of the object, of at least [`LARGE_SECTION_MIN`] bytes, and no table that the link reads;
//! - has its bytes in the object: a few bytes of file can ask for any amount of zero-fill, which the window bounds;
//! - is reached by absolute 64-bit relocations only, or not at all;
//! - has no relocation that depends on where it stands itself;
//! - defines nothing that other objects see: how those would reach it is not known.
//!
//! Whatever is in doubt stays in the window.

use crate::base::SegmentKind;
use crate::link::graph::{Binding, BlockId, Content, Definition, LinkGraph, Role};
use crate::link::x86_64::EdgeKind;

/// Sections of at least so many bytes are placed outside the window, if nothing needs them to be near. Smaller ones are
/// not worth a mapping.
pub const LARGE_SECTION_MIN: u64 = 1 << 20;

/// The blocks that are placed apart, in order.
pub(crate) fn choose(graph: &LinkGraph) -> Vec<BlockId> {
    if !graph.blocks().any(|(id, _)| is_candidate(graph, id)) {
        return Vec::new();
    }
    let mut may_be_apart: Vec<bool> = graph.blocks().map(|(id, _)| is_candidate(graph, id)).collect();
    for (_, symbol) in graph.symbols().filter(|(_, symbol)| symbol.binding != Binding::Local) {
        if let Definition::Block(block, _) = symbol.definition {
            may_be_apart[block.index()] = false;
        }
    }
    for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
        for edge in graph.edges(id) {
            if edge.kind.depends_on_place() {
                may_be_apart[id.index()] = false;
            }
            if let (false, Definition::Block(target, _)) = (reaches_anything(edge.kind), graph.definition(edge.symbol))
            {
                may_be_apart[target.index()] = false;
            }
        }
    }
    graph.blocks().filter(|(id, _)| may_be_apart[id.index()]).map(|(id, _)| id).collect()
}

/// All that a block's own properties say.
fn is_candidate(graph: &LinkGraph, id: BlockId) -> bool {
    let block = &graph.blocks[id.index()];
    block.size >= LARGE_SECTION_MIN
        && block.pool != SegmentKind::Code
        && block.role == Role::Plain
        && !block.is_dropped
        && matches!(block.content, Content::Object(_))
}

/// Whether an edge's value fits wherever its symbol is.
fn reaches_anything(kind: EdgeKind) -> bool {
    // Thread-local blocks are no candidates, whatever refers to them.
    kind == EdgeKind::Pointer64 || kind.is_size()
}
