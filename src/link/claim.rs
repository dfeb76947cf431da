//! Claiming: turns the definitions that the responsibility does not own into externals (ORC: the non-owned symbols of a
//! `MaterializationResponsibility` become external).
//!
//! - A weak, absolute or common symbol that another object defined first becomes an external.
//! - A section group that has lost all its definitions is dropped, as the gABI asks ("Section Groups"). A group that
//!   has lost only some of them stays; that wastes bytes and breaks nothing.
//! - A section group without a definition is dropped if another object owns its signature (`elf/groups.rs`).
//! - `DW.ref.*` symbols (gcc's indirect references to personality routines) stay private to their object. No two
//!   objects need to agree on their address, and sharing them would make the unwind tables of one tracker depend on
//!   another.

use std::borrow::Cow;

use crate::error::{Error, LinkFault};
use crate::link::graph::{Binding, Definition, LinkGraph, Role, SymbolIndex, Text};

/// Turns the global definitions for which `is_owned` is false into externals, and drops the groups that have lost all
/// of theirs.
///
/// # Errors
/// [`LinkFault::Unsupported`], for a dropped group whose initialisers would not run with this object.
pub(crate) fn claim(graph: &mut LinkGraph, is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool) -> Result<(), Error> {
    let mut has_dropped = false;
    // By group: the number of its definitions, and how many of them are owned.
    let mut definition_counts = vec![(0u32, 0u32); graph.group_signatures.len()];
    for index in graph.first_global as usize..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        if symbol.binding == Binding::Local || !is_definition(symbol.definition) {
            continue;
        }
        let definition = symbol.definition;
        let owned = is_owned(graph, SymbolIndex(index as u32));
        let block = if let Definition::Block(block, _) = definition { Some(block) } else { None };
        let group = block.and_then(|block| graph.blocks[block.index()].group);
        // The name matters only for a symbol that is in a group or not owned.
        if (!owned || group.is_some()) && is_private(graph.name_bytes(SymbolIndex(index as u32))) {
            continue;
        }
        if let Some(group) = group {
            let (all, owned_count) = &mut definition_counts[group as usize];
            *all += 1;
            *owned_count += u32::from(owned);
        }
        if owned {
            continue;
        }
        if let Some(block) = block {
            // Only the block of a common symbol has a fixed name here. It holds nothing else, so it is dropped. A
            // section stays.
            let block = &mut graph.blocks[block.index()];
            block.is_dropped = matches!(block.name, Text::Fixed(_));
            if block.is_dropped {
                has_dropped = true;
                graph.lost_commons.push((SymbolIndex(index as u32), block.align));
            }
        }
        graph.make_external(SymbolIndex(index as u32));
    }
    if !definition_counts.is_empty() {
        has_dropped |= drop_lost_groups(graph, &definition_counts, &is_owned)?;
    }
    if has_dropped {
        graph.undefine_dropped();
    }
    Ok(())
}

impl LinkGraph {
    /// Whether a symbol is a common symbol that another definition replaces.
    #[inline]
    pub(super) fn is_lost_common(&self, symbol: SymbolIndex) -> bool {
        let lost = &self.lost_commons;
        !lost.is_empty() && lost.binary_search_by_key(&symbol.0, |(lost, _)| lost.0).is_ok()
    }
}

/// Drops the groups that another object's groups replace. Returns whether there are any.
fn drop_lost_groups(
    graph: &mut LinkGraph,
    definition_counts: &[(u32, u32)],
    is_owned: &impl Fn(&LinkGraph, SymbolIndex) -> bool,
) -> Result<bool, Error> {
    let is_lost = |(counts, signature): (&(u32, u32), &SymbolIndex)| match counts {
        (0, _) => is_claimed_by_signature(graph, *signature) && !is_owned(graph, *signature),
        (1.., owned) => *owned == 0,
    };
    let lost: Vec<bool> = definition_counts.iter().zip(graph.group_signatures.iter()).map(is_lost).collect();
    for (id, block) in graph.special() {
        let group = block.group.filter(|group| lost[*group as usize] && definition_counts[*group as usize].0 == 0);
        if group.is_some() && matches!(block.role, Role::Initializers { .. } | Role::InitFragment) {
            let what = "initialisers in a COMDAT group without a global definition, because another object has \
                        the group, too, and its copy may run later; define a weak symbol in the group";
            return Err(graph.fault(LinkFault::Unsupported {
                what: what.to_string(),
                section: graph.block_name(id).to_string(),
                offset: 0,
                symbol: String::new(),
            }));
        }
    }
    let mut has_dropped = false;
    for block in graph.blocks.iter_mut() {
        block.is_dropped |= block.group.is_some_and(|group| lost[group as usize]);
        has_dropped |= block.is_dropped;
    }
    Ok(has_dropped)
}

/// Whether a group without a definition is claimed by its signature, as `elf/groups.rs` decides.
fn is_claimed_by_signature(graph: &LinkGraph, signature: SymbolIndex) -> bool {
    let symbol = graph.symbols.get(signature.index());
    symbol.is_some_and(|symbol| symbol.binding == Binding::Local || symbol.definition == Definition::External)
}

/// The name by which an object claims a definition, or a group without a definition by its signature.
pub(crate) fn claimed_name(graph: &LinkGraph, symbol: SymbolIndex) -> Cow<'_, str> {
    match (is_claimed_by_signature(graph, symbol), graph.definition(symbol)) {
        (false, _) => Cow::Borrowed(graph.symbol_name(symbol)),
        // A symbol of a section has no name of its own.
        (true, Definition::Block(block, _)) if graph.name_bytes(symbol).is_empty() => {
            Cow::Owned(group_claim_name(graph.block_name(block)))
        }
        (true, _) => Cow::Owned(group_claim_name(graph.symbol_name(symbol))),
    }
}

/// The name that claims a group without a definition.
pub(crate) fn group_claim_name(signature: &str) -> String {
    format!("section group `{signature}`")
}

fn is_definition(definition: Definition) -> bool {
    matches!(definition, Definition::Block(..) | Definition::Absolute(_))
}

/// Whether a global symbol is private to its object by its name.
pub(crate) fn is_private(name: &[u8]) -> bool {
    name.starts_with(b"DW.ref.")
}
