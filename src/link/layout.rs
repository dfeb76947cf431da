//! Blocks → offsets and a segment plan. Arithmetic only.
//!
//! Within a pool, blocks stand in the object's order, zero-fill behind everything that has bytes, so that a large
//! `.bss` is a tail that fresh memory already is. What may live apart is in no pool's segment.

use std::iter;

use crate::base::{Kept, Pool, align_up};
use crate::error::{Error, LinkFault};
use crate::link::apart;
use crate::link::frames;
use crate::link::graph::{BlockId, Content, Definition, LinkGraph, Role};
use crate::link::thread_locals;
use crate::link::x86_64::KindSet;
use crate::memory::{ApartRequest, SegmentPlan, SegmentRequest};

/// Gives every block its offset; what to ask of memory, and the order in which blocks with bytes stand in each segment.
pub(crate) fn assign(graph: &mut LinkGraph) -> Result<(SegmentPlan, Kept<BlockId>), Error> {
    let mut plan = SegmentPlan { apart: set_apart(graph), ..SegmentPlan::default() };
    let order = order(graph);
    let mut padding = 0;
    for is_zero in [false, true] {
        for id in order.iter() {
            let block = &mut graph.blocks[id.index()];
            let is_elsewhere = block.is_apart() || block.role == Role::ThreadLocal;
            if block.is_dropped || is_elsewhere || matches!(block.content, Content::Zero) != is_zero {
                continue;
            }
            let segment = &mut plan.segments[block.pool.index()];
            let Some((offset, end)) = place(segment, block.size, block.align) else {
                let pool = block.pool.name();
                return Err(graph
                    .fault(LinkFault::Malformed(format!("its {pool} sections add up to more than an address space"))));
            };
            let gap = offset - segment.size;
            block.offset = offset;
            if is_zero {
                segment.zero_fill += end - segment.size;
            } else {
                padding += gap;
            }
            segment.size = end;
            segment.align = segment.align.max(block.align);
            if padding > MAX_PADDING {
                return Err(too_sparse(graph, *id, gap));
            }
        }
    }
    let eh_frames = graph.blocks.iter().filter(|block| block.role == Role::EhFrame && !block.is_dropped);
    plan.frame_count = eh_frames.filter_map(|block| graph.content(block)).map(frames::count_records).sum();
    plan.low = graph.kinds.has_any_of(KindSet::LOW)
        && thread_locals::live_edges(graph)
            .any(|edge| KindSet::LOW.contains(edge.kind) && has_address(graph.definition(edge.symbol)));
    if plan.segment(Pool::Code).size == 0 {
        plan.frame_count = 0;
    }
    Ok((plan, order))
}

/// The object's order, but for those that must follow another.
fn order(graph: &LinkGraph) -> Kept<BlockId> {
    let ids = || graph.blocks().map(|(id, _)| id);
    if graph.blocks.iter().all(|block| block.followed_by.is_none()) {
        return ids().collect();
    }
    let mut is_follower = vec![false; graph.blocks.len()];
    for follower in graph.blocks.iter().filter_map(|block| block.followed_by) {
        is_follower[follower.index()] = true;
    }
    let heads = ids().filter(|id| !is_follower[id.index()]);
    heads.flat_map(|head| iter::successors(Some(head), |id| graph.blocks[id.index()].followed_by)).collect()
}

/// Numbers the blocks that live apart; what to ask for them.
fn set_apart(graph: &mut LinkGraph) -> Vec<ApartRequest> {
    let chosen = apart::choose(graph);
    let request = |(number, id): (usize, BlockId)| {
        let block = &mut graph.blocks[id.index()];
        block.apart = Some(number as u32);
        ApartRequest { size: block.size, align: block.align, is_read_only: block.pool == Pool::ReadOnly }
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

/// A section leaves so many bytes of nothing ahead of it that they add up to more than is written for any object.
pub(crate) fn too_sparse(graph: &LinkGraph, block: BlockId, gap: u64) -> Error {
    let (name, align) = (graph.block_name(block), graph.blocks[block.index()].align);
    let problem = format!("section `{name}` is aligned to {align}, which leaves {gap} bytes of nothing ahead of it");
    graph.fault(LinkFault::Malformed(problem))
}

/// Bytes between the sections of an object, at most: unlike zero-fill they are written, and a small object could ask for
/// any number of them. Room for 31 sections on huge pages.
pub(crate) const MAX_PADDING: u64 = 64 << 20;
