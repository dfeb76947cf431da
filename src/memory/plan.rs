//! [`SegmentPlan`]: what one link needs of memory, as plain data.

use crate::base::SegmentKind;
use crate::memory::layout::granule_size;

/// What one allocation needs of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentRequest {
    /// Size in bytes, zero-fill included. Zero requests nothing.
    pub size: u64,
    /// Alignment in bytes: a power of two, or zero for none.
    pub align: u64,
    /// How many of the last bytes must be zero when the memory is handed out. The other bytes may have any value.
    pub zero_fill: u64,
}

/// A large section outside every window. It has a mapping of its own, which is never executable. All its bytes are zero
/// when it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargeRequest {
    /// Size in bytes. Zero is an error.
    pub size: u64,
    /// Alignment in bytes: a power of two, or zero for none.
    pub align: u64,
    /// Whether the section becomes read-only when the link is finalized.
    pub is_read_only: bool,
}

/// What one link needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentPlan {
    /// The request for each pool, in [`SegmentKind::ALL`] order.
    pub segments: [SegmentRequest; 3],
    /// The greatest number of functions of the code that have unwind information.
    pub frame_count: u64,
    /// Allocations with the same number go into the same window while it has space: those of one dylib, for instance.
    /// Zero means no group.
    pub group: u64,
    /// Whether the entire allocation must lie below 2 GiB: for code that holds 32-bit addresses.
    pub low: bool,
    /// Large sections, each at any address.
    pub large_sections: Vec<LargeRequest>,
    /// Memory until the link is finalized or abandoned (ORC: finalize lifetime). It is readable and writable in this
    /// process, and it may be out of reach of the segments.
    pub scratch: SegmentRequest,
}

impl SegmentPlan {
    /// The request for one pool.
    pub fn segment(&self, pool: SegmentKind) -> &SegmentRequest {
        &self.segments[pool.index()]
    }

    /// The bytes of a pool that the plan takes, without padding: those that it requests, but a granule of code for each
    /// frame, because each granule has one slot of the frame table.
    pub(crate) fn bytes_to_reserve(&self, pool: SegmentKind) -> u64 {
        let frames = if pool == SegmentKind::Code { self.frame_count } else { 0 };
        self.segment(pool).size.max(frames.saturating_mul(granule_size(pool)))
    }

    /// Requested bytes of all pools. A sum that does not fit is `u64::MAX`.
    pub fn requested_bytes(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.size))
    }
}
