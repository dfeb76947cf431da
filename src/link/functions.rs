//! [`LinkedFunction`]: what a profiler is told of a finished link, function by function.
//!
//! A function is a named place in code. It is as long as its symbol says; a symbol that does not say (assembly, mostly) is
//! taken to reach to the next name, or to the end of its section. Of several names for one place the first that is
//! visible to others is taken. Nothing here is needed to run anything.
//!
//! Functions may lie on each other, and share their unwind instructions and the names of their files; each is told with all
//! of it, as long as that stays within a multiple of the object's size ([`Room`]). Compilers write nothing that comes near.

use std::collections::BTreeMap;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::link::call_frames::{self, CallFrame};
use crate::link::graph::{Block, BlockId, Definition, LinkGraph, Role, SymbolIndex};
use crate::link::lines::{self, SourceLine};
use crate::link::pipeline::FixedLink;

/// A function of a finished link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedFunction {
    /// Its name, as the object has it.
    pub name: String,
    /// Where it runs.
    pub address: ExecutorAddr,
    /// Its bytes, all relocations applied.
    pub code: Vec<u8>,
    /// How to unwind it, if the object says so.
    pub frame: Option<CallFrame>,
    /// Where in the source its parts come from, by address; empty without debug information.
    pub lines: Vec<SourceLine>,
}

/// What may still be told more than once.
pub(super) struct Room {
    bytes: u64,
}

impl Room {
    fn of(link: &FixedLink<'_>) -> Room {
        Room { bytes: ROOM_PER_BYTE * link.graph().bytes.len() as u64 }
    }

    /// Whether so much fits, and then less does.
    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes as u64);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

/// Lists them.
pub(super) fn list(link: &mut FixedLink<'_>) -> Vec<LinkedFunction> {
    let mut by_block: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
    for (symbol, block, offset, size) in named_code(link.graph()) {
        by_block.entry(block.0).or_default().push(Place { symbol, offset, size });
    }
    let frames = call_frames(link);
    let mut room = Room::of(link);
    let lines = lines::of(link, &mut room);
    let mut functions = Vec::new();
    for (block, mut places) in by_block {
        let block = BlockId(block);
        let graph = link.graph();
        // Visible ones first, then those that say how long they are.
        places.sort_by_key(|place| {
            (place.offset, graph.symbols[place.symbol.index()].is_local(), place.size == 0, place.symbol)
        });
        places.dedup_by_key(|place| place.offset);
        let ends: Vec<u64> = places.iter().skip(1).map(|next| next.offset).chain([u64::MAX]).collect();
        let (start, bytes) = (link.block_address(block), link.bytes(block).to_vec());
        for (place, next) in places.into_iter().zip(ends) {
            let size = if place.size == 0 { next.saturating_sub(place.offset) } else { place.size };
            let end = place.offset.saturating_add(size).min(bytes.len() as u64);
            // Without room, as far as the next name.
            let end = if room.take(end.saturating_sub(next) as usize) { end } else { next };
            let Some(code) = bytes.get(place.offset as usize..end as usize).filter(|code| !code.is_empty()) else {
                continue;
            };
            let address = start.offset(place.offset);
            functions.push(LinkedFunction {
                name: link.graph().symbol_name(place.symbol).to_string(),
                address,
                code: code.to_vec(),
                frame: frame_at(&frames, address, &mut room),
                lines: lines::within(&lines, address, code.len() as u64, &mut room),
            });
        }
    }
    functions
}

struct Place {
    symbol: SymbolIndex,
    offset: u64,
    size: u64,
}

/// Names that stand for places in code: `(symbol, block, offset, size)`.
fn named_code(graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, BlockId, u64, u64)> + '_ {
    graph.symbols().filter_map(|(index, symbol)| {
        let Definition::Block(id, offset) = symbol.definition else { return None };
        let block = &graph.blocks[id.index()];
        let is_code = block.pool == SegmentKind::Code && !block.is_dropped && block.role == Role::Plain;
        (is_code && !graph.name_bytes(index).is_empty()).then_some((index, id, offset, symbol.size))
    })
}

/// All that the object's unwind tables say, by the first address.
fn call_frames(link: &mut FixedLink<'_>) -> BTreeMap<u64, CallFrame> {
    let is_table = |block: &Block| block.role == Role::EhFrame && !block.is_dropped;
    let tables = link.graph().blocks().filter(|(_, block)| is_table(block)).map(|(id, _)| id);
    let mut frames = BTreeMap::new();
    for table in tables.collect::<Vec<_>>() {
        let address = link.block_address(table);
        let found = call_frames::read(link.bytes(table), address);
        frames.extend(found.into_iter().map(|frame| (frame.start.value(), frame)));
    }
    frames
}

/// The frame of the code at an address.
fn frame_at(frames: &BTreeMap<u64, CallFrame>, address: ExecutorAddr, room: &mut Room) -> Option<CallFrame> {
    let (_, frame) = frames.range(..=address.value()).next_back()?;
    let is_of_it = address.value() - frame.start.value() < frame.size;
    (is_of_it && room.take(frame.initial.len() + frame.instructions.len())).then(|| frame.clone())
}

/// Much more than names and frames of honest objects take, which have little in common.
const ROOM_PER_BYTE: u64 = 48;
