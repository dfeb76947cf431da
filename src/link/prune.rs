//! Dead-stripping: drops the blocks that no root leads to (ORC: `jitlink::prune`).
//!
//! A dropped block is not laid out and not copied. An external that only dropped blocks refer to is not looked up. The
//! unit is the section, so code that was compiled without `-ffunction-sections` loses nothing.
//!
//! # Rules
//!
//! | block | live if |
//! |---|---|
//! | with a definition that other objects can see | always: a root |
//! | list of initialisers or finalisers, `.init`, `.fini` | always: a root |
//! | `SHF_GNU_RETAIN`, or with bounds that the object refers to, or in an area | always: a root |
//! | made by the linker or a plugin | always: a root |
//! | `.eh_frame` | always; its edges keep no code, but they keep the tables (LSDA) that they refer to |
//! | member of a section group | some member is live |
//! | `SHF_LINK_ORDER` | the section that it is linked to is live |
//! | other | an edge of a live block refers to it |
//!
//! # Two algorithms
//! If the bits of the graph's `UseRecorder` identify blocks, they say which block leads to which, and the edges are not
//! read ([`Walk::follow_referrers`]). A graph with groups, linked sections or too many blocks needs a walk over the
//! edges ([`Walk::follow_edges`]). If all blocks are roots by themselves, neither runs. Both end in the same state;
//! debug builds check that no live block refers to a dropped one.

use smallvec::SmallVec;

use crate::base::{RecycledVec, SegmentKind, impl_recycle, pair, sort_by_number};
use crate::link::graph::{Binding, Block, BlockId, Definition, GraphSymbol, LinkGraph, Role};
use crate::link::use_recorder;

/// Drops the blocks that no root leads to.
pub(crate) fn prune(graph: &mut LinkGraph) {
    let mut walk = Walk { unmarked: 0, has_groups: false };
    walk.mark_roots(graph);
    if walk.unmarked > 0 {
        if graph.use_recorder.has_distinct_bits() && !walk.has_groups {
            let referrers = referrers(graph);
            walk.mark_visible(graph, &referrers);
            walk.follow_referrers(graph, &referrers);
            walk.drop_unmarked(graph);
        } else {
            walk.follow_edges(graph);
        }
    }
}

/// Whether no edge of a live block refers to a block that is about to be dropped. For a debug assertion.
fn is_complete(graph: &LinkGraph) -> bool {
    let live = || graph.blocks().filter(|(_, block)| block.is_live);
    live().all(|(id, by)| {
        graph.edges(id).iter().all(|edge| match graph.definition(edge.symbol) {
            Definition::Block(target, _) => {
                let block = &graph.blocks[target.index()];
                block.is_live || block.is_dropped || by.role == Role::EhFrame && block.pool == SegmentKind::Code
            }
            _ => true,
        })
    })
}

/// By block: the referrer bits of the blocks with edges to it, and [`VISIBLE`] if it has a definition that other
/// objects can see.
fn referrers(graph: &mut LinkGraph) -> SmallVec<[u32; 32]> {
    let mut referrers = SmallVec::from_elem(0, graph.blocks.len());
    let by_block = &mut referrers[..];
    graph.use_recorder.extend_to(graph.symbols.len());
    for (symbol, bits) in graph.symbols.iter().zip(graph.use_recorder.bits()) {
        if let Definition::Block(block, _) = symbol.definition {
            by_block[block.index()] |= use_recorder::referrer_bits(*bits) | u32::from(symbol.binding != Binding::Local);
        }
    }
    referrers
}

/// Other objects can see a definition in the block. This bit is below the referrer bits.
const VISIBLE: u32 = 1;

/// The state of one run of dead-stripping.
struct Walk {
    /// Number of blocks that are neither live nor dropped.
    unmarked: usize,
    /// Whether there are section groups or linked sections.
    has_groups: bool,
}

impl Walk {
    /// Marks a block as live, unless it is dropped.
    fn mark(&mut self, block: &mut Block) {
        if !block.is_live && !block.is_dropped {
            block.is_live = true;
            self.unmarked -= 1;
        }
    }

