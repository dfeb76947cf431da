//! [`Block`]: a range of bytes that is placed as a unit; [`BlockAddresses`]: where the blocks of a link are.

use std::ops::Range;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::link::content::{Content, Text};
use crate::link::edge::BlockId;
use crate::link::initializers::{InitializerKind, InitializerStage};
use crate::link::thread_local_plan::ThreadLocalPlace;
use crate::link::use_recorder::ReferrerBit;

/// A contiguous range of bytes that is placed as a unit: a section, a common symbol, or a table that the linker makes
/// (ORC: `jitlink::Block`).
#[derive(Debug)]
pub struct Block {
    pub(crate) name: Text,
    /// The kind of memory that the block goes to.
    pub pool: SegmentKind,
    pub(crate) content: Content,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// The block's edges, as a range of [`LinkGraph::edges`](crate::link::LinkGraph::edges).
    pub(crate) edges: Range<u32>,
    /// The bit of this block in the [`UseRecorder`](crate::link::use_recorder::UseRecorder). Valid only if the block has edges.
    pub(crate) referrer_bit: ReferrerBit,
    pub(crate) role: Role,
    /// Number of the COMDAT section group (gABI, "Section Groups") that the block belongs to.
    pub(crate) group: Option<u32>,
    /// The block of the section's `sh_link`, for a section with `SHF_LINK_ORDER`. Dead-stripping keeps this
    /// block if that one is live.
    pub(crate) linked_to: Option<BlockId>,
    /// Whether the block is a root of dead-stripping.
    pub(crate) is_retained: bool,
    /// Before layout: the block that must come directly after this one, because both have one name and the object
    /// refers to that name's bounds. From layout on: the next block with bytes in the same segment.
    pub(crate) followed_by: Option<BlockId>,
    /// Whether a root leads to the block. Dead-stripping sets it.
    pub(crate) is_live: bool,
    /// Whether the block was dropped with its group, or because no root leads to it. Such a block is not laid out and
    /// not copied.
    pub(crate) is_dropped: bool,
    /// Offset in bytes in the segment, or in the thread-local block. Zero before layout.
    pub(crate) offset: u64,
    /// The number of this block among the large sections, from layout on. Such a block is in no segment. The blocks in
    /// areas follow the large sections.
    pub(crate) large_index: Option<u32>,
}

/// The addresses of the memory of one link.
#[derive(Default)]
pub(crate) struct BlockAddresses {
    /// The segments, by [`SegmentKind::index`].
    pub(crate) segments: [ExecutorAddr; 3],
    /// The large sections and the blocks in areas, by [`Block::large_index`].
    pub(crate) large_sections: Vec<ExecutorAddr>,
    /// The thread-local block, if there is one. It is known later than the other addresses.
    pub(crate) thread_locals: Option<ThreadLocalPlace>,
}

impl BlockAddresses {
    /// The address of a block that is not thread-local. Call it after layout.
    #[inline]
    pub(crate) fn address(&self, block: &Block) -> ExecutorAddr {
        match block.large_index {
            Some(index) => self.large_sections[index as usize],
            None => self.segments[block.pool.index()].offset(block.offset),
        }
    }
}

/// What the linker must do with a block besides copying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing.
    Plain,
    /// Unwind tables (`.eh_frame`).
    EhFrame,
    /// Part of the thread-local block, of which every thread has a copy (`SHF_TLS`).
    ThreadLocal,
    /// A fragment of `_init` or `_fini` (`.init`, `.fini`).
    InitFragment,
    /// The beginning of a function that the linker made of such fragments.
    FragmentFunction { kind: InitializerKind },
    /// A list of function addresses.
    Initializers {
        kind: InitializerKind,
        stage: InitializerStage,
        priority: u32,
        /// See [`Initializer::rank`](crate::link::Initializer::rank).
        rank: u8,
        /// Whether the functions are called from the end of the list to its beginning.
        backward: bool,
    },
}

impl Block {
    #[inline]
    pub(crate) fn new(name: Text, pool: SegmentKind, content: Content, size: u64, align: u64) -> Block {
        Block {
            name,
            pool,
            content,
            size,
            align: align.max(1),
            edges: 0..0,
            referrer_bit: ReferrerBit::FIRST,
            role: Role::Plain,
            group: None,
            linked_to: None,
            is_retained: false,
            followed_by: None,
            is_live: false,
            is_dropped: false,
            offset: 0,
            large_index: None,
        }
    }

    /// Offset in bytes from the start of the segment, or of the thread-local block for a thread-local block. Zero
    /// before layout, for a dropped block, and for a block that [`is_large`](Self::is_large).
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the block is in no segment: a large section with a mapping of its own, at any address, or a part of a
    /// section that several objects have. False before layout.
    pub fn is_large(&self) -> bool {
        self.large_index.is_some()
    }

    /// Whether the block has no bytes in the object and starts as zeroes (`SHT_NOBITS`, common symbols).
    pub fn is_zero_fill(&self) -> bool {
        matches!(self.content, Content::Zero)
    }

    /// Whether the linker or a plugin made the block.
    pub fn is_synthetic(&self) -> bool {
        matches!(self.content, Content::Synthetic(_) | Content::Table)
    }

    /// Whether the block was dropped with its section group or by dead-stripping. A dropped block takes no memory.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Whether the block holds fragments of initialisers or finalisers.
    pub(crate) fn is_fragment(&self) -> bool {
        self.role == Role::InitFragment && self.pool == SegmentKind::Code && !self.is_dropped && self.size > 0
    }

    /// The kind and priority of the functions that the block lists, if it is a list of initialisers or finalisers
    /// (gABI, "Initialization and Termination Functions"). A lower priority is initialised earlier.
    pub fn initializer_list(&self) -> Option<(InitializerKind, u32)> {
        match self.role {
            Role::Initializers { kind, priority, .. } => Some((kind, priority)),
            _ => None,
        }
    }
}
