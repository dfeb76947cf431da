//! [`PurgeScan`]: which free pages of a shard a purge reserves next. Arithmetic only.
//!
//! A *scan* lists the free ranges that have pages to purge. A *batch* reserves pages of listed ranges. Purged ranges stay
//! free, so a scan for each batch would visit them all again, and the cost would grow with the square of their number.
//!
//! Between two batches, other threads may change a listed range. A batch skips such a range; the next scan lists what is
//! left of it. The purge is complete when a scan lists nothing.

use std::ops::Range;

use crate::base::SegmentKind;
use crate::memory::free_space::{FreeRange, RangeId};
use crate::memory::page_set::PageSet;
use crate::memory::shard::{PoolSpace, Shard};
use crate::os::page_size;

/// The boundaries of the slabs of a pool, in pages from the start of the pool. Slabs open from the end of the pool, so
/// the boundaries are counted from there.
#[derive(Clone, Copy)]
pub(super) struct SlabGrid {
    slab: u32,
    /// The first boundary. No entire slab lies below it.
    first: u32,
}

impl SlabGrid {
    /// The grid of a pool of these bytes, with pages of `page` bytes.
    pub(super) fn new(pool_size: u64, slab_size: u64, page: u64) -> SlabGrid {
        SlabGrid { slab: (slab_size / page) as u32, first: (pool_size % slab_size / page) as u32 }
    }

    /// The last boundary at or before `page`, or the start of the pool.
    fn before(self, page: u32) -> u32 {
        page.checked_sub(self.first).map_or(0, |above| self.first + above / self.slab * self.slab)
    }

    /// The first boundary at or after `page`.
    fn after(self, page: u32) -> u32 {
        self.first + page.saturating_sub(self.first).next_multiple_of(self.slab)
    }

    /// The entire slabs in a run of pages.
    fn entire(self, pages: &Range<u32>) -> Range<u32> {
        let start = self.after(pages.start);
        start..self.before(pages.end).max(start)
    }

    pub(super) fn count_entire(self, pages: &Range<u32>) -> usize {
        self.entire(pages).len() / self.slab as usize
    }
}

/// Pages that a purge has reserved, so that they are not handed out.
pub(super) struct PurgeRange {
    pub(super) pool: SegmentKind,
    pub(super) id: RangeId,
    pub(super) pages: Range<u32>,
}

/// Which pages a purge takes.
#[derive(Clone, Copy)]
pub(super) struct PurgeScope<'a> {
    /// The purge takes only pieces of at least this many pages. If a slab has this many pages, the purge takes only
    /// entire slabs.
    pub(super) min_pages: u32,
    /// By pool. `None` for a pool whose pages stay.
    pub(super) grids: [Option<SlabGrid>; 3],
    /// If given, the purge takes of each piece only the pages from the first to the last one that is used and in this
    /// set.
    pub(super) before: Option<&'a [PageSet; 3]>,
}

/// The free ranges of a shard that the last scan has listed, and no batch has taken.
pub(super) struct PurgeScan<'a> {
    scope: PurgeScope<'a>,
    /// By pool. Lists of fixed capacity: a scan runs under the lock of the shard, and allocates nothing there.
    listed: [Vec<FreeRange>; 3],
}

impl<'a> PurgeScan<'a> {
    /// `counts` are the numbers of free ranges by pool.
    pub(super) fn new(scope: PurgeScope<'a>, counts: [usize; 3]) -> PurgeScan<'a> {
        PurgeScan { scope, listed: counts.map(|count| Vec::with_capacity(count.max(MAX_BATCH_RANGES))) }
    }

    /// Reserves the pages of the next batch. Empty if the shard has no more pages to purge.
    pub(super) fn next_batch(&mut self, shard: &mut Shard) -> Vec<PurgeRange> {
        let ranges = self.take_listed(shard);
        if !ranges.is_empty() {
            return ranges;
        }
        for pool in SegmentKind::ALL {
            let space = &shard.spaces[pool.index()];
            let Some(grid) = self.scope.grids[pool.index()] else { continue };
            let (scope, listed) = (self.scope, &mut self.listed[pool.index()]);
            let long_ranges = space.free.long_ranges(scope.min_pages.saturating_mul(space.granules_per_page));
            let to_purge = long_ranges.filter(|range| !scope.pages(space, pool, grid, range).is_empty());
            listed.extend(to_purge.take(listed.capacity() - listed.len()));
        }
        self.take_listed(shard)
    }

    /// Reserves pages of listed ranges, until a batch is full.
    fn take_listed(&mut self, shard: &mut Shard) -> Vec<PurgeRange> {
        let mut ranges = Vec::new();
        let slab = self.scope.grids.iter().flatten().map(|grid| grid.slab).max().unwrap_or(0);
        let mut pages_left = max_batch_pages().max(slab);
        for pool in SegmentKind::ALL {
            let Some(grid) = self.scope.grids[pool.index()] else { continue };
            let space = &mut shard.spaces[pool.index()];
            let mut ranges_left = MAX_BATCH_RANGES;
            while let Some(range) = self.listed[pool.index()].pop_if(|_| ranges_left > 0 && pages_left > 0) {
                if !space.free.is_free_range(&range) {
                    continue;
                }
                let mut pages = self.scope.pages(space, pool, grid, &range);
                // A batch that is full ends where a slab ends: a slab in two batches would count in neither of them.
                let last = pages.start + pages_left;
                if pages.end > last {
                    pages.end = grid.before(last).max(pages.start);
                    pages_left = pages.len() as u32;
                }
                if pages.is_empty() {
                    continue;
                }
                pages_left -= pages.len() as u32;
                ranges_left -= 1;
                let granules = pages.len() as u32 * space.granules_per_page;
                let id = space.free.carve(range.0, pages.start * space.granules_per_page, granules);
                space.purging += granules;
                ranges.push(PurgeRange { pool, id, pages });
            }
        }
        ranges
    }
}

impl PurgeScope<'_> {
    /// The pages to purge in a free range of a pool.
    fn pages(&self, space: &PoolSpace, pool: SegmentKind, grid: SlabGrid, range: &FreeRange) -> Range<u32> {
        let only_slabs = self.min_pages == grid.slab;
        let full = space.full_pages(range.1, range.2);
        let full = if only_slabs { grid.entire(&full) } else { full };
        match space.pages.extent_in(full, self.before.map(|before| &before[pool.index()])) {
            Some(pages) if only_slabs => grid.before(pages.start)..grid.after(pages.end),
            pages => pages.unwrap_or_default(),
        }
    }
}

