//! Veneers: code that takes the branches of a long object further than they reach (AAELF64, "Call and jump relocations").
//!
//! The branches of some architectures reach less far than the code of one object may be long. Blocks of veneers between its
//! sections are then in reach:
//!
//! ```text
//!   code:   [ group of sections │ veneers │ group of sections │ veneers │ … │ stubs ]
//!              bl far ────────────► adrp; add; br ─────────► far:
//! ```
//!
//! # Steps
//! 1. The layout of an object whose code is longer than the reach is made without veneers. All other objects end here.
//! 2. Sections that follow each other form a group, up to [`VeneerCode::group`] bytes. A section that is longer is a group alone.
//! 3. A branch gets a veneer, for its symbol and addend, if its target may be out of reach: the definition in another
//!    place of the object, or the stub of a symbol. The veneer is in the block after the group of the branch. From a place in a
//!    long section that does not reach that block, it is in the block before the group.
//! 4. The layout is made again, with the blocks of veneers. These add to distances, so step 3 counted a branch as out of reach
//!    if its target is within [`MIN_SLACK`] of the limit, or more if the blocks are larger than that.
//! 5. Fix-up takes the veneer only if neither the target nor the stub is in reach.
//!
//! A veneer jumps to a definition of the object by its distance, and to a symbol with a stub through the symbol's slot.
//!
//! # Limits
//! Conditional branches have no veneers. Neither has a place in a section that reaches neither end of the section.

use rustc_hash::FxHashSet;

use crate::arch::VeneerCode;
use crate::base::{ExecutorAddr, SegmentKind, align_up};
use crate::error::Result;
use crate::link::fixup::wide;
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Role};
use crate::link::layout::{self, Contents};
use crate::link::resolved_link::ResolvedLink;
use crate::link::tables::Tables;
use crate::link::veneers::{Target, VENEER_ALIGN, VENEER_SIZE};
use crate::memory::SegmentPlan;

/// Adds the veneers that the code of an object needs, and makes the layout of its segments again. The layout without
/// veneers is in `plan`.
///
/// # Errors
/// As [`layout::assign`].
#[cold]
pub(crate) fn add_veneers(
    graph: &mut LinkGraph,
    tables: &mut Tables,
    code: &VeneerCode,
    plan: &mut SegmentPlan,
    contents: &mut Contents,
) -> Result<()> {
    let groups = groups(graph, contents, code.group);
    let align = plan.segment(SegmentKind::Code).align.max(VENEER_ALIGN);
    let mut slack = MIN_SLACK;
    let targets = loop {
        let targets = targets(graph, tables, code, &groups, slack);
        // A block moves what follows by its size, rounded up to the strictest alignment at most.
        let bytes = |targets: &BlockTargets| align_up(targets.len() as u64 * VENEER_SIZE, align).unwrap_or(u64::MAX);
        let added = targets.iter().map(bytes).fold(0, u64::saturating_add);
        if added <= slack || slack > code.reach {
            break targets;
        }
        slack = added;
    };
    let mut order = layout::current_order(graph);
    // Last to first, so that the positions of those before stay.
    let mut position = order.len();
    for (number, targets) in targets.into_iter().enumerate().rev().filter(|(_, targets)| !targets.is_empty()) {
        let id = tables.veneers.insert(graph, code, &targets);
        // The first block is before the first group, and each of the others after one.
        let before = groups.get(number).map(|group| group.first);
        let at = before.and_then(|first| order[..position].iter().position(|id| *id == first));
        position = at.unwrap_or_else(|| end_of_code(graph, &order));
        order.insert(position, id);
    }
    layout::place(graph, plan, contents, Some(&order))
}

impl ResolvedLink<'_> {
    /// The value with the address of a veneer for `S + A`, for a branch at `place` that has a veneer in reach.
    #[cold]
    pub(super) fn value_by_veneer(&self, edge: &Edge, place: ExecutorAddr) -> Option<i128> {
        let is_veneered = self.graph.arch.veneers().is_some_and(|code| code.branches.contains(&edge.kind));
        let places = self.tables.veneers.places((edge.symbol, edge.addend));
        let (min, max) = edge.kind.range().filter(|_| is_veneered)?;
        let value = |(block, offset): &(BlockId, u64)| {
            wide(self.graph.block_address(*block, self.addresses).offset(*offset)) - wide(place)
        };
        places.iter().map(value).find(|value| (min..=max).contains(value))
    }
}

