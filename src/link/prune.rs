//! Dead-stripping: what nothing leads to is not laid out, not copied, and what only it refers to is not looked up.
//!
//! Roots are the definitions that others can see, initialisers and finalisers, sections that ask to be retained
//! (`SHF_GNU_RETAIN`), notes of bounds, and whatever a plugin made. The grain is the section, so code compiled without
//! `-ffunction-sections` loses nothing. Unwind tables keep nobody's code; the tables that *they* refer to are kept.
//! A section group is kept or lost whole, and a section with `SHF_LINK_ORDER` lives and dies with the one it is linked to.
//!
//! Mostly the roots are all that there is, or few blocks have edges: then what was noted of the symbols when the edges were
//! made says which block leads to which, and the edges themselves are not looked at.

use smallvec::SmallVec;

use crate::base::{RecycledVec, SegmentKind, impl_recycle};
use crate::link::graph::{Binding, Block, BlockId, Definition, LinkGraph, Role, Symbol};
use crate::link::use_recorder;

/// Drops what no root leads to.
pub(crate) fn prune(graph: &mut LinkGraph) {
    let mut walk = Walk { unmarked: 0, has_companions: false };
    walk.mark_roots(graph);
    if walk.unmarked > 0 {
        if graph.uses.tell_sources_apart() && !walk.has_companions {
            let referrers = referrers(graph);
            walk.mark_visible(graph, &referrers);
            walk.follow_sources(graph, &referrers);
            walk.drop_others(graph);
        } else {
            walk.follow_edges(graph);
        }
    }
}

/// Whether no edge of a live block leads to one that would be lost.
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

/// By block: the sources with edges to it, and whether somebody else can see a symbol of it.
fn referrers(graph: &mut LinkGraph) -> SmallVec<[u32; 32]> {
    let mut referrers = SmallVec::from_elem(0, graph.blocks.len());
    let by_block = &mut referrers[..];
    graph.uses.cover(graph.symbols.len());
    for (symbol, uses) in graph.symbols.iter().zip(graph.uses.of()) {
        if let Definition::Block(block, _) = symbol.definition {
            by_block[block.index()] |= use_recorder::sources(*uses) | u32::from(symbol.binding != Binding::Local);
        }
    }
    referrers
}

/// Below the bits of sources.
const VISIBLE: u32 = 1;

struct Walk {
    /// Blocks that are neither live nor dropped.
    unmarked: usize,
    /// Whether some live and die together.
    has_companions: bool,
}

impl Walk {
    fn mark(&mut self, block: &mut Block) {
        if !block.is_live && !block.is_dropped {
            block.is_live = true;
            self.unmarked -= 1;
        }
    }

    /// Roots that are so by what they are themselves.
    fn mark_roots(&mut self, graph: &mut LinkGraph) {
        for block in graph.blocks.iter_mut().filter(|block| !block.is_dropped) {
            block.is_live = block.is_retained || block.is_made() || !matches!(block.role, Role::Plain | Role::TlsIndex);
            self.unmarked += usize::from(!block.is_live);
            self.has_companions |= block.group.is_some() || block.linked_to.is_some();
        }
    }

    fn mark_visible(&mut self, graph: &mut LinkGraph, referrers: &[u32]) {
        for (block, _) in graph.blocks.iter_mut().zip(referrers).filter(|(_, by)| **by & VISIBLE != 0) {
            self.mark(block);
        }
    }

    /// As [`follow_edges`](Self::follow_edges), where each block with edges has a bit of its own.
    fn follow_sources(&mut self, graph: &mut LinkGraph, referrers: &[u32]) {
        let mut has_found_source = true;
        while has_found_source && self.unmarked > 0 {
            let (mut live, mut live_tables) = (0, 0);
            for block in graph.blocks.iter().filter(|block| block.is_live && !block.edges.is_empty()) {
                let is_unwind = block.role == Role::EhFrame;
                *(if is_unwind { &mut live_tables } else { &mut live }) |= block.source.bit();
            }
            has_found_source = false;
            for (block, by) in graph.blocks.iter_mut().zip(referrers).filter(|(block, _)| !block.is_live) {
                let leads = if block.pool == SegmentKind::Code { live } else { live | live_tables };
                if by & leads != 0 && !block.is_dropped {
                    self.mark(block);
                    has_found_source |= !block.edges.is_empty();
                }
            }
        }
    }

    fn drop_others(&self, graph: &mut LinkGraph) {
        debug_assert!(is_complete(graph), "nothing that is live leads to what is not");
        if self.unmarked > 0 {
            graph.blocks.iter_mut().for_each(|block| block.is_dropped |= !block.is_live);
            graph.forget_dropped();
        }
    }

    /// Marks what others can see. By symbol: the block that it is in, or one more than there are.
    fn mark_definers(&mut self, graph: &mut LinkGraph) -> RecycledVec<BlockId> {
        let LinkGraph { blocks, symbols, .. } = graph;
        let nowhere = BlockId(blocks.len() as u32);
        let definer = |symbol: &Symbol| {
            let Definition::Block(block, _) = symbol.definition else { return nowhere };
            if symbol.binding != Binding::Local {
                self.mark(&mut blocks[block.index()]);
            }
            block
        };
        symbols.iter().map(definer).collect()
    }

