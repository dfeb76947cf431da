//! [`MemoryManager`]: the seam above the pools, and the two states of an allocation.

use std::any::Any;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::frame_table::Frame;
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::sync::MappedU64;

/// Gives code memory for links (ORC: `JITLinkMemoryManager`).
pub trait MemoryManager: Send + Sync {
    /// Reserves everything that a plan asks for, in one step.
    ///
    /// # Errors
    /// [`MemoryFault`](crate::error::MemoryFault); nothing is held then.
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>>;

    /// Seals many allocations of this manager as one batch, with the frames of each: all of them, or none. What they
    /// become, in order.
    ///
    /// # Errors
    /// As [`InFlight::finalize`], for any of them; everything of the batch is given back then.
    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        batch.into_iter().map(|(one, frames)| one.finalize(frames)).collect()
    }

    /// Whether what is linked into this memory can be run by this process.
    fn can_run(&self) -> bool {
        true
    }

    /// What is held now.
    fn statistics(&self) -> MemoryStatistics;

    /// Gives the kernel every page that nothing lives in: for quiet moments, and when memory is short. Links and removals
    /// may go on meanwhile.
    fn release_free(&self) -> Released {
        Released::default()
    }

    /// Gives the kernel every whole slab that nothing lives in; how many there were (seed: tvm-ffi's
    /// `clear_free_slabs`).
    fn release_free_slabs(&self) -> usize {
        0
    }

    /// What stands where, for a picture of it; `None` for managers that draw none. Links and removals may go on meanwhile.
    fn memory_map(&self) -> Option<MemoryMap> {
        None
    }
}

/// What was given back to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Bytes of pages that held something.
    pub bytes: u64,
    /// Whole slabs.
    pub slabs: usize,
}

/// Memory that a link is writing. Dropping it abandons the link and gives everything back.
///
/// `Any`, so that a manager knows its own when it is handed a batch.
#[must_use = "dropping an allocation in flight abandons it"]
pub trait InFlight: Send + Any {
    /// Where a pool's segment will run.
    fn address(&self, pool: SegmentKind) -> ExecutorAddr;

    /// The segment's bytes, as long as the plan said.
    fn working(&mut self, pool: SegmentKind) -> &mut [u8];

    /// Where a section of [`SegmentPlan::apart`] will stand; null for one that was not planned, or if this kind of memory
    /// places nothing apart.
    fn apart_address(&self, index: usize) -> ExecutorAddr {
        let _ = index;
        ExecutorAddr::NULL
    }

    /// The bytes of a section of [`SegmentPlan::apart`], as long as the plan said; empty for one that was not planned, or
    /// if this kind of memory places nothing apart.
    fn apart(&mut self, index: usize) -> &mut [u8] {
        let _ = index;
        &mut []
    }

    /// Where the scratch memory stands; null if none was planned, or if this kind of memory has none.
    fn scratch_address(&self) -> ExecutorAddr {
        ExecutorAddr::NULL
    }

    /// The scratch memory, as long as the plan said; empty if this kind of memory has none. It is given back by
    /// finalising and by abandoning.
    fn scratch(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Seals the memory and lets the unwinder know of `frames`. Those that do not start in this allocation's code are
    /// left out.
    ///
    /// # Errors
    /// When more frames were found than planned; the memory is given back.
    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>>;
}

/// Memory that code lives in. Dropping it frees it: only when nothing runs it, or points into it, any more.
///
/// Its methods may be called under locks of the session: they answer from what they know, and call nothing of the session. It is
/// dropped with no lock held.
#[must_use = "dropping a finalized allocation frees it"]
pub trait Finalized: Send + Sync {
    /// Where a pool's segment stands.
    fn address(&self, pool: SegmentKind) -> ExecutorAddr;

    /// Where a section of [`SegmentPlan::apart`] stands; null for one that was not planned.
    fn apart_address(&self, index: usize) -> ExecutorAddr {
        let _ = index;
        ExecutorAddr::NULL
    }

    /// What it holds.
    fn usage(&self) -> MemoryUsage;

