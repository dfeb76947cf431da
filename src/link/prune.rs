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

use crate::base::{Kept, Pool};
use crate::link::graph::{Binding, Block, BlockId, Definition, LinkGraph, Role};
use crate::link::uses;

/// Drops what no root leads to.
pub(crate) fn prune(graph: &mut LinkGraph) {
    let mut walk = Walk { in_doubt: 0, has_companions: false };
    walk.mark_roots(graph);
    if walk.in_doubt > 0 {
        let referrers = referrers(graph);
        walk.mark_visible(graph, &referrers);
        if graph.uses.tell_sources_apart() && !walk.has_companions {
            walk.follow_sources(graph, &referrers);
            debug_assert!(is_complete(graph), "nothing that is live leads to what is not");
        } else {
            walk.follow_edges(graph);
        }
    }
    if walk.in_doubt > 0 {
        graph.blocks.iter_mut().for_each(|block| block.is_dropped |= !block.is_live);
        graph.forget_dropped();
    }
}

/// Whether no edge of a live block leads to one that would be lost.
fn is_complete(graph: &LinkGraph) -> bool {
    let live = || graph.blocks().filter(|(_, block)| block.is_live);
    live().all(|(id, by)| {
        graph.edges(id).iter().all(|edge| match graph.definition(edge.symbol) {
            Definition::Block(target, _) => {
                let block = &graph.blocks[target.index()];
                block.is_live || block.is_dropped || by.role == Role::EhFrame && block.pool == Pool::Code
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
            by_block[block.index()] |= uses::sources(*uses) | u32::from(symbol.binding != Binding::Local);
        }
    }
    referrers
}

/// Below the bits of sources.
const VISIBLE: u32 = 1;

struct Walk {
    /// Blocks that are neither live nor dropped.
    in_doubt: usize,
    /// Whether some live and die together.
    has_companions: bool,
}

impl Walk {
    fn mark(&mut self, block: &mut Block) {
        if !block.is_live && !block.is_dropped {
            block.is_live = true;
            self.in_doubt -= 1;
        }
    }

    /// Roots that are so by what they are themselves.
    fn mark_roots(&mut self, graph: &mut LinkGraph) {
        for block in graph.blocks.iter_mut().filter(|block| !block.is_dropped) {
            block.is_live =
                block.is_retained || block.is_made() || !matches!(block.role, Role::Plain | Role::ThreadLocal);
            self.in_doubt += usize::from(!block.is_live);
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
        let mut has_found_source = self.in_doubt > 0;
        while has_found_source {
            let (mut live, mut live_tables) = (0, 0);
            for block in graph.blocks.iter().filter(|block| block.is_live && !block.edges.is_empty()) {
                let is_unwind = block.role == Role::EhFrame;
                *(if is_unwind { &mut live_tables } else { &mut live }) |= block.source.bit();
            }
            has_found_source = false;
            for (block, by) in graph.blocks.iter_mut().zip(referrers).filter(|(block, _)| !block.is_live) {
                let leads = if block.pool == Pool::Code { live } else { live | live_tables };
                if by & leads != 0 && !block.is_dropped {
                    self.mark(block);
                    has_found_source |= !block.edges.is_empty();
                }
            }
        }
    }

    fn follow_edges(&mut self, graph: &mut LinkGraph) {
        let companions = Companions::of(graph);
        let mut is_group_live: Kept<bool> = Kept::repeat(false, graph.group_count as usize);
        let mut unvisited: Kept<BlockId> =
            graph.blocks().filter(|(_, block)| block.is_live).map(|(id, _)| id).collect();
        let LinkGraph { blocks, symbols, edges, .. } = graph;
        while let (true, Some(id)) = (self.in_doubt > 0, unvisited.pop()) {
            let Block { role, group, edges: range, .. } = &blocks[id.index()];
            let (is_unwind, group, edges) =
                (*role == Role::EhFrame, *group, &edges[range.start as usize..range.end as usize]);
            let mut reach = |walk: &mut Walk, target: BlockId, is_spared: fn(&Block) -> bool| {
                let block = &mut blocks[target.index()];
                if !block.is_live && !block.is_dropped && !is_spared(block) {
                    walk.mark(block);
                    unvisited.push(target);
                }
            };
            let is_spared: fn(&Block) -> bool = if is_unwind { |block| block.pool == Pool::Code } else { |_| false };
            for edge in edges {
                if self.in_doubt == 0 {
                    return;
                }
                if let Definition::Block(target, _) = symbols[edge.symbol.index()].definition {
                    reach(self, target, is_spared);
                }
            }
            // The first member of a group brings all of them.
            let group = group.filter(|group| !std::mem::replace(&mut is_group_live[*group as usize], true));
            for companion in companions.with(group, id) {
                reach(self, companion, |_| false);
            }
        }
    }
}

/// What lives and dies together: the members of a group, and what is linked to a section.
struct Companions {
    /// `(group or linked section, member)`, sorted.
    by_group: Vec<(u32, BlockId)>,
    by_section: Vec<(BlockId, BlockId)>,
}

impl Companions {
    fn of(graph: &LinkGraph) -> Companions {
        let blocks = || graph.blocks().filter(|(_, block)| !block.is_dropped);
        let mut by_group: Vec<_> = blocks().filter_map(|(id, block)| Some((block.group?, id))).collect();
        let mut by_section: Vec<_> = blocks().filter_map(|(id, block)| Some((block.linked_to?, id))).collect();
        by_group.sort_unstable();
        by_section.sort_unstable();
        Companions { by_group, by_section }
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
