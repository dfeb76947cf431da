//! [`SlabFragmentation`]: who keeps a slab from going back to the kernel, and what that costs.
//!
//! Free memory on resident pages is stranded as long as something lives beside it. Few small modules in many slabs are the
//! worst case; whoever finds them here can remove them, or link them again, and has the slabs back.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::memory::memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant};

/// A slab that holds something live, and resident bytes that hold nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabFragmentation {
    /// The slab's first byte.
    pub slab: ExecutorAddr,
    /// Its pool.
    pub pool: SegmentKind,
    /// Resident bytes that hold nothing live.
    pub stranded_bytes: u64,
    /// Bytes held by those that live there.
    pub live_bytes: u64,
    /// Of those, bytes asked for.
    pub requested_bytes: u64,
    /// Who lives there, by position in [`MemoryMap::tenants`], without those that nobody has named.
    pub by: Vec<usize>,
}

impl MemoryMap {
    /// Slabs with stranded bytes and what lives in them, those that strand most first.
    pub fn fragmentation_by(&self) -> Vec<SlabFragmentation> {
        let slabs = self.pools().flat_map(|pool| pool.slabs.iter().map(move |slab| (pool, slab)));
        let stranded = slabs.filter(|(_, slab)| slab.stranded_bytes > 0 && slab.live_bytes > 0);
        let mut found: Vec<SlabFragmentation> = stranded.map(|(pool, slab)| self.stranding(pool, slab)).collect();
        found.sort_by_key(|stranding| (std::cmp::Reverse(stranding.stranded_bytes), stranding.slab));
        found
    }

    fn stranding(&self, pool: &PoolMap, slab: &SlabMap) -> SlabFragmentation {
        let tenants = pool.ranges_in(slab).iter().filter(|range| range.is_live).filter_map(|range| range.tenant);
        let mut by: Vec<usize> = tenants.collect();
        by.sort_unstable();
        by.dedup();
        SlabFragmentation {
            slab: slab.start,
            pool: pool.pool,
            stranded_bytes: slab.stranded_bytes,
            live_bytes: slab.live_bytes,
            requested_bytes: pool.requested_bytes(slab, &self.tenants),
            by,
        }
    }
}

impl PoolMap {
    /// Bytes of a slab that its tenants have asked for: without padding, without the frame table's slots, and without those
    /// whom nobody has named.
    pub fn requested_bytes(&self, slab: &SlabMap, tenants: &[Tenant]) -> u64 {
        let asked = |range: &MemoryRange| {
            let (start, size) = tenants.get(range.tenant?)?.segments[self.pool.index()];
            let end = start.offset(size).min(slab.end());
            Some(end.value().saturating_sub(start.max(slab.start).value()))
        };
        self.ranges_in(slab).iter().filter_map(asked).sum()
    }
}
