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

use crate::arch::{EdgeKind, KindSet};
use crate::base::SegmentKind;
use crate::error::{Error, LinkFault};
use crate::link::edge::{BlockId, Edge};
use crate::link::graph::{Binding, Definition, LinkGraph, Role, SymbolIndex, Text};

/// Turns the global definitions for which `is_owned` is false into externals, and drops the groups that have lost all
/// of theirs.
///
/// # Errors
/// [`LinkFault::Unsupported`], for a dropped group whose initialisers would not run with this object.
pub(crate) fn claim(graph: &mut LinkGraph, is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool) -> Result<(), Error> {
    let mut has_dropped = false;
    // Definitions that leave their bytes in a section, though the object has no choice of definitions.
    let mut replaced: Vec<(SymbolIndex, BlockId)> = Vec::new();
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
        if let Some(id) = block {
            // Only the block of a common symbol has a fixed name here. It holds nothing else, so it is dropped. A
            // section stays.
            let block = &mut graph.blocks[id.index()];
            block.is_dropped = matches!(block.name, Text::Fixed(_));
            if block.is_dropped {
                has_dropped = true;
                graph.lost_commons.push((SymbolIndex(index as u32), block.align));
            } else if graph.symbols[index].binding == Binding::Global {
                replaced.push((SymbolIndex(index as u32), id));
            }
        }
        graph.make_external(SymbolIndex(index as u32));
    }
    if !replaced.is_empty() {
        check_anchors(graph, &replaced)?;
    }
    if !definition_counts.is_empty() {
        has_dropped |= drop_lost_groups(graph, &definition_counts, &is_owned)?;
    }
    if has_dropped {
        graph.undefine_dropped();
    }
    Ok(())
}

/// Refuses code that may reach the bytes of a replaced variable without its name. With gcc's section anchors (`-fsection-anchors`,
/// the default on AArch64 from `-O1` on), code finds variables of its section by their distance from a local symbol. It would
/// not follow the other definition, so two variables would stand for one.
///
/// # Errors
/// [`LinkFault::Unsupported`], for a variable in a section with an anchor that code uses, unless code goes to the variable through
/// the GOT.
#[cold]
fn check_anchors(graph: &LinkGraph, replaced: &[(SymbolIndex, BlockId)]) -> Result<(), Error> {
    let is_anchor_of = |symbol: SymbolIndex, block: BlockId| {
        let in_block = matches!(graph.definition(symbol), Definition::Block(of, _) if of == block);
        in_block && graph.name_bytes(symbol).starts_with(b".LANCHOR")
    };
    let code = || graph.blocks().filter(|(_, block)| block.pool == SegmentKind::Code);
    let has_edge = |is_meant: &dyn Fn(&Edge) -> bool| code().any(|(id, _)| graph.edges(id).iter().any(is_meant));
    // Code that expects another definition goes through the GOT or a TLS entry, everywhere.
    let expects_another = |symbol| {
        let by_entry = |kind: EdgeKind| kind.needs_got_slot() || KindSet::THREAD_LOCAL_ENTRY.contains(kind);
        has_edge(&|edge| edge.symbol == symbol && by_entry(edge.kind))
    };
    let may_use_anchor = |(symbol, block): &&(SymbolIndex, BlockId)| {
        has_edge(&|edge| is_anchor_of(edge.symbol, *block)) && !expects_another(*symbol)
    };
    let Some((symbol, block)) = replaced.iter().find(may_use_anchor) else { return Ok(()) };
    Err(graph.fault(LinkFault::Unsupported {
        what: "section anchors, by which code may reach its own copy of a variable that keeps its place elsewhere; compile \
               with -fno-section-anchors"
            .to_string(),
        section: graph.block_name(*block).to_string(),
        offset: 0,
        symbol: graph.symbol_name(*symbol).to_string(),
    }))
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
