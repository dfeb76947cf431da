//! Large sections: which blocks get a mapping of their own, so that they take no space in a window's ±2 GiB of reach.
//!
//! The choice depends on properties, never on names. A section qualifies if
//!
//! - it is data or constants of the object, of at least [`LARGE_SECTION_MIN`] bytes, and no table that the link reads;
//! - it has bytes in the object (a few bytes of file can ask for any amount of zero-fill, so zero-fill stays in the
//!   window, which limits it);
//! - only absolute 64-bit relocations refer to it, or none;
//! - its own relocations do not depend on its address;
//! - it has no definition that other objects see, because their references may be 32-bit;
//! - it is neither next to another section of its name, because these are contiguous, nor in an area (`bounds.rs`).
//!
//! In case of doubt a section stays in the window. All of them stay if the memory manager has no other memory
//! ([`MemoryManager::has_large_sections`](crate::memory::MemoryManager::has_large_sections)).

use crate::arch::EdgeKind;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::{MemoryFault, Result};
use crate::link::graph::{Binding, BlockId, Content, Definition, LinkGraph, Role};
use crate::memory::{InFlight, LargeRequest, SegmentPlan, with_places};

/// The minimum size in bytes of a section that gets a mapping of its own, if no reference needs it to be near. A
/// mapping costs more than a smaller section saves.
pub const LARGE_SECTION_MIN: u64 = 1 << 20;

/// The blocks that get mappings of their own, in the order of their positions.
pub(crate) fn choose(graph: &LinkGraph) -> Vec<BlockId> {
    if graph.keeps_large_sections || !graph.blocks().any(|(id, _)| is_candidate(graph, id)) {
        return Vec::new();
    }
    let mut is_eligible: Vec<bool> = graph.blocks().map(|(id, _)| is_candidate(graph, id)).collect();
    for (_, symbol) in graph.symbols().filter(|(_, symbol)| symbol.binding != Binding::Local) {
        if let Definition::Block(block, _) = symbol.definition {
            is_eligible[block.index()] = false;
        }
    }
    for id in graph.placements.iter().flat_map(|placement| &placement.blocks) {
        is_eligible[id.index()] = false;
    }
    for (id, block) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
        if let Some(follower) = block.followed_by {
            (is_eligible[id.index()], is_eligible[follower.index()]) = (false, false);
        }
        for edge in graph.edges(id) {
            if edge.kind.depends_on_place() {
                is_eligible[id.index()] = false;
            }
            if let (false, Definition::Block(target, _)) =
                (reaches_any_address(edge.kind), graph.definition(edge.symbol))
            {
                is_eligible[target.index()] = false;
            }
        }
    }
    graph.blocks().filter(|(id, _)| is_eligible[id.index()]).map(|(id, _)| id).collect()
}

/// Whether a block qualifies by its own properties. The references to it are not checked.
fn is_candidate(graph: &LinkGraph, id: BlockId) -> bool {
    let block = &graph.blocks[id.index()];
    block.size >= LARGE_SECTION_MIN
        && block.pool != SegmentKind::Code
        && block.role == Role::Plain
        && !block.is_dropped
        && matches!(block.content, Content::Object(_) | Content::Given(_))
}

/// Whether an edge's value fits its field for any address of its symbol.
fn reaches_any_address(kind: EdgeKind) -> bool {
    // Thread-local kinds need no entry here: a thread-local block is never a candidate.
    kind == EdgeKind::Pointer64 || kind.is_size()
}

/// Adds the blocks in areas to the memory of a link. Returns the addresses of the large sections and of these blocks.
///
/// # Errors
/// If the memory manager supports no large sections, and the plan requests one.
pub(crate) fn place(
    graph: &mut LinkGraph,
    plan: &SegmentPlan,
    mut memory: Box<dyn InFlight>,
) -> Result<(Box<dyn InFlight>, Vec<ExecutorAddr>)> {
    let placements = std::mem::take(&mut graph.placements);
    let block_count: usize = placements.iter().map(|placement| placement.blocks.len()).sum();
    if !placements.is_empty() {
        let places = placements.into_iter().map(|placement| placement.memory).collect();
        memory = with_places(memory, plan.large_sections.len(), places);
    }
    let address = |(index, request): (usize, &LargeRequest)| {
        if memory.large_section(index).len() as u64 != request.size {
            let LargeRequest { size, align, .. } = *request;
            let problem = "this memory manager supports no large sections outside the pools";
            return Err(MemoryFault::BadPlan { pool: "large-section", size, align, problem }.into());
        }
        Ok(memory.large_section_address(index))
    };
    let mut addresses = plan.large_sections.iter().enumerate().map(address).collect::<Result<Vec<_>>>()?;
    let first = addresses.len();
    addresses.extend((first..first + block_count).map(|index| memory.large_section_address(index)));
    Ok((memory, addresses))
}
