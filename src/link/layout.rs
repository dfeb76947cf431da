//! Layout: gives every block an offset in its segment, and computes the [`SegmentPlan`]. Arithmetic only.
//!
//! ```text
//!   segment of one kind:   [ blocks with bytes, in the object's order │ zero-fill ]
//! ```
//!
//! Zero-fill comes last, so a large `.bss` is a tail of fresh pages that nothing writes. Large sections
//! (`large_sections.rs`) are in no segment: each gets a request of its own. Blocks in areas (`bounds.rs`) have memory
//! already. Thread-local blocks get their offsets in `thread_locals.rs`.

use std::iter;

use smallvec::SmallVec;

use crate::arch::KindSet;
use crate::base::{SegmentKind, align_up, pair, sort_by_number};
use crate::error::{Error, LinkFault};
use crate::link::frames;
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, Role};
use crate::link::large_sections;
use crate::memory::{LargeRequest, SegmentPlan, SegmentRequest};

/// Sets the offset of every block that is in a segment, fills in `plan`, and records the blocks with bytes in
/// `contents`.
///
/// # Errors
/// If a segment's size overflows, or if the padding is more than [`MAX_PADDING`].
pub(crate) fn assign(graph: &mut LinkGraph, plan: &mut SegmentPlan, contents: &mut Contents) -> Result<(), Error> {
    *plan = SegmentPlan { large_sections: number_large_sections(graph), ..SegmentPlan::default() };
    let order = layout_order(graph);
    place(graph, plan, contents, order.as_deref())?;
    let eh_frames = graph.special().filter(|(_, block)| block.role == Role::EhFrame && !block.is_dropped);
    plan.frame_count = eh_frames.filter_map(|(_, block)| graph.content(block)).map(frames::count_records).sum();
    plan.low = graph.is_near_low_area
        || graph.may_need_low_memory()
            && graph
                .live_edges()
                .any(|edge| KindSet::LOW.contains(edge.kind) && has_address(graph.definition(edge.symbol)));
    if plan.segment(SegmentKind::Code).size == 0 {
        plan.frame_count = 0;
    }
    Ok(())
}

/// Sets the offsets of blocks, `plan.segments` and `contents`. `order` has all blocks, in the order in which they are placed;
/// without it, that is the object's order.
///
/// # Errors
/// As [`assign`].
#[inline]
pub(crate) fn place(
    graph: &mut LinkGraph,
    plan: &mut SegmentPlan,
    contents: &mut Contents,
    order: Option<&[BlockId]>,
) -> Result<(), Error> {
    (plan.segments, *contents) = (Default::default(), Contents::default());
    let mut zero_fill = SmallVec::<[BlockId; 8]>::new();
    let mut padding = 0;
    for number in 0..graph.blocks.len() {
        let id = order.map_or(BlockId(number as u32), |order| order[number]);
        let block = &mut graph.blocks[id.index()];
        if block.is_dropped || block.is_large() || block.role == Role::ThreadLocal {
            continue;
        }
        if block.is_zero_fill() {
            zero_fill.push(id);
            continue;
        }
        let segment = &mut plan.segments[block.pool.index()];
        let Some(gap) = append_block(block, segment) else { return Err(too_large(graph, id)) };
        padding += gap;
        if padding > MAX_PADDING {
            return Err(too_sparse(graph, id, gap));
        }
        contents.append(graph, id);
    }
    for &id in &zero_fill {
        let block = &mut graph.blocks[id.index()];
        let segment = &mut plan.segments[block.pool.index()];
        let start = segment.size;
        if append_block(block, segment).is_none() {
            return Err(too_large(graph, id));
        }
        segment.zero_fill += segment.size - start;
    }
    Ok(())
}

/// The order in which [`place`] has placed the blocks of each segment.
pub(crate) fn current_order(graph: &LinkGraph) -> Vec<BlockId> {
    let mut order: Vec<BlockId> = graph.blocks().map(|(id, _)| id).collect();
    // An empty block is before the block at its offset.
    sort_by_number(&mut order, |id| pair(graph.blocks[id.index()].offset, graph.blocks[id.index()].size));
    order
}

/// The blocks with bytes of each segment, as linked lists in layout order. `Block::followed_by` is the link.
#[derive(Default)]
pub(crate) struct Contents {
    first: [Option<BlockId>; 3],
    last: [Option<BlockId>; 3],
}

