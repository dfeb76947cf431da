//! Section bounds: `__start_NAME` and `__stop_NAME` enclose all sections of a name that is a C identifier. The gABI does
//! not specify these symbols; every ELF linker since binutils 2.2 defines them.
//!
//! 1. [`find`] collects the bounds that an object refers to. [`define`] defines them as those of the object's own
//!    sections, which are placed next to each other, in the object's order or in that of the sections that they are
//!    linked to (`SHF_LINK_ORDER`). Without such sections, the symbols are looked up like any external.
//! 2. The layer knows whether other objects of the dylib have parts of the section ([`parts`]). Then it moves this part
//!    to its place in an area ([`place`]), and [`bind`]s the symbols to the bounds of the area
//!    (`src/layer/section_bounds.rs`).
//!
//! Blocks in a place are laid out like large sections: the link writes a buffer, and finalizing copies it.

use crate::base::{ExecutorAddr, SegmentKind, align_up, sort_by_number, sort_by_order};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, Role, SymbolIndex, Text};
use crate::link::section_part::{PartKind, Placement, RequestedBounds, SectionPart};
use crate::memory::Place;

/// Collects the bounds that the object refers to.
pub(crate) fn find(graph: &mut LinkGraph) {
    if !graph.may_have_external("__st") {
        return;
    }
    graph.requested_bounds = find_requested(graph);
}

/// The requested bounds, in order of the names of their sections.
fn find_requested(graph: &LinkGraph) -> Vec<RequestedBounds> {
    let mut requests: Vec<(&str, SymbolIndex, bool)> = Vec::new();
    for (index, name) in graph.named_externals() {
        if name.starts_with(b"__st")
            && let Some((section, is_start)) = section_of(graph.symbol_name(index))
        {
            requests.push((section, index, is_start));
        }
    }
    if requests.is_empty() {
        return Vec::new();
    }
    // Sorted once, and not kept in order: an object may request the bounds of many sections.
    sort_by_order(&mut requests, |a, b| a.0.cmp(b.0));
    let of_one_section = requests.chunk_by(|a, b| a.0 == b.0).map(|requests| {
        let symbols = |of_start| requests.iter().filter(move |request| request.2 == of_start).map(|request| request.1);
        let (start, stop) = (symbols(true).collect(), symbols(false).collect());
        RequestedBounds { section: Box::from(requests[0].0), blocks: Vec::new(), start, stop, is_bound: false }
    });
    let mut found: Vec<RequestedBounds> = of_one_section.collect();
    for (id, _) in graph.blocks().filter(|(_, block)| is_section(graph, block)) {
        let name = graph.block_name(id);
        if let Ok(place) = found.binary_search_by(|bounds| (*bounds.section).cmp(name)) {
            found[place].blocks.push(id);
        }
    }
    for bounds in &mut found {
        sort_by_link_order(graph, &mut bounds.blocks);
    }
    found
}

/// Sections with `SHF_LINK_ORDER` have the order of the sections that they are linked to. Others come first.
fn sort_by_link_order(graph: &LinkGraph, blocks: &mut [BlockId]) {
    sort_by_number(blocks, |id| graph.blocks[id.index()].linked_to.map_or(0, |linked| u128::from(linked.0) + 1));
}

/// Defines the bounds of the object's own sections: each start symbol as the first byte of the first block, and each
/// stop symbol as the end of the last one. Links the blocks of one name, so that the layout places them next to each
/// other. Blocks of several kinds cannot be next to each other: see [`check`].
pub(crate) fn define(graph: &mut LinkGraph) {
    let requested = std::mem::take(&mut graph.requested_bounds);
    for bounds in &requested {
        if !is_uniform(graph, bounds) {
            continue;
        }
        let RequestedBounds { blocks, start, stop, .. } = bounds;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { continue };
        let end = graph.blocks[last.index()].size;
        for symbol in start {
            graph.set_definition(*symbol, Definition::Block(*first, 0));
        }
        for symbol in stop {
            graph.set_definition(*symbol, Definition::Block(*last, end));
        }
        // The layout places each block directly after the one that names it here.
        for pair in blocks.windows(2) {
            graph.place_after(pair[0], pair[1]);
        }
        for id in blocks {
            graph.blocks[id.index()].is_retained = true;
        }
    }
    graph.requested_bounds = requested;
}

/// Checks that all bounds of own sections are defined or bound to an area.
///
/// # Errors
/// If the sections of one name are not all of one segment kind, or only some of them are zero-fill.
pub(crate) fn check(graph: &LinkGraph) -> Result<(), Error> {
    let mixed = graph.requested_bounds.iter().find(|bounds| !bounds.is_bound && !is_uniform(graph, bounds));
    let Some(bounds) = mixed else { return Ok(()) };
    let what = "bounds of sections of one name and of different kinds".to_string();
    let section = bounds.section.to_string();
    Err(graph.fault(LinkFault::Unsupported { what, section, offset: 0, symbol: String::new() }))
}

