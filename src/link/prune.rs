//! Dead-stripping: what nothing leads to is not laid out, not copied, and what only it refers to is not looked up.
//!
//! Roots are the definitions that others can see, initialisers and finalisers, sections that ask to be retained
//! (`SHF_GNU_RETAIN`), notes of bounds, and whatever a plugin made. The grain is the section, so code compiled without
//! `-ffunction-sections` loses nothing. Unwind tables keep nobody's code; the tables that *they* refer to are kept.
//! A section group is kept or lost whole, and a section with `SHF_LINK_ORDER` lives and dies with the one it is linked to.

use crate::base::{Kept, Pool};
use crate::link::graph::{Binding, BlockId, Definition, LinkGraph, Role};

/// Drops what no root leads to.
pub(crate) fn prune(graph: &mut LinkGraph) {
    let mut walk = Walk {
        is_live: Kept::repeat(false, graph.blocks.len()),
        is_group_live: Kept::repeat(false, graph.group_count as usize),
        unvisited: Kept::with_capacity(graph.blocks.len()),
        in_doubt: graph.blocks.iter().filter(|block| !block.is_dropped).count(),
    };
    walk.mark_roots(graph);
    walk.follow(graph);
    let Walk { is_live, .. } = walk;
    let mut has_dead = false;
    for (block, is_live) in graph.blocks.iter_mut().zip(is_live.iter().copied()) {
        has_dead |= !is_live && !block.is_dropped;
        block.is_dropped |= !is_live;
    }
    if has_dead {
        graph.forget_dropped();
    }
}

struct Walk {
    is_live: Kept<bool>,
    is_group_live: Kept<bool>,
    unvisited: Kept<BlockId>,
    /// Blocks that are neither live nor dropped.
    in_doubt: usize,
}

impl Walk {
    fn mark(&mut self, block: BlockId) {
        if !std::mem::replace(&mut self.is_live[block.index()], true) {
            self.unvisited.push(block);
            self.in_doubt -= 1;
        }
    }

    fn mark_roots(&mut self, graph: &LinkGraph) {
        for (id, block) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
            if block.is_retained || block.is_made() || !matches!(block.role, Role::Plain | Role::ThreadLocal) {
                self.mark(id);
            }
        }
        for symbol in graph.symbols.iter().filter(|symbol| symbol.binding != Binding::Local) {
            if let Definition::Block(block, _) = symbol.definition
                && !graph.blocks[block.index()].is_dropped
            {
                self.mark(block);
            }
        }
    }

    fn follow(&mut self, graph: &LinkGraph) {
        let companions = Companions::of(graph);
        while let (true, Some(id)) = (self.in_doubt > 0, self.unvisited.pop()) {
            let is_unwind = graph.blocks[id.index()].role == Role::EhFrame;
            for edge in graph.edges(id) {
                if self.in_doubt == 0 {
                    return;
                }
                if let Definition::Block(target, _) = graph.definition(edge.symbol)
                    && !(is_unwind && graph.blocks[target.index()].pool == Pool::Code)
                    && !graph.blocks[target.index()].is_dropped
                {
                    self.mark(target);
                }
            }
            // The first member of a group brings all of them.
            let group = graph.blocks[id.index()].group;
            let group = group.filter(|group| !std::mem::replace(&mut self.is_group_live[*group as usize], true));
            for companion in companions.with(group, id) {
                self.mark(companion);
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
