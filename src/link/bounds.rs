//! Section bounds: `__start_NAME` and `__stop_NAME`, for sections whose name is a C identifier (gABI has no word of them;
//! every ELF linker since binutils 2.2 does it).
//!
//! They mean the sections of that name of the object itself. Sections of one name stand side by side in the object's order,
//! so that one loop goes over all of them. Bounds of a section that the object does not have are looked up like any symbol.
//!
//! Bounds do not span objects: the layer refuses an object that asks for the bounds of a section, if another object of the
//! same dylib has a section of that name (`src/layer/section_bounds.rs`).

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, LinkFault};
use crate::link::graph::{AskedBounds, Block, BlockId, Definition, LinkGraph, SymbolIndex, Text};

/// One name whose bounds the object asks for.
pub(crate) struct Bounded {
    pub(crate) blocks: Vec<BlockId>,
    start: Vec<SymbolIndex>,
    stop: Vec<SymbolIndex>,
}

/// The names that the object asks the bounds of, and has sections of. Notes all that it asks for in the graph.
pub(crate) fn find(graph: &mut LinkGraph) -> Result<Vec<Bounded>, Error> {
    if !graph.may_have_external("__st") {
        return Ok(Vec::new());
    }
    let mut asked = Vec::new();
    let bounded = find_asked(graph, &mut asked)?;
    graph.asked_bounds = asked;
    Ok(bounded)
}

fn find_asked(graph: &LinkGraph, asked: &mut Vec<AskedBounds>) -> Result<Vec<Bounded>, Error> {
    let mut found: Vec<(&str, Bounded)> = Vec::new();
    let mut number_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, name) in graph.named_externals() {
        if !name.starts_with(b"__st") {
            continue;
        }
        let name = graph.symbol_name(index);
        let Some((section, is_start)) = section_of(name) else { continue };
        let number = *number_of.entry(section).or_insert_with(|| {
            found.push((section, Bounded { blocks: Vec::new(), start: Vec::new(), stop: Vec::new() }));
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
    let ask = |(section, bounded): &(&str, Bounded)| AskedBounds {
        section: Box::from(*section),
        has_own: !bounded.blocks.is_empty(),
    };
    asked.extend(found.iter().map(ask));
    found.retain(|(_, bounded)| !bounded.blocks.is_empty());
    for (name, bounded) in &found {
        let kind = |id: &BlockId| (graph.blocks[id.index()].pool, graph.blocks[id.index()].is_zero_fill());
        if bounded.blocks.iter().any(|id| kind(id) != kind(&bounded.blocks[0])) {
            let what = "bounds of sections that are of one name, and not all of one kind".to_string();
            let fault = LinkFault::Unsupported { what, section: name.to_string(), offset: 0, symbol: String::new() };
            return Err(graph.fault(fault));
        }
    }
    Ok(found.into_iter().map(|(_, bounded)| bounded).collect())
}

/// Makes the symbols mean the first byte of the first block and the end of the last one. Blocks of one name stand
/// side by side from here on, as the layout sees to.
pub(crate) fn define(graph: &mut LinkGraph, bounded: &[Bounded]) {
    for Bounded { blocks, start, stop } in bounded {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { continue };
        let end = graph.blocks[last.index()].size;
        for symbol in start {
            graph.define(*symbol, Definition::Block(*first, 0));
        }
        for symbol in stop {
            graph.define(*symbol, Definition::Block(*last, end));
        }
        // Those behind the first follow it in the layout, whatever stands between them in the object.
        for pair in blocks.windows(2) {
            graph.blocks[pair[0].index()].followed_by = Some(pair[1]);
        }
        for id in blocks {
            graph.blocks[id.index()].is_retained = true;
        }
    }
}

/// The names of sections with bytes that may be asked for their bounds, each once.
pub(crate) fn named_sections(graph: &LinkGraph) -> Vec<Box<str>> {
    if !graph.has_named_sections {
        return Vec::new();
    }
    let is_there = |block: &Block| !block.is_dropped && block.size > 0 && !matches!(block.name, Text::Fixed(_));
    let blocks = graph.blocks().filter(|(_, block)| is_there(block));
    let names: BTreeSet<&str> = blocks.map(|(id, _)| graph.block_name(id)).filter(|name| is_identifier(name)).collect();
    names.into_iter().map(Box::from).collect()
}

/// The section that a symbol is a bound of, and whether of its start.
fn section_of(symbol: &str) -> Option<(&str, bool)> {
    let start = symbol.strip_prefix("__start_").map(|section| (section, true));
    let (section, is_start) = start.or_else(|| symbol.strip_prefix("__stop_").map(|section| (section, false)))?;
    is_identifier(section).then_some((section, is_start))
}

pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