/// The greatest number of pages of a batch: 4 MiB. No thread can allocate them while they are reserved.
fn max_batch_pages() -> u32 {
    ((4 << 20) / page_size()) as u32
}

/// The greatest number of ranges of a batch in each pool.
const MAX_BATCH_RANGES: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sized;
    use crate::memory::layout::CHUNK;

    /// Purges a shard of the code pool that has `count` free used pages with a live page between each two. Returns the
    /// purged pages, and how many free ranges the scans visited.
    fn purge(count: u32) -> (u32, usize) {
        let mut shard = Shard::new([0; 3]);
        let space = &mut shard.spaces[SegmentKind::Code.index()];
        let slab = (CHUNK / page_size()) as u32;
        let pages = (2 * count).next_multiple_of(slab);
        space.free.add(0, pages * space.granules_per_page);
        let ids: Vec<_> = (0..pages).map(|_| space.free.allocate(space.granules_per_page, 1).unwrap().0).collect();
        ids.iter().step_by(2).take(count as usize).for_each(|id| space.free.free(*id));
        space.pages.insert(0..pages);
        let grid = SlabGrid::new(u64::from(pages) * page_size(), CHUNK, page_size());
        let scope = PurgeScope { min_pages: 1, grids: [Some(grid), None, None], before: None };
        let mut scan = PurgeScan::new(scope, [shard.spaces[0].free.free_ranges(), 0, 0]);
        let before = shard.spaces[0].free.visited_ranges();
        let mut purged = 0;
        loop {
            let batch = scan.next_batch(&mut shard);
            if batch.is_empty() {
                return (purged, shard.spaces[0].free.visited_ranges() - before);
            }
            let space = &mut shard.spaces[SegmentKind::Code.index()];
            for range in batch {
                purged += space.pages.remove(range.pages.clone());
                space.purging -= range.pages.len() as u32 * space.granules_per_page;
                space.free.free(range.id);
            }
        }
    }

    #[test]
    fn a_purge_visits_each_free_range_twice_however_many_there_are() {
        for count in [1, 64, 65, 1000, 10_000].into_iter().take(sized(5, 3)) {
            assert_eq!(purge(count), (count, 2 * count as usize), "once to list it, once to find nothing more");
        }
    }

    #[test]
    fn slabs_are_counted_from_the_end_of_the_pool_with_pages_of_every_size() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let slab = (CHUNK / page) as u32;
            // The lowest slab is one of half a chunk.
            let grid = SlabGrid::new(2 * CHUNK + CHUNK / 2, CHUNK, page);
            let bounds = [0, slab / 2, slab / 2 + slab, slab / 2 + 2 * slab];
            assert_eq!((grid.before(bounds[1] - 1), grid.before(bounds[2] - 1)), (bounds[0], bounds[1]), "{page}");
            assert_eq!((grid.after(bounds[1] + 1), grid.after(1)), (bounds[2], bounds[1]), "{page}");
            assert_eq!((grid.count_entire(&(0..bounds[3])), grid.count_entire(&(1..bounds[3] - 1))), (2, 1), "{page}");
        }
    }

    #[test]
    fn a_listed_range_that_another_thread_has_changed_is_purged_after_the_next_scan() {
        let mut shard = Shard::new([0; 3]);
        let space = &mut shard.spaces[SegmentKind::Code.index()];
        let per_page = space.granules_per_page;
        space.free.add(0, 512 * per_page);
        let ids: Vec<_> = (0..512).map(|_| space.free.allocate(per_page, 1).unwrap().0).collect();
        ids.iter().step_by(2).for_each(|id| space.free.free(*id));
        space.pages.insert(0..512);
        let grid = SlabGrid::new(512 * page_size(), CHUNK, page_size());
        let scope = PurgeScope { min_pages: 1, grids: [Some(grid), None, None], before: None };
        let mut scan = PurgeScan::new(scope, [256, 0, 0]);
        let mut purged = 0;
        for round in 0.. {
            let batch = scan.next_batch(&mut shard);
            if batch.is_empty() {
                break;
            }
            let space = &mut shard.spaces[SegmentKind::Code.index()];
            for range in batch {
                purged += space.pages.remove(range.pages);
                space.free.free(range.id);
            }
            if round == 0 {
                // Frees all other pages, so that every listed range merges with its neighbours.
                ids.iter().skip(1).step_by(2).for_each(|id| space.free.free(*id));
            }
        }
        assert_eq!((purged, shard.spaces[SegmentKind::Code.index()].pages.count()), (512, 0));
    }
}
