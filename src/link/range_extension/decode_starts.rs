//! [`DecodeStarts`]: where instructions and exception tables of an object begin, from its symbols and unwind tables.

use crate::base::{pair, sort_by_number};
use crate::link::graph::{BlockId, Definition, LinkGraph, Role};

/// Offsets in blocks, sorted, at which a function or an exception table is known to begin.
pub(super) struct DecodeStarts(Vec<(BlockId, u64)>);

impl DecodeStarts {
    /// Reads them from the object's symbols and unwind tables.
    pub(super) fn of(graph: &LinkGraph) -> DecodeStarts {
        // A symbol with a size is a function, or data with code after its end. A symbol without a size is skipped: it
        // may be a label anywhere.
        let sized = graph.symbols().filter(|(_, symbol)| symbol.size > 0);
        let bounds = sized.flat_map(|(_, symbol)| [0, symbol.size].map(|offset| (symbol.definition, offset)));
        let mut starts: Vec<_> =
            bounds.filter_map(|(definition, offset)| in_block(definition, i64::try_from(offset).ok()?)).collect();
        let frames = graph.blocks().filter(|(_, block)| block.role == Role::EhFrame && !block.is_dropped);
        for edge in frames.flat_map(|(id, _)| graph.edges(id)) {
            starts.extend(in_block(graph.definition(edge.symbol), edge.addend));
        }
        sort_by_number(&mut starts, |(block, offset)| pair(block.0, *offset));
        starts.dedup();
        DecodeStarts(starts)
    }

    /// The starts in one block.
    pub(super) fn of_block(&self, id: BlockId) -> &[(BlockId, u64)] {
        let first = self.0.partition_point(|(block, _)| *block < id);
        let end = self.0.partition_point(|(block, _)| *block <= id);
        &self.0[first..end]
    }
}

fn in_block(definition: Definition, addend: i64) -> Option<(BlockId, u64)> {
    match definition {
        Definition::Block(block, offset) => Some((block, offset.checked_add_signed(addend)?)),
        _ => None,
    }
}
