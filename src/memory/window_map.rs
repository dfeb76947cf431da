//! Makes the [`WindowMap`] of a [`Window`].
//!
//! It copies the ranges and pages of each shard under the lock of that shard, one shard after the other, and then works
//! on the copies. Links and removals wait no longer than one copy takes. So the map may show its shards at slightly
//! different moments.

use crate::base::{ExecutorAddr, SegmentKind, sort_by_number};
use crate::memory::layout::{CHUNK, complete_pages, granule_size};
use crate::memory::memory_map::{MemoryRange, PoolMap, SlabMap, WindowMap};
use crate::memory::page_set::PageSet;
use crate::memory::window::Window;
use crate::os::page_size;

/// A copy of the ranges and pages that a shard has in a pool.
struct ShardCopy {
    shard: usize,
    /// Offset and length in granules, and whether the range is in use.
    ranges: Vec<(u32, u32, bool)>,
    pages: PageSet,
}

impl Window {
    /// The map of this window, without tenants.
    pub(crate) fn map(&self) -> WindowMap {
        let mut copies: [Vec<ShardCopy>; 3] = Default::default();
        for (index, lock) in self.shards.iter().enumerate() {
            let shard = lock.0.lock();
            for (copies, space) in copies.iter_mut().zip(&shard.spaces) {
                copies.push(ShardCopy { shard: index, ranges: space.free.ranges(), pages: space.pages.clone() });
            }
        }
        let pools = SegmentKind::ALL.map(|pool| {
            let start = self.layout.pool_start(self.mapped.base(), pool);
            map_pool(pool, start, self.layout.pool(pool).size, &copies[pool.index()])
        });
        WindowMap {
            base: self.mapped.base(),
            size: self.layout.size(),
            description: self.mapped.description(),
            frame_table_bytes: self.frame_table_bytes(pools[SegmentKind::Code.index()].opened_bytes()),
            pools,
        }
    }
}

fn map_pool(pool: SegmentKind, start: ExecutorAddr, size: u64, copies: &[ShardCopy]) -> PoolMap {
    let mut all_ranges = Vec::with_capacity(copies.iter().map(|copy| copy.ranges.len()).sum());
    let mut slabs: Vec<SlabMap> = Vec::new();
    let mut resident = Vec::new();
    for ShardCopy { shard, ranges, pages } in copies {
        for (offset, granules, is_live) in ranges {
            let from = u64::from(*offset) * granule_size(pool);
            let to = from + u64::from(*granules) * granule_size(pool);
            all_ranges.push(MemoryRange {
                start: start.offset(from),
                size: to - from,
                is_live: *is_live,
                resident_bytes: resident_in(pages, from, to, page_size()),
                tenant: None,
            });
            add_to_slabs(&mut slabs, start, *shard, pages, (from, to), *is_live);
        }
        let page = page_size();
        let runs = pages.runs_in(0..(size / page) as u32).into_iter();
        resident.extend(runs.map(|run| (start.offset(u64::from(run.start) * page), run.len() as u64 * page)));
    }
    // The lowest slab of code may be open in part: from its end downwards.
    for slab in &mut slabs {
        let open_bytes = slab.live_bytes + slab.free_bytes;
        slab.start = slab.start.offset(slab.size - open_bytes);
        slab.size = open_bytes;
    }
    sort_by_number(&mut all_ranges, |range: &MemoryRange| range.start.value().into());
    sort_by_number(&mut slabs, |slab| slab.start.value().into());
    sort_by_number(&mut resident, |(start, _)| start.value().into());
    PoolMap { pool, start, size, slabs, ranges: all_ranges, resident }
}

/// Adds a range to each slab that it overlaps. The ranges of a shard come in order of address.
fn add_to_slabs(
    slabs: &mut Vec<SlabMap>,
    pool_start: ExecutorAddr,
    shard: usize,
    pages: &PageSet,
    (from, to): (u64, u64),
    is_live: bool,
) {
    for chunk in from / CHUNK..to.div_ceil(CHUNK) {
        let (chunk_start, chunk_end) = (chunk * CHUNK, (chunk + 1) * CHUNK);
        let start = pool_start.offset(chunk_start);
        if slabs.last().is_none_or(|slab| slab.start != start) {
            slabs.push(empty_slab(start, shard, resident_in(pages, chunk_start, chunk_end, page_size())));
        }
        let Some(slab) = slabs.last_mut() else { return };
        let (start, end) = (from.max(chunk_start), to.min(chunk_end));
        if is_live {
            slab.live_bytes += end - start;
            slab.allocations += usize::from(from >= chunk_start);
        } else {
            slab.free_bytes += end - start;
            slab.largest_free = slab.largest_free.max(end - start);
            slab.fragmented_bytes += resident_in(pages, start, end, page_size());
            let page = page_size();
            let complete = complete_pages(start, end - start, page);
            let complete = complete.start.div_ceil(page) as u32..complete.end.div_ceil(page) as u32;
            slab.returnable_bytes += u64::from(pages.count_in(complete)) * page;
        }
    }
}

fn empty_slab(start: ExecutorAddr, shard: usize, resident_bytes: u64) -> SlabMap {
    SlabMap {
        start,
        size: CHUNK,
        shard,
        live_bytes: 0,
        free_bytes: 0,
        resident_bytes,
        fragmented_bytes: 0,
        returnable_bytes: 0,
        largest_free: 0,
        allocations: 0,
    }
}

/// How many of the bytes `[from, to)` of a pool are on pages of the set, which have `page` bytes.
fn resident_in(pages: &PageSet, from: u64, to: u64, page: u64) -> u64 {
    if from >= to {
        return 0;
    }
    let (first, last) = ((from / page) as u32, ((to - 1) / page) as u32);
    let is_in = |index: u32| u64::from(pages.count_in(index..index + 1));
    let of_pages = u64::from(pages.count_in(first..last + 1)) * page;
    // The range may start and end inside a page.
    of_pages - is_in(first) * (from % page) - is_in(last) * ((u64::from(last) + 1) * page - to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "takes minutes, and the same steps as shorter tests")]
    #[test]
    fn resident_bytes_of_a_range_are_those_on_pages_of_the_set() {
        let mut pages = PageSet::default();
        pages.insert(1..3);
        pages.insert(4..5);
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let naive = |from: u64, to: u64| (from..to).filter(|byte| matches!(byte / page, 1 | 2 | 4)).count() as u64;
            for from in [
                0,
                1,
                page - 1,
                page,
                page + 1,
                2 * page + 808,
                3 * page - 1,
                3 * page,
                4 * page,
                5 * page - 480,
                5 * page,
            ] {
                for to in [
                    0,
                    1,
                    page,
                    page + 1,
                    2 * page,
                    3 * page,
                    3 * page + 1,
                    4 * page - 1,
                    4 * page + 1,
                    5 * page,
                    7 * page,
                ] {
                    assert_eq!(resident_in(&pages, from, to, page), naive(from, to), "{from}..{to} {page}");
                }
            }
        }
    }
}