impl Contents {
    /// Appends a block to the list of its segment. An empty block is not listed.
    #[inline]
    fn append(&mut self, graph: &mut LinkGraph, id: BlockId) {
        let block = &mut graph.blocks[id.index()];
        block.followed_by = None;
        if block.size == 0 {
            return;
        }
        let pool = block.pool.index();
        match self.last[pool].replace(id) {
            Some(last) => graph.blocks[last.index()].followed_by = Some(id),
            None => self.first[pool] = Some(id),
        }
    }

    /// The blocks with bytes of one segment, in the order of their offsets.
    pub(crate) fn of<'a>(&self, graph: &'a LinkGraph, pool: SegmentKind) -> impl Iterator<Item = (BlockId, &'a Block)> {
        let with_id = |id: BlockId| (id, &graph.blocks[id.index()]);
        iter::successors(self.first[pool.index()].map(with_id), move |(_, block)| block.followed_by.map(with_id))
    }
}

/// Places a block at the end of its segment. Returns the bytes of padding before it, or `None` on overflow.
#[inline]
fn append_block(block: &mut Block, segment: &mut SegmentRequest) -> Option<u64> {
    let (offset, end) = range_at_end(segment, block.size, block.align)?;
    let gap = offset - segment.size;
    block.offset = offset;
    segment.size = end;
    segment.align = segment.align.max(block.align);
    Some(gap)
}

/// The order in which blocks are placed: the object's order, except that a block with a predecessor
/// (`Block::followed_by`) comes directly after it. `None` if no block has one.
fn layout_order(graph: &LinkGraph) -> Option<Vec<BlockId>> {
    if !graph.has_followers {
        return None;
    }
    let ids = || graph.blocks().map(|(id, _)| id);
    let mut is_follower = vec![false; graph.blocks.len()];
    for follower in graph.blocks.iter().filter_map(|block| block.followed_by) {
        is_follower[follower.index()] = true;
    }
    let heads = ids().filter(|id| !is_follower[id.index()]);
    Some(heads.flat_map(|head| iter::successors(Some(head), |id| graph.blocks[id.index()].followed_by)).collect())
}

/// Numbers the large sections, and returns a memory request for each. Numbers the blocks in areas after them.
fn number_large_sections(graph: &mut LinkGraph) -> Vec<LargeRequest> {
    let chosen = large_sections::choose(graph);
    let LinkGraph { placements, blocks, .. } = graph;
    let placed = placements.iter().flat_map(|placement| &placement.blocks);
    for (number, id) in (chosen.len() as u32..).zip(placed) {
        blocks[id.index()].large_index = Some(number);
    }
    if chosen.is_empty() {
        return Vec::new();
    }
    let request = |(number, id): (usize, BlockId)| {
        let block = &mut graph.blocks[id.index()];
        block.large_index = Some(number as u32);
        LargeRequest { size: block.size, align: block.align, is_read_only: block.pool == SegmentKind::ReadOnly }
    };
    chosen.into_iter().enumerate().map(request).collect()
}

/// Whether a symbol's address depends on the placement of memory.
fn has_address(definition: Definition) -> bool {
    matches!(definition, Definition::Block(..) | Definition::External)
}

/// The offset and end of the next block in a segment. `None` on overflow.
fn range_at_end(segment: &SegmentRequest, size: u64, align: u64) -> Option<(u64, u64)> {
    let offset = align_up(segment.size, align)?;
    Some((offset, offset.checked_add(size)?))
}

#[cold]
fn too_large(graph: &LinkGraph, block: BlockId) -> Error {
    let pool = graph.blocks[block.index()].pool.name();
    let problem = format!("its {pool} sections add up to more than the address space");
    graph.fault(LinkFault::Malformed(problem))
}

/// The error for a section whose padding exceeds the rest of [`MAX_PADDING`].
pub(crate) fn too_sparse(graph: &LinkGraph, block: BlockId, gap: u64) -> Error {
    let (name, align) = (graph.block_name(block), graph.blocks[block.index()].align);
    let problem = format!("section `{name}` is aligned to {align}, which puts {gap} bytes of padding before it");
    graph.fault(LinkFault::Malformed(problem))
}

/// The most padding between the blocks of one object, in bytes. Padding is written, unlike zero-fill, so without a
/// limit a small object could ask for any amount of memory. The limit allows 32 gaps before sections that are
/// aligned to huge pages (2 MiB): each gap is at most 2 MiB − 1.
pub(super) const MAX_PADDING: u64 = 64 << 20;

const _: () = assert!(MAX_PADDING / ((2 << 20) - 1) == 32, "the number of gaps in the comment above");