/// Blocks of code that follow each other.
struct Group {
    first: BlockId,
    blocks: Vec<BlockId>,
    /// The end of the last block in the segment, before veneers are added.
    end: u64,
}

/// The blocks of code as groups of at most `limit` bytes, or of one block.
fn groups(graph: &LinkGraph, contents: &Contents, limit: u64) -> Vec<Group> {
    let mut groups = Vec::<Group>::new();
    let (mut start, mut last) = (0, None);
    for (id, block) in contents.of(graph, SegmentKind::Code) {
        let end = block.offset + block.size;
        match groups.last_mut() {
            Some(group) if end - start <= limit || last.is_some_and(|last| are_one_section(graph, last, id)) => {
                group.blocks.push(id);
                group.end = end;
            }
            _ => {
                groups.push(Group { first: id, blocks: vec![id], end });
                start = block.offset;
            }
        }
        last = Some(id);
    }
    groups
}

/// Whether a program may walk over two blocks as over one, from `__start_NAME` on.
fn are_one_section(graph: &LinkGraph, first: BlockId, second: BlockId) -> bool {
    let name = graph.block_name(first);
    name == graph.block_name(second) && !name.starts_with('.')
}

/// The targets of one block of veneers, in the order of their veneers, each with whether the veneer goes through a slot.
type BlockTargets = Vec<(Target, bool)>;

/// The targets of each block of veneers: the one before the first group, then those after each group.
fn targets(graph: &LinkGraph, tables: &Tables, code: &VeneerCode, groups: &[Group], slack: u64) -> Vec<BlockTargets> {
    let mut targets = vec![BlockTargets::new(); groups.len() + 1];
    let mut known = FxHashSet::<(usize, Target)>::default();
    for (number, group) in groups.iter().enumerate() {
        for id in &group.blocks {
            let block = &graph.blocks[id.index()];
            for edge in graph.edges(*id).iter().filter(|edge| code.branches.contains(&edge.kind)) {
                let place = block.offset + u64::from(edge.offset);
                let Some(has_slot) = may_be_far(graph, tables, edge, place, code.reach.saturating_sub(slack)) else {
                    continue;
                };
                let number = if group.end - place <= code.group { number + 1 } else { number };
                let target = (edge.symbol, edge.addend);
                if known.insert((number, target)) {
                    targets[number].push((target, has_slot));
                }
            }
        }
    }
    targets
}

/// Whether the target of a branch may be more than `reach` bytes from its place, and a veneer can lead there: then whether
/// the veneer goes through a slot.
fn may_be_far(graph: &LinkGraph, tables: &Tables, edge: &Edge, place: u64, reach: u64) -> Option<bool> {
    let is_far = |target: u64| target.abs_diff(place) > reach;
    match graph.definition(edge.symbol) {
        Definition::Block(id, offset) => {
            let Block { role, pool, large_index, offset: start, .. } = graph.blocks[id.index()];
            let is_in_code = pool == SegmentKind::Code && large_index.is_none();
            let target = (start + offset).wrapping_add_signed(edge.addend);
            (role != Role::ThreadLocal && (!is_in_code || is_far(target))).then_some(false)
        }
        // A slot holds the address of the symbol without an addend.
        Definition::External | Definition::Absolute(_) => {
            let stubs = graph.blocks[tables.stubs()?.index()].offset;
            let stub = stubs + tables.stub(edge.symbol)?;
            (edge.addend == 0 && is_far(stub)).then_some(true)
        }
        Definition::Nowhere => None,
    }
}

/// The position after the last block of code with bytes.
fn end_of_code(graph: &LinkGraph, order: &[BlockId]) -> usize {
    let is_code = |id: &BlockId| {
        let block = &graph.blocks[id.index()];
        block.pool == SegmentKind::Code && block.size > 0 && !block.is_zero_fill() && !block.is_dropped
    };
    order.iter().rposition(is_code).map_or(0, |last| last + 1)
}

/// The least distance from the limit, in bytes, at which a branch gets a veneer that it may not need.
const MIN_SLACK: u64 = 1 << 20;