/// Whether the object's own sections are of one kind.
fn is_uniform(graph: &LinkGraph, bounds: &RequestedBounds) -> bool {
    let kind = |id: &BlockId| (graph.blocks[id.index()].pool, graph.blocks[id.index()].is_zero_fill());
    bounds.blocks.iter().all(|id| kind(id) == kind(&bounds.blocks[0]))
}

/// The parts that the object has of sections that `__start_` and `__stop_` symbols can name, sorted by name.
pub(crate) fn parts(graph: &LinkGraph) -> Vec<SectionPart> {
    if !graph.has_named_sections {
        return Vec::new();
    }
    let mut named: Vec<(&str, BlockId)> = Vec::new();
    for (id, _) in graph.blocks().filter(|(_, block)| is_section(graph, block)) {
        let name = graph.block_name(id);
        if is_identifier(name) {
            named.push((name, id));
        }
    }
    sort_by_order(&mut named, |a, b| a.0.cmp(b.0));
    let of_one_name = named.chunk_by(|a, b| a.0 == b.0);
    of_one_name.filter_map(|of| part_of(graph, of[0].0, of.iter().map(|(_, id)| *id).collect())).collect()
}

/// The part that consists of these blocks. `None` if they are empty. A part that is too large is of kind
/// [`PartKind::Other`].
fn part_of(graph: &LinkGraph, name: &str, mut blocks: Vec<BlockId>) -> Option<SectionPart> {
    sort_by_link_order(graph, &mut blocks);
    let block = |id: &BlockId| &graph.blocks[id.index()];
    let (mut size, mut kind) = (Some(0), None);
    for block in blocks.iter().map(block) {
        size = size.and_then(|end| align_up(end, block.align)?.checked_add(block.size));
        kind = Some(kind.map_or(kind_of(block), |kind: PartKind| kind.beside(kind_of(block))));
    }
    if size == Some(0) {
        return None;
    }
    let align = blocks.iter().map(|id| block(id).align).max()?;
    let (size, kind) = size.map_or((u64::MAX, PartKind::Other), |size| (size, kind.unwrap_or(PartKind::Other)));
    Some(SectionPart { section: Box::from(name), blocks, size, align, kind })
}

fn kind_of(block: &Block) -> PartKind {
    match block.pool {
        _ if block.role != Role::Plain => PartKind::Other,
        SegmentKind::Code => PartKind::Other,
        pool if block.is_zero_fill() => PartKind::ZeroFill(pool),
        pool => PartKind::Bytes(pool),
    }
}

/// Moves a part of the object to a place, which has its size and alignment.
pub(crate) fn place(graph: &mut LinkGraph, part: &SectionPart, place: Place) {
    graph.is_near_low_area |= is_low(place.address());
    let (mut end, mut blocks) = (0, Vec::with_capacity(part.blocks.len()));
    for id in &part.blocks {
        let block = &mut graph.blocks[id.index()];
        (block.is_retained, block.followed_by) = (true, None);
        // It does not overflow: the sum was checked when the part was made.
        let offset = align_up(end, block.align).unwrap_or(end);
        end = offset + block.size;
        blocks.push((offset, block.size));
    }
    graph.placements.push(Placement { blocks: part.blocks.clone(), memory: (place, blocks) });
}

/// Binds the bounds at position `number` to addresses.
pub(crate) fn bind(graph: &mut LinkGraph, number: usize, start: ExecutorAddr, stop: ExecutorAddr) {
    graph.is_near_low_area |= is_low(start);
    let mut requested = std::mem::take(&mut graph.requested_bounds);
    if let Some(bounds) = requested.get_mut(number) {
        bounds.is_bound = true;
        for (symbols, address) in [(&bounds.start, start), (&bounds.stop, stop)] {
            for symbol in symbols {
                graph.set_definition(*symbol, Definition::Absolute(address.value()));
            }
        }
    }
    graph.requested_bounds = requested;
}

/// Whether an area is below 2 GiB, where code with 32-bit addresses reaches it.
fn is_low(address: ExecutorAddr) -> bool {
    address.value() < 1 << 31
}

/// Whether a block is a loaded section of the object. Only the block of a common symbol has a fixed name here. A section with
/// `SHF_LINK_ORDER` is dropped with the section that it is linked to.
fn is_section(graph: &LinkGraph, block: &Block) -> bool {
    let is_dropped = |block: &Block| block.is_dropped;
    let is_lost = block.linked_to.is_some_and(|linked| is_dropped(&graph.blocks[linked.index()]));
    !is_dropped(block) && !is_lost && !matches!(block.name, Text::Fixed(_))
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
