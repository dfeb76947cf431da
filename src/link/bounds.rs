//! Section bounds: defines `__start_NAME` and `__stop_NAME` for sections whose name is a C identifier. The gABI does
//! not specify these symbols; every ELF linker since binutils 2.2 defines them.
//!
//! The symbols mean the object's own sections of that name. All sections of one name are placed next to each other, in
//! the object's order or in that of the sections that they are linked to (`SHF_LINK_ORDER`), so that one loop can visit
//! all of them. If the object has no section of the name, the symbols are looked up like any external.
//!
//! Bounds do not span objects. The layer refuses an object that refers to the bounds of a section if another object of
//! the same dylib has a section of that name (`src/layer/section_bounds.rs`).

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, RequestedBounds, SymbolIndex, Text};

/// The sections of one name whose bounds the object refers to.
pub(crate) struct BoundedSection {
    /// In the order in which they are placed: the object's order, with `SHF_LINK_ORDER` that of the linked sections.
    /// Never empty after [`find`].
    pub(crate) blocks: Vec<BlockId>,
    /// The `__start_` symbols.
    start: Vec<SymbolIndex>,
    /// The `__stop_` symbols.
    stop: Vec<SymbolIndex>,
}

/// Returns the bounded sections that the object has itself. Records all bounds that it refers to in
/// `LinkGraph::requested_bounds`.
///
/// # Errors
/// If the sections of one name are not all of one segment kind, or only some of them are zero-fill.
pub(crate) fn find(graph: &mut LinkGraph) -> Result<Vec<BoundedSection>, Error> {
    if !graph.may_have_external("__st") {
        return Ok(Vec::new());
    }
    let mut requested = Vec::new();
    let bounded = find_requested(graph, &mut requested)?;
    graph.requested_bounds = requested;
    Ok(bounded)
}

fn find_requested(graph: &LinkGraph, requested: &mut Vec<RequestedBounds>) -> Result<Vec<BoundedSection>, Error> {
    let mut found: Vec<(&str, BoundedSection)> = Vec::new();
    let mut number_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, name) in graph.named_externals() {
        if !name.starts_with(b"__st") {
            continue;
        }
        let name = graph.symbol_name(index);
        let Some((section, is_start)) = section_of(name) else { continue };
        let number = *number_of.entry(section).or_insert_with(|| {
            found.push((section, BoundedSection { blocks: Vec::new(), start: Vec::new(), stop: Vec::new() }));
            found.len() - 1
        });
        let bounded = &mut found[number].1;
        if is_start { bounded.start.push(index) } else { bounded.stop.push(index) }
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped && !matches!(block.name, Text::Fixed(_))) {
        if let Some(number) = number_of.get(graph.block_name(id)) {
            found[*number].1.blocks.push(id);
        }
    }
    for (_, bounded) in &mut found {
        // Sections with `SHF_LINK_ORDER` have the order of the sections that they are linked to. Others come first.
        bounded.blocks.sort_by_key(|id| graph.blocks[id.index()].linked_to);
    }
    let request = |(section, bounded): &(&str, BoundedSection)| RequestedBounds {
        section: Box::from(*section),
        has_own: !bounded.blocks.is_empty(),
    };
    requested.extend(found.iter().map(request));
    found.retain(|(_, bounded)| !bounded.blocks.is_empty());
    for (name, bounded) in &found {
        let kind = |id: &BlockId| (graph.blocks[id.index()].pool, graph.blocks[id.index()].is_zero_fill());
        if bounded.blocks.iter().any(|id| kind(id) != kind(&bounded.blocks[0])) {
            let what = "bounds of sections of one name and of different kinds".to_string();
            let fault = LinkFault::Unsupported { what, section: name.to_string(), offset: 0, symbol: String::new() };
            return Err(graph.fault(fault));
        }
    }
    Ok(found.into_iter().map(|(_, bounded)| bounded).collect())
}

/// Defines each start symbol as the first byte of the first block, and each stop symbol as the end of the last one.
/// Links the blocks of one name, so that the layout places them next to each other.
pub(crate) fn define(graph: &mut LinkGraph, bounded: &[BoundedSection]) {
    for BoundedSection { blocks, start, stop } in bounded {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { continue };
        let end = graph.blocks[last.index()].size;
        for symbol in start {
            graph.define(*symbol, Definition::Block(*first, 0));
        }
        for symbol in stop {
            graph.define(*symbol, Definition::Block(*last, end));
        }
        // The layout places each block directly after the one that names it here.
        for pair in blocks.windows(2) {
            graph.blocks[pair[0].index()].followed_by = Some(pair[1]);
        }
        for id in blocks {
            graph.blocks[id.index()].is_retained = true;
        }
    }
}

/// The names of the non-empty sections that `__start_` and `__stop_` symbols can name, each once.
pub(crate) fn named_sections(graph: &LinkGraph) -> Vec<Box<str>> {
    if !graph.has_named_sections {
        return Vec::new();
    }
    let is_loaded = |block: &Block| !block.is_dropped && block.size > 0 && !matches!(block.name, Text::Fixed(_));
    let blocks = graph.blocks().filter(|(_, block)| is_loaded(block));
    let names: BTreeSet<&str> = blocks.map(|(id, _)| graph.block_name(id)).filter(|name| is_identifier(name)).collect();
    names.into_iter().map(Box::from).collect()
}

/// The section name in a `__start_` or `__stop_` symbol, and whether the symbol is the start. `None` for other symbols.
fn section_of(symbol: &str) -> Option<(&str, bool)> {
    let start = symbol.strip_prefix("__start_").map(|section| (section, true));
    let (section, is_start) = start.or_else(|| symbol.strip_prefix("__stop_").map(|section| (section, false)))?;
    is_identifier(section).then_some((section, is_start))
}

/// Whether a name is a C identifier.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
