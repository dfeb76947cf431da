//! [`MemoryMap`]: the slabs and ranges of all windows, with the names of their owners. For display.
//!
//! `window_map.rs` makes the map of a window, `map_text.rs` and `map_svg.rs` draw it. The pools know ranges and no
//! names. The caller that allocated the ranges adds the names with [`MemoryMap::attribute`]. Slabs are shown as chunks
//! of 2 MiB, each of which belongs to one shard.
//!
//! ```text
//!   pool    … unopened [ slab, shard 0          ][ slab, shard 1          ][ slab, shard 0   ]
//!   ranges             [live a][free ][live b][free        ][live c ][free                   ]
//!   pages              ■■■■■■■■■■■■■■■■■■■■■■□□□□□■■■■□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□    ■ resident
//!                             fragmented: resident and in a free range
//! ```

use crate::base::{ExecutorAddr, SegmentKind};
use crate::memory::allocation::Finalized;
use crate::memory::statistics::fragmentation;
use crate::sync::Arc;

/// The map of all windows of a memory manager.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.link_object(&tracker, "add.o", ADD)?;
/// let map = jit.memory_map().expect("the default memory manager provides a map");
/// assert!(map.tenants.iter().any(|tenant| &*tenant.name == "add.o"));
/// println!("{}", map.to_text());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryMap {
    /// The windows, in the order in which they were mapped.
    pub windows: Vec<WindowMap>,
    /// The owners of ranges, as far as they are known.
    pub tenants: Vec<Tenant>,
}

/// The map of one window.
#[derive(Debug, Clone)]
pub struct WindowMap {
    /// Its first byte.
    pub base: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// How it is mapped, in a few words. See [`MappedWindow::description`](crate::memory::MappedWindow::description).
    pub description: &'static str,
    /// Bytes of its header and of the used part of its frame table.
    pub frame_table_bytes: u64,
    /// Its pools, in [`SegmentKind::ALL`] order.
    pub pools: [PoolMap; 3],
}

/// The map of one pool of a window.
#[derive(Debug, Clone)]
pub struct PoolMap {
    /// Which pool it is.
    pub pool: SegmentKind,
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// Its open slabs, in order of address.
    pub slabs: Vec<SlabMap>,
    /// The ranges of the slabs, in order of address, without gap or overlap. A range may span several slabs of one
    /// shard.
    pub ranges: Vec<MemoryRange>,
    /// Runs of pages that the kernel may have backed, in order of address: start, and size in bytes.
    pub resident: Vec<(ExecutorAddr, u64)>,
}

/// 2 MiB of a pool, or the open part of the lowest slab of code. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabMap {
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size.
    pub size: u64,
    /// The shard that owns it.
    pub shard: usize,
    /// Reserved by allocations.
    pub live_bytes: u64,
    /// Bytes in free ranges.
    pub free_bytes: u64,
    /// Bytes of pages that the kernel may have backed.
    pub resident_bytes: u64,
    /// Resident bytes in free ranges.
    pub fragmented_bytes: u64,
    /// Fragmented bytes in entire free pages, which [`release_free`](crate::memory::MemoryManager::release_free)
    /// returns to the kernel. The other fragmented bytes share their pages with live ranges.
    pub returnable_bytes: u64,
    /// The longest part of a free range in it.
    pub largest_free: u64,
    /// The number of live ranges that begin in it.
    pub allocations: usize,
}

/// A live or a free range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// Whether an allocation owns it.
    pub is_live: bool,
    /// Its bytes on pages that the kernel may have backed.
    pub resident_bytes: u64,
    /// Its owner, as an index of [`MemoryMap::tenants`]. `None` for a free range, or if the owner is unknown.
    pub tenant: Option<usize>,
}

/// The owner of some ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name: that of the object of a module.
    pub name: Arc<str>,
    /// The group that it belongs to: the dylib of a module. A group has one colour.
    pub group: Arc<str>,
    /// The key of the tracker whose removal frees it.
    pub owner: Arc<str>,
    /// The starts and requested sizes of its segments, in [`SegmentKind::ALL`] order.
    pub segments: [(ExecutorAddr, u64); 3],
}

impl Tenant {
    /// The tenant of `memory`.
    pub fn of(memory: &dyn Finalized, name: Arc<str>, group: Arc<str>, owner: Arc<str>) -> Tenant {
        let usage = memory.usage();
        let sizes = [usage.code, usage.read_only, usage.data];
        Tenant {
            name,
            group,
            owner,
            segments: SegmentKind::ALL.map(|pool| (memory.address(pool), sizes[pool.index()])),
        }
    }

    /// Requested bytes of all pools.
    pub fn requested_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, size)| size).sum()
    }
}

impl MemoryMap {
    /// Adds owners. A tenant owns the live ranges at the starts of its segments. A tenant whose memory is not in the
    /// map, because it was allocated later or is free by now, stays in the list without a range.
    pub fn attribute(&mut self, tenants: impl IntoIterator<Item = Tenant>) {
        for tenant in tenants {
            let index = self.tenants.len();
            for window in &mut self.windows {
                for (pool, (start, size)) in window.pools.iter_mut().zip(tenant.segments) {
                    if size > 0 {
                        pool.attribute(start, index);
                    }
                }
            }
            self.tenants.push(tenant);
        }
    }

    /// Bytes reserved by allocations, in all windows.
    pub fn live_bytes(&self) -> u64 {
        self.pools().map(PoolMap::live_bytes).sum()
    }

