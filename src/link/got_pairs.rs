//! [`GotPairs`]: the pairs of instructions of an object that load a GOT slot, and that may be rewritten to make the symbol's
//! address without the slot.
//!
//! The first instruction of a pair makes the page of the slot, and the second one loads from the page. A rewritten pair makes
//! another page, so nothing else may use the page:
//!
//! | what could use it | why nothing does |
//! |---|---|
//! | an instruction after the load | the load overwrites the register (`arch` checks the instructions) |
//! | another load, to which code jumps between the two | every load of the object follows its page; otherwise no pair is rewritten |
//! | the load, for code that jumps to it with a page from elsewhere | the same; and no symbol is defined at the load |

use rustc_hash::FxHashSet;

use crate::arch::{Arch, GotPairPart};
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph};

/// The places of the pairs that may be rewritten: block, and offset of the first instruction. Empty if there is none.
#[derive(Default)]
pub(crate) struct GotPairs(FxHashSet<(BlockId, u64)>);

impl GotPairs {
    /// Whether the pair whose first instruction is at an offset of a block may be rewritten.
    pub(super) fn contains(&self, id: BlockId, offset: u32) -> bool {
        self.0.contains(&(id, offset.into()))
    }

    /// Finds the pairs of an object.
    #[inline]
    pub(crate) fn of(graph: &LinkGraph) -> GotPairs {
        // Its loads are single instructions.
        if graph.arch == Arch::QUICK { GotPairs::default() } else { GotPairs::find(graph) }
    }

    #[cold]
    fn find(graph: &LinkGraph) -> GotPairs {
        let mut pairs = FxHashSet::default();
        for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
            let mut edges = graph.edges(id).iter().filter(|edge| graph.arch.got_pair_part(edge.kind).is_some());
            while let Some(first) = edges.next() {
                match edges.next() {
                    Some(second) if is_pair(graph, first, second) => drop(pairs.insert((id, first.offset.into()))),
                    _ => return GotPairs::default(),
                }
            }
        }
        if !pairs.is_empty() {
            for (_, symbol) in graph.symbols() {
                if let Definition::Block(id, offset @ 4..) = symbol.definition {
                    pairs.remove(&(id, offset - 4));
                }
            }
        }
        GotPairs(pairs)
    }
}

/// Whether two edges are those of a page and of the load that follows it, for one symbol.
pub(super) fn is_pair(graph: &LinkGraph, first: &Edge, second: &Edge) -> bool {
    let part = |edge: &Edge| graph.arch.got_pair_part(edge.kind);
    let are_parts = (part(first), part(second)) == (Some(GotPairPart::Page), Some(GotPairPart::Load));
    let is_adjacent = first.offset.checked_add(4) == Some(second.offset);
    are_parts && is_adjacent && first.symbol == second.symbol && (first.addend, second.addend) == (0, 0)
}
