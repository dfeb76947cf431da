//! Which of an object's definitions count: those that the responsibility owns. The others are references from here on.
//!
//! A weak or common symbol that somebody else defined first becomes an external. A section group all of whose
//! definitions became externals is dropped whole, as the gABI asks ("Section Groups"); one that was claimed in part
//! stays, which wastes bytes and breaks nothing. `DW.ref.*` symbols stay private to their object: they are no identity
//! that two objects need to agree on, and sharing them would tie the unwind tables of unrelated trackers together.

use crate::link::graph::{Binding, Definition, LinkGraph, SymbolIndex, Text};

/// Turns global definitions that `is_owned` denies into externals, and drops groups that have lost all of theirs.
pub(crate) fn claim(graph: &mut LinkGraph, is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool) {
    let mut has_dropped = false;
    let mut defined = vec![(0u32, 0u32); graph.group_count as usize];
    for index in graph.first_global as usize..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        let Definition::Block(block, _) = symbol.definition else { continue };
        if symbol.binding == Binding::Local {
            continue;
        }
        let owned = is_owned(graph, SymbolIndex(index as u32));
        let group = graph.blocks[block.0 as usize].group;
        // Of what is owned and in no group, nothing changes, whatever its name.
        if (!owned || group.is_some()) && is_private(graph.name_bytes(SymbolIndex(index as u32))) {
            continue;
        }
        if let Some(group) = group {
            let (all, kept) = &mut defined[group as usize];
            *all += 1;
            *kept += u32::from(owned);
        }
        if !owned {
            // A common symbol's room is its own; no section's bytes go with it.
            let room = &mut graph.blocks[block.0 as usize];
            room.is_dropped = matches!(room.name, Text::Fixed(_));
            has_dropped |= room.is_dropped;
            graph.disown(SymbolIndex(index as u32));
        }
    }
    let is_lost = |group: u32| matches!(defined[group as usize], (1.., 0));
    if graph.group_count > 0 {
        for block in graph.blocks.iter_mut() {
            block.is_dropped |= block.group.is_some_and(is_lost);
            has_dropped |= block.is_dropped;
        }
    }
    if has_dropped {
        graph.forget_dropped();
    }
}

/// Whether a global symbol is nobody else's business.
pub(crate) fn is_private(name: &[u8]) -> bool {
    name.starts_with(b"DW.ref.")
}
