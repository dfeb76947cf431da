//! [`SegmentPlan`]: what one link needs of each pool, as plain data.

use crate::base::Pool;

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

/// What one link needs, by pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentPlan {
    /// Requests, in [`Pool::ALL`] order.
    pub segments: [SegmentRequest; 3],
    /// How many functions with unwind information the code has, at most.
    pub frame_count: u64,
    /// What belongs together has the same number, and goes into one window while that has room; a dylib's for instance.
    /// Zero belongs to nothing.
    pub group: u64,
    /// Whether all of it has to lie below 2 GiB: for code that holds addresses in 32 bits.
    pub low: bool,
}

impl SegmentPlan {
    /// The request for one pool.
    pub fn segment(&self, pool: Pool) -> &SegmentRequest {
        &self.segments[pool.index()]
    }

    /// Bytes asked for, in all pools.
    pub fn requested_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }
}
