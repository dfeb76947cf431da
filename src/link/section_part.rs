//! [`SectionPart`]: all sections of one name in one object, and [`RequestedBounds`]: the bounds of a section that an object
//! refers to.
//!
//! Plain data. `bounds.rs` computes it.

use crate::base::SegmentKind;
use crate::link::edge::{BlockId, SymbolIndex};
use crate::memory::PlacedBlocks;

/// The bounds of one section that an object refers to.
#[derive(Debug)]
pub(crate) struct RequestedBounds {
    pub(crate) section: Box<str>,
    /// The sections of the object itself, in its order.
    pub(crate) blocks: Vec<BlockId>,
    /// The `__start_` symbols.
    pub(crate) start: Vec<SymbolIndex>,
    /// The `__stop_` symbols.
    pub(crate) stop: Vec<SymbolIndex>,
    /// Whether the symbols are bound to an area.
    pub(crate) is_bound: bool,
}

impl RequestedBounds {
    /// Whether the object itself has a section of this name.
    pub(crate) fn has_own(&self) -> bool {
        !self.blocks.is_empty()
    }
}

/// All sections of one name in one object.
#[derive(Debug, Clone)]
pub(crate) struct SectionPart {
    pub(crate) section: Box<str>,
    /// In the object's order.
    pub(crate) blocks: Vec<BlockId>,
    /// Bytes from the first block to the end of the last one. Not zero.
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) kind: PartKind,
}

/// The memory that a part needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Constants or data that have bytes in the object.
    Bytes(SegmentKind),
    /// Constants or data without bytes in the object.
    ZeroFill(SegmentKind),
    /// Code, thread-local variables, or blocks with and without bytes.
    Other,
}

impl PartKind {
    /// The kind of memory for two parts that are placed next to each other. Constants become data beside data, as with
    /// a native linker. Linkers differ about zero-fill beside bytes, so there is none for these.
    pub(crate) fn beside(self, other: PartKind) -> PartKind {
        match (self, other) {
            (PartKind::Bytes(one), PartKind::Bytes(other)) => PartKind::Bytes(one.max(other)),
            (PartKind::ZeroFill(one), PartKind::ZeroFill(other)) => PartKind::ZeroFill(one.max(other)),
            _ => PartKind::Other,
        }
    }

    /// The pool of an area for such parts. `None` if there is none.
    pub(crate) fn pool(self) -> Option<SegmentKind> {
        match self {
            PartKind::Bytes(pool) | PartKind::ZeroFill(pool) => Some(pool),
            PartKind::Other => None,
        }
    }
}

/// A part of an object in its place.
pub(crate) struct Placement {
    /// The blocks, in the order of their offsets.
    pub(crate) blocks: Vec<BlockId>,
    /// The place, with the offset and the size of each block.
    pub(crate) memory: PlacedBlocks,
}
