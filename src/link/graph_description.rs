//! [`GraphDescription`]: a copy of what a generator handed over, from which the verifier of debug builds computes the link
//! a second time. Nothing that links reads it.

use crate::base::SegmentKind;
use crate::link::definition::Definition;
use crate::link::edge::{BlockId, Edge};

/// The blocks and symbols of a built graph, in the order of their positions.
#[derive(Default)]
pub(crate) struct GraphDescription {
    pub(crate) blocks: Vec<DescribedBlock>,
    /// Without the null symbol.
    pub(crate) symbols: Vec<DescribedSymbol>,
    pub(crate) marks_entries: bool,
}

pub(crate) struct DescribedBlock {
    pub(crate) section: String,
    pub(crate) kind: SegmentKind,
    pub(crate) align: u64,
    pub(crate) size: u64,
    /// `None` for zero-fill.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) edges: Vec<Edge>,
}

pub(crate) struct DescribedSymbol {
    pub(crate) name: String,
    pub(crate) definition: Definition,
    pub(crate) size: u64,
    pub(crate) is_local: bool,
}

impl GraphDescription {
    pub(crate) fn set_edges(&mut self, block: BlockId, edges: &[Edge]) {
        self.blocks[block.index()].edges = edges.to_vec();
    }
}
