//! [`RangeExtension`]: the thunks and slots that one object may need, reserved before layout.
//!
//! Whether a reference reaches its target is known only when the addresses are. Blocks need their sizes before. So the
//! object gets one block of thunks and one block of slots, large enough for every reference that [may be
//! far](may_be_far). The reservation counts references; it does not look at instructions.

use crate::arch::{EdgeKind, KindSet};
use crate::base::{RecycledVec, SegmentKind};
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Role, Text};

/// The reserved blocks of one object.
#[derive(Default)]
pub(crate) struct RangeExtension {
    thunks: Option<BlockId>,
    slots: Option<BlockId>,
    /// Exception tables that have slots, and the number of the first slot of each. Ascending.
    tables: Vec<(BlockId, u64)>,
}

impl RangeExtension {
    /// Reserves a thunk or a slot for every reference that may be far. The caller has checked
    /// (`SymbolUses::may_be_far`) that there is one.
    #[cold]
    pub(crate) fn reserve(graph: &mut LinkGraph) -> RangeExtension {
        let mut reserved = RangeExtension::default();
        let (mut thunk_count, mut slot_count) = (0, 0);
        for (id, block) in graph.blocks().filter(|(_, block)| !block.is_dropped && !block.is_zero_fill()) {
            let references = graph.edges(id).iter().filter(|edge| may_be_far(graph, edge)).count();
            if block.pool == SegmentKind::Code {
                thunk_count += references;
            } else if references > 0 && is_exception_table(graph, id, block) {
                reserved.tables.push((id, slot_count));
                // One encoding holds for all entries of a table, so entries in reach need slots as well.
                slot_count += graph.edges(id).iter().filter(|edge| edge.kind == EdgeKind::Pointer32).count() as u64;
            }
        }
        if thunk_count > 0 {
            let thunks = RecycledVec::repeat(graph.arch.trap(), thunk_count * graph.arch.max_thunk_size());
            reserved.thunks = Some(push(graph, ".far_code", SegmentKind::Code, thunks, 16));
        }
        if slot_count > 0 {
            let slots = RecycledVec::repeat(0, slot_count as usize * 8);
            reserved.slots = Some(push(graph, ".far_types", SegmentKind::ReadOnly, slots, 8));
        }
        reserved
    }

    /// The block of thunks, if one is reserved.
    pub(crate) fn thunks(&self) -> Option<BlockId> {
        self.thunks
    }

    /// The block of slots of exception tables, if one is reserved.
    pub(crate) fn slots(&self) -> Option<BlockId> {
        self.slots
    }

    /// Whether a thunk or a slot is reserved for a reference.
    pub(crate) fn covers(&self, graph: &LinkGraph, id: BlockId, edge: &Edge) -> bool {
        let is_code = graph.blocks[id.index()].pool == SegmentKind::Code && self.thunks.is_some();
        may_be_far(graph, edge) && (is_code || edge.kind == EdgeKind::Pointer32 && self.first_slot(id).is_some())
    }

    /// The number of the first slot of an exception table, if it has slots.
    pub(crate) fn first_slot(&self, id: BlockId) -> Option<u64> {
        let at = self.tables.binary_search_by_key(&id, |(table, _)| *table).ok()?;
        Some(self.tables[at].1)
    }
}

/// Whether a reference may be too short for its target: one that is narrower than an address, to an external that may belong to a
/// library. A hidden one belongs to an object of the same dylib, which is near unless this object is below 2 GiB.
fn may_be_far(graph: &LinkGraph, edge: &Edge) -> bool {
    let symbol = &graph.symbols[edge.symbol.index()];
    if edge.kind.is_narrow_instruction() {
        return may_be_beyond_instruction(graph, edge);
    }
    KindSet::NEAR.contains(edge.kind)
        && symbol.definition == Definition::External
        && (!symbol.is_hidden || graph.may_need_low_memory())
}

/// The same for an instruction that reaches 4 GiB, or 1 MiB. Segments and the objects of a dylib may be further apart than 1 MiB.
fn may_be_beyond_instruction(graph: &LinkGraph, edge: &Edge) -> bool {
    let is_short = edge.kind.range().is_some_and(|(_, max)| max < 1 << 21);
    let is_entry = edge.kind.formula().is_some_and(|formula| formula.base.is_entry());
    let symbol = &graph.symbols[edge.symbol.index()];
    match symbol.definition {
        Definition::Nowhere => false,
        _ if is_entry => is_short,
        Definition::External => is_short || !symbol.is_hidden || graph.may_need_low_memory(),
        Definition::Absolute(_) => true,
        Definition::Block(block, _) => is_short && graph.blocks[block.index()].pool != SegmentKind::Code,
    }
}

fn is_exception_table(graph: &LinkGraph, id: BlockId, block: &Block) -> bool {
    block.pool == SegmentKind::ReadOnly
        && block.role == Role::Plain
        && graph.block_name(id).starts_with(".gcc_except_table")
}

fn push(graph: &mut LinkGraph, name: &'static str, pool: SegmentKind, content: RecycledVec<u8>, align: u64) -> BlockId {
    let size = content.len() as u64;
    let content = graph.synthetic.add_content(content);
    graph.push_block(Text::Fixed(name), pool, content, size, align)
}