    /// A word of the data segment, which running code reads and this process may change meanwhile. `None` when `offset` is
    /// not a multiple of eight inside the segment, or if nobody reads what is in this memory. It stands where it is for as
    /// long as `self` lives.
    fn word(&self, offset: u64) -> Option<&MappedU64>;
}

/// What something holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// How many allocations: those of links, and of stubs.
    pub allocations: u64,
    /// Machine code asked for.
    pub code: u64,
    /// Constants and tables asked for.
    pub read_only: u64,
    /// Data and zero-fill asked for.
    pub data: u64,
    /// What is really held for them: with padding, and the frame table's slots.
    pub reserved: u64,
    /// The allocation records themselves.
    pub metadata: u64,
}

impl MemoryUsage {
    /// Bytes that go away with it: reserved and metadata.
    pub fn total(&self) -> u64 {
        self.reserved + self.metadata
    }

    /// Bytes asked for.
    pub fn requested(&self) -> u64 {
        self.code + self.read_only + self.data
    }
}

impl std::ops::AddAssign for MemoryUsage {
    fn add_assign(&mut self, other: MemoryUsage) {
        self.allocations += other.allocations;
        self.code += other.code;
        self.read_only += other.read_only;
        self.data += other.data;
        self.reserved += other.reserved;
        self.metadata += other.metadata;
    }
}

impl std::ops::SubAssign for MemoryUsage {
    fn sub_assign(&mut self, other: MemoryUsage) {
        self.allocations -= other.allocations;
        self.code -= other.code;
        self.read_only -= other.read_only;
        self.data -= other.data;
        self.reserved -= other.reserved;
        self.metadata -= other.metadata;
    }
}

impl std::iter::Sum for MemoryUsage {
    fn sum<I: Iterator<Item = MemoryUsage>>(usages: I) -> MemoryUsage {
        usages.fold(MemoryUsage::default(), |mut sum, usage| {
            sum += usage;
            sum
        })
    }
}

/// What a memory manager holds, exactly, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStatistics {
    /// Windows mapped.
    pub windows: usize,
    /// Allocations in flight and finalized.
    pub allocations: usize,
    /// Bytes asked for by those.
    pub live_bytes: u64,
    /// Bytes held for those: with padding, and the frame table's slots.
    pub reserved_bytes: u64,
    /// Bytes of the pools in use at some time since they were mapped: what the kernel may back with pages.
    pub opened_bytes: u64,
    /// Opened bytes that are free now.
    pub free_bytes: u64,
    /// Contiguous free ranges.
    pub free_ranges: usize,
    /// Bytes of pages that the kernel may have backed: all that were in use since they were mapped or given back.
    pub resident_bytes: u64,
    /// Bytes given back to the kernel so far.
    pub returned_bytes: u64,
    /// Bytes of the frame table, and its header, that the kernel has backed: beside `resident_bytes`.
    pub frame_table_bytes: u64,
    /// Bytes of memory that the books themselves take, and the records of allocations.
    pub metadata_bytes: u64,
    /// The same by pool, in [`SegmentKind::ALL`] order.
    pub pools: [PoolStatistics; 3],
}

/// What one kind of code memory holds, over all windows, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatistics {
    /// Asked for by allocations.
    pub requested: u64,
    /// Held for them: with padding, without the frame table's slots.
    pub reserved: u64,
    /// In use at some time since the pool was mapped.
    pub opened: u64,
    /// Opened, and free now.
    pub free: u64,
    /// The longest free range.
    pub largest_free: u64,
    /// Of pages that the kernel may have backed.
    pub resident: u64,
}

impl PoolStatistics {
    /// Which share of what is free is not in the longest free range; 0 when nothing is free.
    pub fn fragmentation(&self) -> f64 {
        fragmentation(self.largest_free, self.free)
    }
}

/// `1 - largest / free`.
pub(crate) fn fragmentation(largest_free: u64, free: u64) -> f64 {
    if free == 0 { 0.0 } else { 1.0 - largest_free as f64 / free as f64 }
}
