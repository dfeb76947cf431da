//! [`SegmentPlan`]: what one link needs of memory, as plain data.

use crate::base::SegmentKind;

/// What one allocation needs of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentRequest {
    /// Bytes, zero-fill included. Zero asks for nothing.
    pub size: u64,
    /// Alignment in bytes: a power of two, or zero for none.
    pub align: u64,
    /// How many of the last bytes must be zero when the allocation is handed out. The others hold anything.
    pub zero_fill: u64,
}

/// A section that needs no place in a window: it gets a mapping of its own, which is never executable. All of it is zero
/// when it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargeRequest {
    /// Bytes. Zero is refused.
    pub size: u64,
    /// Alignment in bytes: a power of two, or zero for none.
    pub align: u64,
    /// Whether nothing writes it once the link is finished.
    pub is_read_only: bool,
}

/// What one link needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentPlan {
    /// Requests, in [`SegmentKind::ALL`] order.
    pub segments: [SegmentRequest; 3],
    /// How many functions with unwind information the code has, at most.
    pub frame_count: u64,
    /// What belongs together has the same number, and goes into one window while that has room; a dylib's for instance.
    /// Zero belongs to nothing.
    pub group: u64,
    /// Whether all of it has to lie below 2 GiB: for code that holds addresses in 32 bits.
    pub low: bool,
    /// Sections that may live anywhere in the address space, each by itself.
    pub apart: Vec<LargeRequest>,
    /// Memory for the time until the link is finalized or abandoned (ORC: finalize lifetime). Readable and writable, in
    /// this process; not necessarily in reach of the segments.
    pub scratch: SegmentRequest,
}

impl SegmentPlan {
    /// The request for one pool.
    pub fn segment(&self, pool: SegmentKind) -> &SegmentRequest {
        &self.segments[pool.index()]
    }

    /// Bytes asked for, in all pools; the largest number when they are more than that.
    pub fn requested_bytes(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.size))
    }

    /// What an allocation has to remember of it.
    pub(crate) fn pools(&self) -> PoolPlan {
        // No pool is larger than 4 GiB.
        PoolPlan { sizes: self.segments.map(|segment| segment.size as u32), group: self.group }
    }
}

/// What was asked of the pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolPlan {
    sizes: [u32; 3],
    pub(crate) group: u64,
}

impl PoolPlan {
    /// Bytes of one pool.
    pub(crate) fn size(&self, pool: SegmentKind) -> u64 {
        u64::from(self.sizes[pool.index()])
    }
}
