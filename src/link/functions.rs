//! [`LinkedFunction`]: the named functions of a finished link, for profilers.
//!
//! A function is a named place in code. Its size is the symbol's. A symbol without a size (mostly from assembly)
//! reaches to the next name or to the end of its section. If one place has several names, the list has the first of
//! these: a name that other objects see; a name with a size; the earliest symbol.
//!
//! Functions may overlap, and may share names, unwind instructions and file names. Each function gets copies of its
//! own. All copies together are limited to a multiple of the object's size ([`OutputBudget`]). Objects of compilers stay
//! far below the limit. Code can run without this list.

use crate::base::{ExecutorAddr, NumberMap, SegmentKind, pair, sort_by_number};
use crate::link::call_frames::{self, CallFrame};
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, Role, SymbolIndex, Text};
use crate::link::lines::{self, SourceLine};
use crate::link::output_budget::{OutputBudget, SharedTexts};

/// A function of a finished link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedFunction {
    /// The name from the symbol table, not demangled. Empty if it is not UTF-8, or if it shares its bytes with too many
    /// others.
    pub name: String,
    /// The address at which it runs.
    pub address: ExecutorAddr,
    /// Its bytes, with all relocations applied.
    pub code: Vec<u8>,
    /// How to unwind it, if the object has unwind information for it.
    pub frame: Option<CallFrame>,
    /// The source lines of its parts, by address. Empty without debug information.
    pub lines: Vec<SourceLine>,
}

impl FixedLink<'_> {
    /// The named functions of this object, for profilers: their bytes as they will run, how to unwind them, and their
    /// source lines. In the order of their addresses within each section.
    pub fn functions(&mut self) -> Vec<LinkedFunction> {
        list(self)
    }
}

/// Lists the functions.
fn list(link: &mut FixedLink<'_>) -> Vec<LinkedFunction> {
    let mut by_block: NumberMap<Vec<NamedCode>> = NumberMap::new();
    for (symbol, block, offset, size) in named_code(link.graph()) {
        by_block.get_or_insert_with(block.0.into(), Vec::new).push(NamedCode { symbol, offset, size });
    }
    let frames = call_frames(link);
    let mut budget = OutputBudget::of(link);
    let lines = lines::of(link, &mut budget);
    let (mut functions, mut shared_names) = (Vec::new(), SharedTexts::default());
    for (block, mut names) in by_block.into_pairs() {
        let block = BlockId(block as u32);
        let graph = link.graph();
        // Global names come first, then names with a size.
        sort_by_number(&mut names, |name| {
            let (is_local, has_no_size) = (graph.symbols[name.symbol.index()].is_local(), name.size == 0);
            pair(name.offset, u64::from(is_local) << 33 | u64::from(has_no_size) << 32 | u64::from(name.symbol.0))
        });
        names.dedup_by_key(|name| name.offset);
        let ends: Vec<u64> = names.iter().skip(1).map(|next| next.offset).chain([u64::MAX]).collect();
        let (start, bytes) = (link.block_address(block), link.bytes(block).to_vec());
        for (name, next) in names.into_iter().zip(ends) {
            let size = if name.size == 0 { next.saturating_sub(name.offset) } else { name.size };
            let end = name.offset.saturating_add(size).min(bytes.len() as u64);
            // If the budget is spent, the function ends at the next name.
            let end = if budget.spend(end.saturating_sub(next) as usize) { end } else { next };
            let Some(code) = bytes.get(name.offset as usize..end as usize).filter(|code| !code.is_empty()) else {
                continue;
            };
            let address = start.offset(name.offset);
            // The names of local symbols may share bytes, and the link does not count them.
            let graph = link.graph();
            let text = shared_names.pay(bytes_from_name(graph, &graph.bytes, name.symbol), &mut budget);
            functions.push(LinkedFunction {
                name: text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default().to_string(),
                address,
                code: code.to_vec(),
                frame: frame_at(&frames, address, &mut budget),
                lines: lines::within(&lines, address, code.len() as u64, &mut budget),
            });
        }
    }
    functions
}

/// A name for a place in code: `offset` is the offset in its block.
struct NamedCode {
    symbol: SymbolIndex,
    offset: u64,
    size: u64,
}

/// The named places in code: `(symbol, block, offset, size)`.
fn named_code(graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, BlockId, u64, u64)> + '_ {
    // `ObjectBuffer::deref` is a virtual call; it is made once, not per symbol.
    let object: &[u8] = &graph.bytes;
    graph.symbols().filter_map(move |(index, symbol)| {
        let Definition::Block(id, offset) = symbol.definition else { return None };
        let block = &graph.blocks[id.index()];
        // A zero-filled block has no instructions, and a few bytes of an object may ask for any size.
        let is_code = block.pool == SegmentKind::Code && !block.is_dropped && !block.is_zero_fill();
        let is_code = is_code && block.role == Role::Plain;
        let has_name = || !matches!(bytes_from_name(graph, object, index).first(), None | Some(0));
        (is_code && has_name()).then_some((index, id, offset, symbol.size))
    })
}

/// The name of a symbol, and maybe what follows it in the object after a null byte.
fn bytes_from_name<'a>(graph: &'a LinkGraph, object: &'a [u8], symbol: SymbolIndex) -> &'a [u8] {
    match &graph.symbols[symbol.index()].name {
        Text::Terminated(start) => object.get(*start as usize..).unwrap_or_default(),
        _ => graph.name_bytes(symbol),
    }
}

/// All frames of the object's unwind tables, by first address.
fn call_frames(link: &mut FixedLink<'_>) -> NumberMap<CallFrame> {
    let is_table = |block: &Block| block.role == Role::EhFrame && !block.is_dropped;
    let tables = link.graph().blocks().filter(|(_, block)| is_table(block)).map(|(id, _)| id);
    let mut frames = NumberMap::new();
    for table in tables.collect::<Vec<_>>() {
        let address = link.block_address(table);
        let found = call_frames::read(link.bytes(table), address);
        found.into_iter().for_each(|frame| drop(frames.insert(frame.start.value(), frame)));
    }
    frames
}

/// The frame of the code at an address. `None` if there is none, or if the budget is too small for its instructions.
fn frame_at(frames: &NumberMap<CallFrame>, address: ExecutorAddr, budget: &mut OutputBudget) -> Option<CallFrame> {
    let (_, frame) = frames.range(..=address.value()).next_back()?;
    let is_inside = address.value() - frame.start.value() < frame.size;
    (is_inside && budget.spend(frame.initial.len() + frame.instructions.len())).then(|| frame.clone())
}