    /// Marks the blocks that are roots by their own properties.
    fn mark_roots(&mut self, graph: &mut LinkGraph) {
        for block in graph.blocks.iter_mut().filter(|block| !block.is_dropped) {
            block.is_live =
                block.is_retained || block.is_synthetic() || !matches!(block.role, Role::Plain | Role::ThreadLocal);
            self.unmarked += usize::from(!block.is_live);
            self.has_groups |= block.group.is_some() || block.linked_to.is_some();
        }
    }

    /// Marks the blocks with definitions that other objects can see.
    fn mark_visible(&mut self, graph: &mut LinkGraph, referrers: &[u32]) {
        for (block, _) in graph.blocks.iter_mut().zip(referrers).filter(|(_, by)| **by & VISIBLE != 0) {
            self.mark(block);
        }
    }

    /// Marks all blocks that the marked ones lead to, by referrer bits. Repeats until a pass marks no block with edges.
    fn follow_referrers(&mut self, graph: &mut LinkGraph, referrers: &[u32]) {
        let mut has_marked_referrer = true;
        while has_marked_referrer && self.unmarked > 0 {
            let (mut live, mut live_unwind) = (0, 0);
            for block in graph.blocks.iter().filter(|block| block.is_live && !block.edges.is_empty()) {
                let is_unwind = block.role == Role::EhFrame;
                *(if is_unwind { &mut live_unwind } else { &mut live }) |= block.referrer_bit.bit();
            }
            has_marked_referrer = false;
            for (block, by) in graph.blocks.iter_mut().zip(referrers).filter(|(block, _)| !block.is_live) {
                let live_referrers = if block.pool == SegmentKind::Code { live } else { live | live_unwind };
                if by & live_referrers != 0 && !block.is_dropped {
                    self.mark(block);
                    has_marked_referrer |= !block.edges.is_empty();
                }
            }
        }
    }

    /// Drops the blocks that are not live.
    fn drop_unmarked(&self, graph: &mut LinkGraph) {
        debug_assert!(is_complete(graph), "a live block refers to a dropped one");
        if self.unmarked > 0 {
            graph.blocks.iter_mut().for_each(|block| block.is_dropped |= !block.is_live);
            graph.undefine_dropped();
        }
    }

    /// Marks the blocks with definitions that other objects can see. Returns the block of each symbol; a symbol that is
    /// in no block has the id after the last block.
    fn mark_defining_blocks(&mut self, graph: &mut LinkGraph) -> RecycledVec<BlockId> {
        let LinkGraph { blocks, symbols, .. } = graph;
        let nowhere = BlockId(blocks.len() as u32);
        let defining_block = |symbol: &GraphSymbol| {
            let Definition::Block(block, _) = symbol.definition else { return nowhere };
            if symbol.binding != Binding::Local {
                self.mark(&mut blocks[block.index()]);
            }
            block
        };
        symbols.iter().map(defining_block).collect()
    }

    /// Marks the visible blocks and all blocks that the marked ones lead to, edge by edge, and drops the others. Edges
    /// are the most numerous part of a graph, so the two values that are read per edge are in dense arrays of their
    /// own.
    fn follow_edges(&mut self, graph: &mut LinkGraph) {
        let blocks_of_symbols = self.mark_defining_blocks(graph);
        let groups = self.has_groups.then(|| Groups::of(graph));
        let mut is_group_live: RecycledVec<bool> = RecycledVec::repeat(false, graph.group_signatures.len());
        let mut worklist = Worklist::of(graph);
        let LinkGraph { blocks, edges, .. } = &mut *graph;
        while let (true, Some(id)) = (self.unmarked > 0, worklist.unvisited.pop()) {
            let Block { role, group, edges: range, .. } = &blocks[id.index()];
            let (is_unwind, group) = (*role == Role::EhFrame, *group);
            for edge in &edges[range.start as usize..range.end as usize] {
                let target = blocks_of_symbols[edge.symbol.index()];
                if worklist.marks[target.index()] != Mark::Unmarked {
                    continue;
                }
                let block = &mut blocks[target.index()];
                if !(is_unwind && block.pool == SegmentKind::Code) {
                    self.mark(block);
                    worklist.add(target);
                }
            }
            let Some(groups) = &groups else { continue };
            // The first live member of a group makes all members live.
            let group = group.filter(|group| !std::mem::replace(&mut is_group_live[*group as usize], true));
            for member in groups.members(group, id) {
                if worklist.marks[member.index()] == Mark::Unmarked {
                    self.mark(&mut blocks[member.index()]);
                    worklist.add(member);
                }
            }
        }
        debug_assert!(is_complete(graph), "a live block refers to a dropped one");
        if self.unmarked > 0 {
            worklist.drop_unmarked(graph, &blocks_of_symbols);
        }
    }
}

