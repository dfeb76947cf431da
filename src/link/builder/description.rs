//! [`GraphDescription`]: a copy of what a generator handed over, from which the verifier of debug builds computes the link
//! a second time. Nothing that links reads it.

use crate::base::SegmentKind;
use crate::link::builder::BlockContent;
use crate::link::graph::{BlockId, Definition, Edge};

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
    pub(super) fn add_block(&mut self, section: &str, kind: SegmentKind, align: u64, content: &BlockContent<'_>) {
        let (section, size, content) = (section.to_string(), content.size(), content.to_bytes());
        self.blocks.push(DescribedBlock { section, kind, align, size, content, edges: Vec::new() });
    }

    pub(super) fn set_edges(&mut self, block: BlockId, edges: &[Edge]) {
        self.blocks[block.index()].edges = edges.to_vec();
    }
}
