//! Blocks → offsets and a segment plan. Arithmetic only.
//!
//! Within a pool, blocks stand in the object's order, zero-fill behind everything that has bytes, so that a large
//! `.bss` is a tail that fresh memory already is. What may live apart is in no pool's segment.

use std::iter;

use smallvec::SmallVec;

use crate::base::{SegmentKind, align_up};
use crate::error::{Error, LinkFault};
use crate::link::frames;
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, Role};
use crate::link::large_sections;
use crate::link::thread_locals;
use crate::link::x86_64::KindSet;
use crate::memory::{LargeRequest, SegmentPlan, SegmentRequest};

/// Gives every block its offset; what to ask of memory, and which blocks with bytes stand in each segment.
pub(crate) fn assign(graph: &mut LinkGraph, plan: &mut SegmentPlan, contents: &mut Contents) -> Result<(), Error> {
    *plan = SegmentPlan { apart: set_apart(graph), ..SegmentPlan::default() };
    *contents = Contents::default();
    let mut zero_fill = SmallVec::<[BlockId; 8]>::new();
    let mut padding = 0;
    let order = order(graph);
    for number in 0..graph.blocks.len() {
        let id = order.as_ref().map_or(BlockId(number as u32), |order| order[number]);
        let block = &mut graph.blocks[id.index()];
        if block.is_dropped || block.is_apart() || block.role == Role::TlsIndex {
            continue;
        }
        if block.is_zero_fill() {
            zero_fill.push(id);
            continue;
        }
        let segment = &mut plan.segments[block.pool.index()];
        let Some(gap) = put(block, segment) else { return Err(too_large(graph, id)) };
        padding += gap;
        if padding > MAX_PADDING {
            return Err(too_sparse(graph, id, gap));
        }
        contents.append(graph, id);
    }
    for id in zero_fill {
        let block = &mut graph.blocks[id.index()];
        let segment = &mut plan.segments[block.pool.index()];
        let start = segment.size;
        if put(block, segment).is_none() {
            return Err(too_large(graph, id));
        }
        segment.zero_fill += segment.size - start;
    }
    let eh_frames = graph.special().filter(|(_, block)| block.role == Role::EhFrame && !block.is_dropped);
    plan.frame_count = eh_frames.filter_map(|(_, block)| graph.content(block)).map(frames::count_records).sum();
    plan.low = graph.kinds.has_any_of(KindSet::LOW)
        && thread_locals::live_edges(graph)
            .any(|edge| KindSet::LOW.contains(edge.kind) && has_address(graph.definition(edge.symbol)));
    if plan.segment(SegmentKind::Code).size == 0 {
        plan.frame_count = 0;
    }
    Ok(())
}

/// The blocks with bytes of each segment, in the order in which they stand there: the first of each, which name the next.
#[derive(Default)]
pub(crate) struct Contents {
    first: [Option<BlockId>; 3],
    last: [Option<BlockId>; 3],
}

impl Contents {
    /// Those without any bytes have no place among the others.
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

    /// Those of one segment.
    pub(crate) fn of<'a>(&self, graph: &'a LinkGraph, pool: SegmentKind) -> impl Iterator<Item = (BlockId, &'a Block)> {
        let named = |id: BlockId| (id, &graph.blocks[id.index()]);
        iter::successors(self.first[pool.index()].map(named), move |(_, block)| block.followed_by.map(named))
    }
}

/// Places a block at the end of its segment; how many bytes are left ahead of it.
#[inline]
fn put(block: &mut Block, segment: &mut SegmentRequest) -> Option<u64> {
    let (offset, end) = place(segment, block.size, block.align)?;
    let gap = offset - segment.size;
    block.offset = offset;
    segment.size = end;
    segment.align = segment.align.max(block.align);
    Some(gap)
}

/// The object's order, but for those that must follow another; `None` if there are no such.
fn order(graph: &LinkGraph) -> Option<Vec<BlockId>> {
    if graph.blocks.iter().all(|block| block.followed_by.is_none()) {
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

/// Numbers the blocks that live apart; what to ask for them.
fn set_apart(graph: &mut LinkGraph) -> Vec<LargeRequest> {
    let chosen = large_sections::choose(graph);
    if chosen.is_empty() {
        return Vec::new();
    }
    let request = |(number, id): (usize, BlockId)| {
        let block = &mut graph.blocks[id.index()];
        block.apart = Some(number as u32);
        LargeRequest { size: block.size, align: block.align, is_read_only: block.pool == SegmentKind::ReadOnly }
    };
    chosen.into_iter().enumerate().map(request).collect()
}

/// Whether a symbol has an address that depends on where things are put.
fn has_address(definition: Definition) -> bool {
    matches!(definition, Definition::Block(..) | Definition::External)
}

fn place(segment: &SegmentRequest, size: u64, align: u64) -> Option<(u64, u64)> {
    let offset = align_up(segment.size, align)?;
    Some((offset, offset.checked_add(size)?))
}

#[cold]
fn too_large(graph: &LinkGraph, block: BlockId) -> Error {
    let pool = graph.blocks[block.index()].pool.name();
    let problem = format!("its {pool} sections add up to more than an address space");
    graph.fault(LinkFault::Malformed(problem))
}

/// A section leaves so many bytes of nothing ahead of it that they add up to more than is written for any object.
pub(crate) fn too_sparse(graph: &LinkGraph, block: BlockId, gap: u64) -> Error {
    let (name, align) = (graph.block_name(block), graph.blocks[block.index()].align);
    let problem = format!("section `{name}` is aligned to {align}, which leaves {gap} bytes of nothing ahead of it");
    graph.fault(LinkFault::Malformed(problem))
}

/// Bytes between the sections of an object, at most: unlike zero-fill they are written, and a small object could ask for
/// any number of them. Room for 31 sections on huge pages.
pub(crate) const MAX_PADDING: u64 = 64 << 20;
