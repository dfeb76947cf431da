//! Claiming: turns the definitions that the responsibility does not own into externals (ORC: the non-owned symbols of a
//! `MaterializationResponsibility` become external).
//!
//! - A weak or common symbol that another object defined first becomes an external.
//! - A section group that has lost all its definitions is dropped, as the gABI asks ("Section Groups"). A group that
//!   has lost only some of them stays; that wastes bytes and breaks nothing.
//! - `DW.ref.*` symbols (gcc's indirect references to personality routines) stay private to their object. No two
//!   objects need to agree on their address, and sharing them would make the unwind tables of one tracker depend on
//!   another.

use crate::link::graph::{Binding, Definition, LinkGraph, SymbolIndex, Text};

/// Turns the global definitions for which `is_owned` is false into externals, and drops the groups that have lost all
/// of theirs.
pub(crate) fn claim(graph: &mut LinkGraph, is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool) {
    let mut has_dropped = false;
    // By group: the number of its definitions, and how many of them are owned.
    let mut definition_counts = vec![(0u32, 0u32); graph.group_count as usize];
    for index in graph.first_global as usize..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        let Definition::Block(block, _) = symbol.definition else { continue };
        if symbol.binding == Binding::Local {
            continue;
        }
        let owned = is_owned(graph, SymbolIndex(index as u32));
        let group = graph.blocks[block.0 as usize].group;
        // The name matters only for a symbol that is in a group or not owned.
        if (!owned || group.is_some()) && is_private(graph.name_bytes(SymbolIndex(index as u32))) {
            continue;
        }
        if let Some(group) = group {
            let (all, owned_count) = &mut definition_counts[group as usize];
            *all += 1;
            *owned_count += u32::from(owned);
        }
        if !owned {
            // Only the block of a common symbol has a fixed name here. It holds nothing else, so it is dropped. A
            // section stays.
            let block = &mut graph.blocks[block.0 as usize];
            block.is_dropped = matches!(block.name, Text::Fixed(_));
            has_dropped |= block.is_dropped;
            graph.make_external(SymbolIndex(index as u32));
        }
    }
    let is_lost = |group: u32| matches!(definition_counts[group as usize], (1.., 0));
    if graph.group_count > 0 {
        for block in graph.blocks.iter_mut() {
            block.is_dropped |= block.group.is_some_and(is_lost);
            has_dropped |= block.is_dropped;
        }
    }
    if has_dropped {
        graph.undefine_dropped();
    }
}

/// Whether a global symbol is private to its object by its name.
pub(crate) fn is_private(name: &[u8]) -> bool {
    name.starts_with(b"DW.ref.")
}
