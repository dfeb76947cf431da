//! [`Extents`]: the sizes of the variables of a built graph, also of those that the generator gave no size.
//!
//! A variable without a size ends where the next visible symbol of its block begins, or with the block. So a definition that takes the
//! place of another one (a version of a patch, a common symbol) is never taken for one that fits because nobody gave its size.

use std::cell::OnceCell;

use super::VisibleSymbol;
use crate::base::{pair, sort_by_number};
use crate::link::graph::{Definition, LinkGraph};

pub(super) struct Extents<'a> {
    graph: &'a LinkGraph,
    visible: &'a [VisibleSymbol],
    /// The block and the offset of each visible symbol in a block, sorted. Made for the first variable without a size.
    starts: OnceCell<Vec<(u32, u64)>>,
}

impl<'a> Extents<'a> {
    pub(super) fn new(graph: &'a LinkGraph, visible: &'a [VisibleSymbol]) -> Extents<'a> {
        Extents { graph, visible, starts: OnceCell::new() }
    }

    /// The size of a visible symbol in bytes. Zero if it is unknown: of a function, and of an absolute symbol.
    #[inline]
    pub(super) fn size_of(&self, visible: &VisibleSymbol) -> u64 {
        let size = self.graph.symbols[visible.index.index()].size;
        if size != 0 || visible.is_callable { size } else { self.extent_of(visible) }
    }

    #[cold]
    fn extent_of(&self, visible: &VisibleSymbol) -> u64 {
        let Some(start @ (block, offset)) = self.start_of(visible) else { return 0 };
        let starts = self.starts.get_or_init(|| {
            let mut starts: Vec<_> = self.visible.iter().filter_map(|visible| self.start_of(visible)).collect();
            sort_by_number(&mut starts, |(block, offset)| pair(*block, *offset));
            starts
        });
        let next = starts.get(starts.partition_point(|other| *other <= start)).filter(|next| next.0 == block);
        next.map_or(self.graph.blocks[block as usize].size, |next| next.1).saturating_sub(offset)
    }

    /// The number of the block that has a symbol, and the offset of the symbol in it.
    fn start_of(&self, visible: &VisibleSymbol) -> Option<(u32, u64)> {
        let Definition::Block(block, offset) = self.graph.symbols[visible.index.index()].definition else {
            return None;
        };
        Some((block.index() as u32, offset))
    }
}