impl_recycle!(Mark);

/// The state of a block during the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// No live block leads to it yet.
    Unmarked,
    Live,
    Dropped,
}

/// The progress of a walk over the edges.
struct Worklist {
    /// By block. The last element stands for symbols that are in no block; it is live.
    marks: RecycledVec<Mark>,
    /// Live blocks whose edges have not been followed yet.
    unvisited: RecycledVec<BlockId>,
}

impl Worklist {
    fn of(graph: &LinkGraph) -> Worklist {
        let mark = |block: &Block| match (block.is_live, block.is_dropped) {
            (true, _) => Mark::Live,
            (false, true) => Mark::Dropped,
            (false, false) => Mark::Unmarked,
        };
        let marks: RecycledVec<Mark> = graph.blocks.iter().map(mark).chain([Mark::Live]).collect();
        let live = graph.blocks().zip(&marks).filter(|(_, mark)| **mark == Mark::Live);
        let unvisited = live.map(|((id, _), _)| id).collect();
        Worklist { marks, unvisited }
    }

    /// Marks a block as live and schedules its edges.
    fn add(&mut self, id: BlockId) {
        self.marks[id.index()] = Mark::Live;
        self.unvisited.push(id);
    }

    /// Drops the unmarked blocks. Their symbols get the definition [`Definition::Nowhere`].
    fn drop_unmarked(&self, graph: &mut LinkGraph, blocks_of_symbols: &[BlockId]) {
        for (id, _) in self.marks.iter().enumerate().filter(|(_, mark)| **mark == Mark::Unmarked) {
            graph.blocks[id].is_dropped = true;
        }
        for (symbol, block) in blocks_of_symbols.iter().enumerate() {
            if self.marks[block.index()] != Mark::Live {
                graph.symbols[symbol].definition = Definition::Nowhere;
            }
        }
    }
}

/// Blocks that are live together: the members of section groups, and sections that are linked to another.
struct Groups {
    /// `(group, member)`, sorted.
    by_group: Vec<(u32, BlockId)>,
    /// `(section, section that is linked to it)`, sorted.
    by_section: Vec<(BlockId, BlockId)>,
}

impl Groups {
    fn of(graph: &LinkGraph) -> Groups {
        let blocks = || graph.blocks().filter(|(_, block)| !block.is_dropped);
        let mut by_group: Vec<_> = blocks().filter_map(|(id, block)| Some((block.group?, id))).collect();
        let mut by_section: Vec<_> = blocks().filter_map(|(id, block)| Some((block.linked_to?, id))).collect();
        sort_by_number(&mut by_group, |(group, id)| pair(*group, id.0));
        sort_by_number(&mut by_section, |(section, id)| pair(section.0, id.0));
        Groups { by_group, by_section }
    }

    /// The members of `group`, and the sections that are linked to the block `id`.
    fn members(&self, group: Option<u32>, id: BlockId) -> impl Iterator<Item = BlockId> {
        let of_group = group.map_or(&[][..], |group| equal_range(&self.by_group, group));
        of_group.iter().map(|(_, id)| *id).chain(equal_range(&self.by_section, id).iter().map(|(_, id)| *id))
    }
}

/// The pairs with this key.
fn equal_range<K: Ord + Copy>(sorted: &[(K, BlockId)], key: K) -> &[(K, BlockId)] {
    let start = sorted.partition_point(|(other, _)| *other < key);
    let end = start + sorted[start..].partition_point(|(other, _)| *other == key);
    &sorted[start..end]
}