    /// From block to block, by each of their edges. There are more of those than of anything else: what is asked for each
    /// stands close together, apart from blocks and symbols.
    fn follow_edges(&mut self, graph: &mut LinkGraph) {
        let definers = self.mark_definers(graph);
        let companions = self.has_companions.then(|| Groups::of(graph));
        let mut is_group_live: RecycledVec<bool> = RecycledVec::repeat(false, graph.group_count as usize);
        let mut frontier = Worklist::of(graph);
        let LinkGraph { blocks, edges, .. } = &mut *graph;
        while let (true, Some(id)) = (self.unmarked > 0, frontier.unvisited.pop()) {
            let Block { role, group, edges: range, .. } = &blocks[id.index()];
            let (spares_code, group) = (*role == Role::EhFrame, *group);
            for edge in &edges[range.start as usize..range.end as usize] {
                let target = definers[edge.symbol.index()];
                if frontier.fates[target.index()] != Mark::InDoubt {
                    continue;
                }
                let block = &mut blocks[target.index()];
                if !(spares_code && block.pool == SegmentKind::Code) {
                    self.mark(block);
                    frontier.add(target);
                }
            }
            let Some(companions) = &companions else { continue };
            // The first member of a group brings all of them.
            let group = group.filter(|group| !std::mem::replace(&mut is_group_live[*group as usize], true));
            for companion in companions.with(group, id) {
                if frontier.fates[companion.index()] == Mark::InDoubt {
                    self.mark(&mut blocks[companion.index()]);
                    frontier.add(companion);
                }
            }
        }
        debug_assert!(is_complete(graph), "nothing that is live leads to what is not");
        if self.unmarked > 0 {
            frontier.drop_others(graph, &definers);
        }
    }
}

impl_recycle!(Mark);

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    InDoubt,
    Live,
    Dropped,
}

/// How far the walk has come.
struct Worklist {
    /// By block, and of what stands for none: that is live.
    fates: RecycledVec<Mark>,
    /// Live blocks whose edges were not followed yet.
    unvisited: RecycledVec<BlockId>,
}

impl Worklist {
    fn of(graph: &LinkGraph) -> Worklist {
        let fate = |block: &Block| match (block.is_live, block.is_dropped) {
            (true, _) => Mark::Live,
            (false, true) => Mark::Dropped,
            (false, false) => Mark::InDoubt,
        };
        let fates: RecycledVec<Mark> = graph.blocks.iter().map(fate).chain([Mark::Live]).collect();
        let live = graph.blocks().zip(&fates).filter(|(_, fate)| **fate == Mark::Live);
        let unvisited = live.map(|((id, _), _)| id).collect();
        Worklist { fates, unvisited }
    }

    fn add(&mut self, id: BlockId) {
        self.fates[id.index()] = Mark::Live;
        self.unvisited.push(id);
    }

    /// Drops what was not reached; its symbols are nowhere.
    fn drop_others(&self, graph: &mut LinkGraph, definers: &[BlockId]) {
        for (id, _) in self.fates.iter().enumerate().filter(|(_, fate)| **fate == Mark::InDoubt) {
            graph.blocks[id].is_dropped = true;
        }
        for (symbol, definer) in definers.iter().enumerate() {
            if self.fates[definer.index()] != Mark::Live {
                graph.symbols[symbol].definition = Definition::Nowhere;
            }
        }
    }
}

/// What lives and dies together: the members of a group, and what is linked to a section.
struct Groups {
    /// `(group or linked section, member)`, sorted.
    by_group: Vec<(u32, BlockId)>,
    by_section: Vec<(BlockId, BlockId)>,
}

impl Groups {
    fn of(graph: &LinkGraph) -> Groups {
        let blocks = || graph.blocks().filter(|(_, block)| !block.is_dropped);
        let mut by_group: Vec<_> = blocks().filter_map(|(id, block)| Some((block.group?, id))).collect();
        let mut by_section: Vec<_> = blocks().filter_map(|(id, block)| Some((block.linked_to?, id))).collect();
        by_group.sort_unstable();
        by_section.sort_unstable();
        Groups { by_group, by_section }
    }

    fn with(&self, group: Option<u32>, id: BlockId) -> impl Iterator<Item = BlockId> {
        let of_group = group.map_or(&[][..], |group| equal(&self.by_group, group));
        of_group.iter().map(|(_, id)| *id).chain(equal(&self.by_section, id).iter().map(|(_, id)| *id))
    }
}

fn equal<K: Ord + Copy>(sorted: &[(K, BlockId)], key: K) -> &[(K, BlockId)] {
    let start = sorted.partition_point(|(other, _)| *other < key);
    let end = start + sorted[start..].partition_point(|(other, _)| *other == key);
    &sorted[start..end]
}
