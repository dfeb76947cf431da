//! [`MemoryUsage`], [`PoolStatistics`] and [`MemoryStatistics`]: the bytes that an allocation, a pool and a memory
//! manager hold.

/// Bytes of code memory that a tracker, a dylib or a resource holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// The number of allocations, of links and of stubs.
    pub allocations: u64,
    /// Requested machine code.
    pub code: u64,
    /// Requested constants and tables.
    pub read_only: u64,
    /// Requested data, with zero-fill.
    pub data: u64,
    /// Reserved for all of them, with padding and the slots of the frame table.
    pub reserved: u64,
    /// The allocation records themselves.
    pub metadata: u64,
}

impl MemoryUsage {
    /// Bytes that are free when it is dropped: reserved and metadata.
    pub fn total(&self) -> u64 {
        self.reserved + self.metadata
    }

    /// Requested bytes: code, read-only and data.
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

/// What a memory manager holds. The numbers are exact, but those of different shards may be of slightly different
/// moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStatistics {
    /// Mapped windows.
    pub windows: usize,
    /// Allocations, in flight and finalized.
    pub allocations: usize,
    /// Bytes that the allocations requested.
    pub live_bytes: u64,
    /// Bytes reserved for the allocations, with padding and the slots of the frame table.
    pub reserved_bytes: u64,
    /// Bytes of the open slabs. Only in these can the kernel have backed pages.
    pub opened_bytes: u64,
    /// Free bytes of the open slabs.
    pub free_bytes: u64,
    /// Contiguous free ranges.
    pub free_ranges: usize,
    /// Bytes of pages that the kernel may have backed: pages used since they were mapped or last returned to the
    /// kernel.
    pub resident_bytes: u64,
    /// Bytes returned to the kernel so far.
    pub returned_bytes: u64,
    /// Bytes of the header and the frame table that the kernel has backed. `resident_bytes` does not include them.
    pub frame_table_bytes: u64,
    /// Heap memory of the allocator: its tables, and the records of the allocations.
    pub metadata_bytes: u64,
    /// The same for each pool, in [`SegmentKind::ALL`](crate::base::SegmentKind::ALL) order.
    pub pools: [PoolStatistics; 3],
}

/// What one pool holds in all windows together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatistics {
    /// Requested by allocations.
    pub requested: u64,
    /// Reserved for the allocations, with padding and without the slots of the frame table.
    pub reserved: u64,
    /// In open slabs.
    pub opened: u64,
    /// Free in open slabs.
    pub free: u64,
    /// The longest free range.
    pub largest_free: u64,
    /// In pages that the kernel may have backed.
    pub resident: u64,
}

impl PoolStatistics {
    /// The share of the free bytes that is outside the longest free range; 0 if nothing is free.
    pub fn fragmentation(&self) -> f64 {
        fragmentation(self.largest_free, self.free)
    }
}

/// `1 - largest_free / free`; 0 if nothing is free.
pub(crate) fn fragmentation(largest_free: u64, free: u64) -> f64 {
    if free == 0 { 0.0 } else { 1.0 - largest_free as f64 / free as f64 }
}
