//! [`SlabFragmentation`]: the allocations that keep a slab from returning to the kernel, and the bytes that this costs.
//!
//! Resident free memory cannot return to the kernel while something lives on the same page. The worst case is many
//! slabs with a few small modules in each. A program that removes these modules, or links them again, can return the
//! slabs.

use crate::base::{ExecutorAddr, SegmentKind, pair, sort_by_number};
use crate::memory::memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant};

/// A slab that has live ranges, and resident bytes in free ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabFragmentation {
    /// The first byte of the slab.
    pub slab: ExecutorAddr,
    /// The pool of the slab.
    pub pool: SegmentKind,
    /// Resident bytes in free ranges.
    pub fragmented_bytes: u64,
    /// Bytes reserved by the allocations in the slab.
    pub live_bytes: u64,
    /// Bytes that these allocations requested.
    pub requested_bytes: u64,
    /// The owners of these allocations, as indices of [`MemoryMap::tenants`], without unknown owners.
    pub tenants: Vec<usize>,
}

impl MemoryMap {
    /// The slabs that have both live ranges and fragmented bytes. The slab with most fragmented bytes comes first.
    pub fn fragmented_slabs(&self) -> Vec<SlabFragmentation> {
        let slabs = self.pools().flat_map(|pool| pool.slabs.iter().map(move |slab| (pool, slab)));
        let fragmented = slabs.filter(|(_, slab)| slab.fragmented_bytes > 0 && slab.live_bytes > 0);
        let mut found: Vec<SlabFragmentation> =
            fragmented.map(|(pool, slab)| self.slab_fragmentation(pool, slab)).collect();
        sort_by_number(&mut found, |slab| pair(!slab.fragmented_bytes, slab.slab.value()));
        found
    }

    fn slab_fragmentation(&self, pool: &PoolMap, slab: &SlabMap) -> SlabFragmentation {
        let tenants = pool.ranges_in(slab).iter().filter(|range| range.is_live).filter_map(|range| range.tenant);
        let mut tenants: Vec<usize> = tenants.collect();
        sort_by_number(&mut tenants, |tenant| *tenant as u128);
        tenants.dedup();
        SlabFragmentation {
            slab: slab.start,
            pool: pool.pool,
            fragmented_bytes: slab.fragmented_bytes,
            live_bytes: slab.live_bytes,
            requested_bytes: pool.requested_bytes(slab, &self.tenants),
            tenants,
        }
    }
}

impl PoolMap {
    /// Bytes of a slab that its tenants requested: without padding, without the slots of the frame table, and without
    /// allocations whose owner is unknown.
    pub fn requested_bytes(&self, slab: &SlabMap, tenants: &[Tenant]) -> u64 {
        let requested = |range: &MemoryRange| {
            let (start, size) = tenants.get(range.tenant?)?.segments[self.pool.index()];
            let end = start.offset(size).min(slab.end());
            Some(end.value().saturating_sub(start.max(slab.start).value()))
        };
        self.ranges_in(slab).iter().filter_map(requested).sum()
    }
}