    /// All pools of all windows.
    pub fn pools(&self) -> impl Iterator<Item = &PoolMap> {
        self.windows.iter().flat_map(|window| &window.pools)
    }
}

impl PoolMap {
    /// Bytes of the open slabs.
    pub fn opened_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.size).sum()
    }

    /// Bytes reserved by allocations.
    pub fn live_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.live_bytes).sum()
    }

    /// Free bytes of the open slabs.
    pub fn free_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.free_bytes).sum()
    }

    /// Bytes of pages that the kernel may have backed.
    pub fn resident_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.resident_bytes).sum()
    }

    /// Resident bytes in free ranges.
    pub fn fragmented_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.fragmented_bytes).sum()
    }

    /// The longest free range, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.free_ranges().map(|range| range.size).max().unwrap_or(0)
    }

    /// The free ranges, in order of address.
    pub fn free_ranges(&self) -> impl Iterator<Item = &MemoryRange> {
        self.ranges.iter().filter(|range| !range.is_live)
    }

    /// The number of allocations that own a part of the pool.
    pub fn allocations(&self) -> usize {
        self.slabs.iter().map(|slab| slab.allocations).sum()
    }

    /// The share of the free bytes of the open slabs that is outside the longest free range; 0 if nothing is free.
    pub fn fragmentation(&self) -> f64 {
        fragmentation(self.largest_free(), self.free_bytes())
    }

    /// The ranges that overlap a slab.
    pub fn ranges_in(&self, slab: &SlabMap) -> &[MemoryRange] {
        let end = slab.start.offset(slab.size);
        let from = self.ranges.partition_point(|range| range.end() <= slab.start);
        let to = self.ranges.partition_point(|range| range.start < end);
        &self.ranges[from..to.max(from)]
    }

    /// The ranges to draw: as [`ranges_in`](Self::ranges_in), but each free range is split into resident and other
    /// pieces.
    pub(crate) fn pieces_in(&self, slab: &SlabMap) -> Vec<MemoryRange> {
        let mut pieces = Vec::new();
        for range in self.ranges_in(slab) {
            if range.is_live || range.resident_bytes == 0 || range.resident_bytes == range.size {
                pieces.push(*range);
            } else {
                self.split_by_residency(range, slab, &mut pieces);
            }
        }
        pieces
    }

    /// Splits the part of a free range in a slab into resident and other pieces. Only that part: a split from the start
    /// of the range on, for each slab, would cost the square of the number of slabs.
    fn split_by_residency(&self, range: &MemoryRange, slab: &SlabMap, pieces: &mut Vec<MemoryRange>) {
        let (start, end) = (range.start.max(slab.start), range.end().min(slab.end()));
        let mut push = |from: ExecutorAddr, to: ExecutorAddr, is_resident: bool| {
            if from < to {
                let size = to.value() - from.value();
                pieces.push(MemoryRange {
                    start: from,
                    size,
                    resident_bytes: if is_resident { size } else { 0 },
                    ..*range
                });
            }
        };
        let mut next = start;
        let first = self.resident.partition_point(|(from, size)| from.offset(*size) <= start);
        for (start, size) in self.resident[first..].iter().take_while(|(start, _)| *start < end) {
            push(next, (*start).max(next), false);
            push((*start).max(next), start.offset(*size).min(end), true);
            next = start.offset(*size).min(end);
        }
        push(next, end, false);
    }

    fn attribute(&mut self, start: ExecutorAddr, tenant: usize) {
        if let Ok(index) = self.ranges.binary_search_by_key(&start, |range| range.start)
            && self.ranges[index].is_live
        {
            self.ranges[index].tenant = Some(tenant);
        }
    }
}

impl MemoryRange {
    /// The first byte after it.
    pub fn end(&self) -> ExecutorAddr {
        self.start.offset(self.size)
    }
}

impl SlabMap {
    /// The first byte after it.
    pub fn end(&self) -> ExecutorAddr {
        self.start.offset(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_slab_are_those_in_it_however_many_slabs_a_free_range_spans() {
        const SLAB: u64 = 2 << 20;
        const RUNS: u64 = 16;
        let at = ExecutorAddr::new;
        let slab = |index: u64| SlabMap {
            start: at(index * SLAB),
            size: SLAB,
            shard: 0,
            live_bytes: 0,
            free_bytes: SLAB,
            resident_bytes: SLAB / 2,
            fragmented_bytes: SLAB / 2,
            returnable_bytes: SLAB / 2,
            largest_free: SLAB,
            allocations: 0,
        };
        let (count, run) = (20, SLAB / RUNS / 2);
        let range = MemoryRange {
            start: at(0),
            size: count * SLAB,
            is_live: false,
            resident_bytes: count * SLAB / 2,
            tenant: None,
        };
        let pool = PoolMap {
            pool: SegmentKind::Data,
            start: at(0),
            size: count * SLAB,
            slabs: (0..count).map(slab).collect(),
            ranges: vec![range],
            resident: (0..count * RUNS).map(|index| (at(index * 2 * run), run)).collect(),
        };
        for slab in &pool.slabs {
            let pieces = pool.pieces_in(slab);
            assert_eq!(pieces.len() as u64, 2 * RUNS, "a resident piece and another one for each run");
            assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end()), (slab.start, slab.end()));
            assert!(pieces.windows(2).all(|pair| pair[0].end() == pair[1].start));
        }
    }
}
