//! [`MemorySnapshot`]: a copy of a link's working memory, for the verifier.

use crate::base::SegmentKind;
use crate::link::graph::{Block, Role};
use crate::link::resolved_link::ResolvedLink;
use crate::memory::InFlight;

/// The bytes of a link's segments and large sections.
///
/// Zero-fill at the end of a segment is copied up to [`ZERO_FILL_CHECKED`] bytes only: reading all of it would make the
/// kernel allocate pages for it.
#[derive(Default)]
pub(super) struct MemorySnapshot {
    /// By pool.
    pub(super) segments: [Vec<u8>; 3],
    /// By index of the large section. Empty for zero-fill.
    large_sections: Vec<Vec<u8>>,
    /// By pool: the full size of the segment in bytes.
    pub(super) sizes: [u64; 3],
    /// The code of the thunks for thread-local variables, and their descriptors.
    pub(super) thunk_code: Vec<u8>,
    pub(super) thunk_words: Vec<u8>,
}

impl MemorySnapshot {
    pub(super) fn of(
        link: &ResolvedLink<'_>,
        memory: &mut dyn InFlight,
        thunks: Option<&mut dyn InFlight>,
    ) -> MemorySnapshot {
        let mut snapshot = MemorySnapshot::default();
        if let Some(thunks) = thunks {
            snapshot.thunk_code = thunks.working(SegmentKind::Code).to_vec();
            snapshot.thunk_words = thunks.working(SegmentKind::ReadOnly).to_vec();
        }
        for pool in SegmentKind::ALL {
            let has_content = |block: &&Block| block.pool == pool && is_in_segment(block) && !block.is_zero_fill();
            let content = link.graph.blocks.iter().filter(has_content).map(|block| block.offset + block.size).max();
            let segment = memory.working(pool);
            let end = segment.len().min(content.unwrap_or(0) as usize + ZERO_FILL_CHECKED);
            snapshot.segments[pool.index()] = segment[..end].to_vec();
            snapshot.sizes[pool.index()] = segment.len() as u64;
        }
        snapshot.large_sections.resize(link.addresses.large_sections.len(), Vec::new());
        for block in link.graph.blocks.iter().filter(|block| !block.is_zero_fill()) {
            let Some(index) = block.large_index else { continue };
            snapshot.large_sections[index as usize] = memory.large_section(index as usize).to_vec();
        }
        snapshot
    }

    /// A block's bytes, if all of them are in the snapshot.
    pub(super) fn bytes(&self, block: &Block) -> Option<&[u8]> {
        match block.large_index {
            Some(index) => self.large_sections.get(index as usize).map(|bytes| &bytes[..]),
            None => {
                let end = block.offset.checked_add(block.size)?;
                self.segments[block.pool.index()].get(block.offset as usize..end as usize)
            }
        }
    }
}

/// Whether a block is part of a segment.
pub(super) fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_large() && block.role != Role::ThreadLocal
}

/// Bytes of a segment's zero-fill that are copied and checked.
const ZERO_FILL_CHECKED: usize = 1 << 16;
