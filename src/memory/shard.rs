//! [`Shard`]: the free space and the used pages of one part of a window, as plain data.
//!
//! A window has as many shards as threads are likely to link at the same time. Each shard owns entire slabs of every
//! pool, so two threads that link on different shards share no cache line. The memory of an allocation returns to the
//! shard that it came from, whichever thread frees it.
//!
//! A lock guards each shard (`window.rs`). Under that lock there is only arithmetic: no system call is made and no page
//! of the window is touched. So [`Shard::reserve`] only *lists* the bytes to zero and the pages to populate.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::SegmentKind;
use crate::memory::free_space::{FreeSpace, RangeId};
use crate::memory::layout::{CHUNK, granule_size, reserved_bytes_per_granule};
use crate::memory::page_set::PageSet;
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::memory::statistics::PoolStatistics;
use crate::os::page_size;

pub(crate) struct Shard {
    pub(crate) spaces: [PoolSpace; 3],
    /// The number of allocations, by the number of pools from which they have memory.
    pub(crate) allocations: [usize; 4],
    /// Requested bytes by pool.
    pub(crate) requested: [u64; 3],
    /// Bytes freed to this shard since the last check for pages to purge.
    pub(crate) freed_bytes: u64,
}

/// The part of one pool that a shard owns.
pub(crate) struct PoolSpace {
    pub(crate) free: FreeSpace,
    /// The pages that the kernel may have backed. All other pages are zero.
    pub(crate) pages: PageSet,
    /// Granules that are being returned to the kernel. The free space counts them as used, but no allocation owns them.
    pub(crate) purging: u32,
    pub(crate) granules_per_page: u32,
    /// How many pages to populate at one time:
    /// [`MappedWindow::pages_to_populate`](crate::memory::MappedWindow::pages_to_populate).
    populate_at_once: u32,
}

/// The part of one pool that an allocation owns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolSpan {
    /// `None` if the allocation owns nothing of the pool.
    pub(crate) id: Option<RangeId>,
    /// In granules from the start of the pool.
    pub(crate) offset: u32,
    pub(crate) granules: u32,
}

/// What an allocation has of one pool.
#[derive(Clone, Copy)]
pub(crate) struct PoolPart {
    pub(crate) span: PoolSpan,
    /// Requested bytes. No pool is larger than 4 GiB.
    pub(crate) size: u32,
}

/// What an allocation has of the pools from which it has memory.
#[derive(Clone, Copy)]
pub(crate) struct PoolParts<'a> {
    pub(crate) parts: &'a [PoolPart],
    /// The pool of each part.
    pub(crate) pools: &'a [SegmentKind],
}

/// `(granules, alignment in granules)` by pool.
pub(crate) type Request = [(u32, u32); 3];

/// Byte ranges to zero before an allocation is handed out, as offsets in the span of the pool.
pub(crate) type ToZero = SmallVec<[(SegmentKind, Range<u64>); 1]>;

/// Runs of pages of a pool to populate at one time. Some of them may have contents already.
pub(crate) type ToPopulate = SmallVec<[(SegmentKind, Range<u32>); 1]>;

/// What a shard has reserved for one allocation.
pub(crate) struct Reservation {
    pub(crate) spans: [PoolSpan; 3],
    pub(crate) to_zero: ToZero,
    pub(crate) to_populate: ToPopulate,
    /// Whether the shard has so many live bytes that freed memory is in no near cache.
    pub(crate) is_cold: bool,
}

/// With at most this many live bytes in a shard, freed memory is likely in a near cache, and a prefetch costs more than
/// it gains.
const CACHED_BYTES: u64 = 256 << 10;

impl Shard {
    /// `populate_at_once` is the number of pages to populate at one time, by pool.
    pub(crate) fn new(populate_at_once: [u32; 3]) -> Shard {
        let space = |pool| PoolSpace {
            free: FreeSpace::new(),
            pages: PageSet::default(),
            purging: 0,
            granules_per_page: (page_size() / granule_size(pool)) as u32,
            populate_at_once: populate_at_once[pool.index()],
        };
        Shard { spaces: SegmentKind::ALL.map(space), allocations: [0; 4], requested: [0; 3], freed_bytes: 0 }
    }

    /// Reserves memory of all pools, or of none.
    ///
    /// # Errors
    /// The first pool that has no free range of the requested length.
    pub(crate) fn reserve(&mut self, request: &Request, plan: &SegmentPlan) -> Result<Reservation, SegmentKind> {
        let mut spans = [PoolSpan::default(); 3];
        for pool in SegmentKind::ALL {
            let (granules, align) = request[pool.index()];
            if granules == 0 {
                continue;
            }
            let Some((id, offset)) = self.spaces[pool.index()].free.allocate(granules, align) else {
                self.free_spans(&spans);
                return Err(pool);
            };
            spans[pool.index()] = PoolSpan { id: Some(id), offset, granules };
        }
        let (mut to_zero, mut to_populate) = (ToZero::new(), ToPopulate::new());
        for pool in SegmentKind::ALL {
            let (span, SegmentRequest { size, zero_fill, .. }) = (&spans[pool.index()], *plan.segment(pool));
            if span.granules == 0 {
                continue;
            }
            self.requested[pool.index()] += size;
            let space = &mut self.spaces[pool.index()];
            if zero_fill > 0 {
                space.push_nonzero_ranges(pool, span, size - zero_fill..size, &mut to_zero);
            }
            if let Some(pages) = space.mark_used(pool, span) {
                to_populate.push((pool, pages));
            }
        }
        self.allocations[pool_count(&spans)] += 1;
        Ok(Reservation { spans, to_zero, to_populate, is_cold: self.live_bytes() > CACHED_BYTES })
    }

    /// Frees the memory of an allocation, which has reserved so many bytes.
    pub(crate) fn release(&mut self, parts: PoolParts<'_>, reserved_bytes: u64) {
        for (pool, part) in parts.iter() {
            if let Some(id) = part.span.id {
                self.spaces[pool.index()].free.free(id);
            }
            self.requested[pool.index()] -= u64::from(part.size);
        }
        self.allocations[parts.pools.len()] -= 1;
        self.freed_bytes += reserved_bytes;
    }

    /// Prefetches the records of an allocation that is freed next.
    pub(crate) fn prefetch(&self, parts: PoolParts<'_>) {
        for (pool, part) in parts.iter() {
            part.span.id.into_iter().for_each(|id| self.spaces[pool.index()].free.prefetch(id));
        }
    }

    /// The address of the record of the first span, if there is one.
    pub(crate) fn free_space_record(&self, parts: PoolParts<'_>) -> Option<usize> {
        let (pool, id) = parts.iter().find_map(|(pool, part)| Some((pool, part.span.id?)))?;
        Some(self.spaces[pool.index()].free.record_address(id))
    }

    fn free_spans(&mut self, spans: &[PoolSpan; 3]) {
        for (span, space) in spans.iter().zip(&mut self.spaces) {
            if let Some(id) = span.id {
                space.free.free(id);
            }
        }
    }

    /// Requested bytes of all pools.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.requested.iter().sum()
    }

    /// The bytes of `granules` of every pool, with their slots of the frame table.
    pub(crate) fn bytes(&self, granules: impl Fn(&PoolSpace) -> u32) -> u64 {
        let bytes_of =
            |pool: &SegmentKind| u64::from(granules(&self.spaces[pool.index()])) * reserved_bytes_per_granule(*pool);
        SegmentKind::ALL.iter().map(bytes_of).sum()
    }

    /// Adds this shard to the statistics of one pool.
    pub(crate) fn add_to(&self, pool: SegmentKind, sum: &mut PoolStatistics) {
        let space = &self.spaces[pool.index()];
        let bytes = |granules: u32| u64::from(granules) * granule_size(pool);
        sum.requested += self.requested[pool.index()];
        sum.reserved += bytes(space.used_granules());
        sum.opened += bytes(space.granules());
        sum.free += bytes(space.free_granules());
        sum.largest_free = sum.largest_free.max(bytes(space.free.largest_free()));
        sum.resident += u64::from(space.pages.count()) * page_size();
    }

    /// Bytes of pages that the kernel may have backed.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.spaces.iter().map(|space| u64::from(space.pages.count()) * page_size()).sum()
    }

    /// Bytes of heap memory of the shard itself.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.spaces.iter().map(|space| space.free.heap_bytes() + space.pages.heap_bytes()).sum()
    }
}

impl<'a> PoolParts<'a> {
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = (SegmentKind, &'a PoolPart)> {
        self.pools.iter().copied().zip(self.parts)
    }

    /// The part of one pool.
    #[inline]
    pub(crate) fn of(self, pool: SegmentKind) -> Option<&'a PoolPart> {
        self.iter().find(|(own, _)| *own == pool).map(|(_, part)| part)
    }

    /// Bytes that the allocation reserves in all pools, with its slots of the frame table.
    pub(crate) fn reserved_bytes(self) -> u64 {
        self.iter().map(|(pool, part)| u64::from(part.span.granules) * reserved_bytes_per_granule(pool)).sum()
    }
}

impl PoolSpace {
    pub(crate) fn granules(&self) -> u32 {
        self.free.granules()
    }

    /// Granules that allocations own.
    pub(crate) fn used_granules(&self) -> u32 {
        self.free.used_granules() - self.purging
    }

    /// Granules that no allocation owns.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free.free_granules() + self.purging
    }

    /// Adds the parts of `zero` that may have other contents to `to_zero`. Called before the span is marked as used.
    fn push_nonzero_ranges(&self, pool: SegmentKind, span: &PoolSpan, zero: Range<u64>, to_zero: &mut ToZero) {
        let start = u64::from(span.offset) * granule_size(pool);
        let zero_pages = pages_of(start + zero.start, start + zero.end);
        if !self.pages.contains_any(zero_pages.clone()) {
            return;
        }
        if zero_pages.len() as u64 * page_size() <= ZERO_UNCHECKED_BYTES {
            to_zero.push((pool, zero));
        } else {
            // Only the used pages of a large range are zeroed, so that a fresh `.bss` takes no memory.
            let in_span = |page: u32| (u64::from(page) * page_size()).saturating_sub(start).clamp(zero.start, zero.end);
            let runs = self.pages.runs_in(zero_pages);
            to_zero.extend(runs.into_iter().map(|run| (pool, in_span(run.start)..in_span(run.end))));
        }
    }

    /// Adds the pages of a span to the used pages. Returns the run of pages to populate, if any.
    #[inline]
    fn mark_used(&mut self, pool: SegmentKind, span: &PoolSpan) -> Option<Range<u32>> {
        let granule = granule_size(pool);
        let used = pages_of(u64::from(span.offset) * granule, u64::from(span.offset + span.granules) * granule);
        let is_fresh = self.pages.insert(used.clone()) > 0 && self.populate_at_once > 0;
        is_fresh.then(|| self.extend_ahead(used))
    }

    /// Extends a run of used pages by the pages after it, which the next allocations will use, and marks them as used.
    /// The extension ends at the end of the slab and at the next used page. It has at most `populate_at_once` pages
    /// together with `used`, and at most a share of all used pages.
    fn extend_ahead(&mut self, used: Range<u32>) -> Range<u32> {
        let limit = self.populate_at_once.saturating_sub(used.len() as u32);
        let limit = limit.min(self.pages.count() / POPULATE_AHEAD_DIVISOR);
        let slab_end = used.end.next_multiple_of((CHUNK / page_size()) as u32);
        let is_unused = |page: &u32| !self.pages.contains_any(*page..page + 1);
        let ahead = (used.end..slab_end).take(limit as usize).take_while(is_unused).count() as u32;
        let pages = used.start..used.end + ahead;
        self.pages.insert(pages.clone());
        pages
    }

    /// Removes a range from the space, if all of it is free and none of its pages is used. The next owner relies on
    /// pages that are zero. Returns whether the range was removed.
    pub(crate) fn withdraw(&mut self, offset: u32, granules: u32) -> bool {
        !self.pages.contains_any(self.full_pages(offset, granules)) && self.free.withdraw(offset, granules)
    }

    /// The pages that lie completely in a range.
    pub(crate) fn full_pages(&self, offset: u32, granules: u32) -> Range<u32> {
        offset.div_ceil(self.granules_per_page)..(offset + granules) / self.granules_per_page
    }
}

/// The pages of the bytes `[start, end)` of a pool.
#[inline]
fn pages_of(start: u64, end: u64) -> Range<u32> {
    (start / page_size()) as u32..((end - 1) / page_size()) as u32 + 1
}

/// From how many pools an allocation has memory.
#[inline]
pub(crate) fn pool_count(spans: &[PoolSpan; 3]) -> usize {
    spans.iter().filter(|span| span.id.is_some()).count()
}

/// The pages that are populated ahead of their use are at most the used pages divided by this number.
const POPULATE_AHEAD_DIVISOR: u32 = 4;

/// A range on at most so many bytes of pages is zeroed without checking which of its pages are zero already.
const ZERO_UNCHECKED_BYTES: u64 = 32 << 10;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::plan::SegmentRequest;

    fn slab_pages() -> u32 {
        (CHUNK / page_size()) as u32
    }

    /// Reserves entire pages of the code pool. Returns the pages to populate.
    fn to_populate(shard: &mut Shard, pages: u32) -> Option<Range<u32>> {
        let granules_per_page = shard.spaces[SegmentKind::Code.index()].granules_per_page;
        let size = u64::from(pages) * page_size();
        let plan = SegmentPlan { segments: [SegmentRequest { size, align: 1, zero_fill: 0 }; 3], ..Default::default() };
        let reservation = shard.reserve(&[(pages * granules_per_page, 1), (0, 1), (0, 1)], &plan).ok().unwrap();
        reservation.to_populate.into_iter().map(|(_, pages)| pages).next()
    }

    fn shard_of(slabs: u32, populate_at_once: u32) -> Shard {
        let mut shard = Shard::new([populate_at_once, 0, 0]);
        let space = &mut shard.spaces[SegmentKind::Code.index()];
        space.free.add(0, slabs * slab_pages() * space.granules_per_page);
        shard
    }

    #[test]
    fn fresh_pages_are_populated_a_few_at_a_time_and_at_most_a_share_of_the_used_pages() {
        let mut shard = shard_of(1, 8);
        let runs: Vec<_> = (0..60).map(|_| to_populate(&mut shard, 1)).collect();
        for (page, run) in (0..).zip(&runs) {
            let Some(run) = run else { continue };
            assert!(
                run.start == page && run.len() as u32 <= 8 && run.end - page <= 1 + (page + 1) / POPULATE_AHEAD_DIVISOR,
                "{run:?}"
            );
        }
        let populated: Vec<u32> = runs.iter().flatten().cloned().flatten().collect();
        assert!(populated.iter().copied().eq(0..populated.len() as u32), "each page once, in order: {populated:?}");
        assert!(runs.iter().filter(|run| run.is_none()).count() > 40);
        assert_eq!(shard.spaces[SegmentKind::Code.index()].pages.count(), populated.len() as u32);
    }

    #[test]
    fn populating_ahead_stops_at_the_end_of_the_slab_and_at_used_pages() {
        let mut shard = shard_of(2, 8);
        assert_eq!(to_populate(&mut shard, slab_pages() - 2), Some(0..slab_pages() - 2));
        assert_eq!(to_populate(&mut shard, 1), Some(slab_pages() - 2..slab_pages()));
        shard.spaces[SegmentKind::Code.index()].pages.insert(slab_pages() + 3..slab_pages() + 4);
        assert_eq!(to_populate(&mut shard, 2), Some(slab_pages() - 1..slab_pages() + 3));
    }

    #[test]
    fn a_mapping_that_cannot_populate_several_pages_at_once_populates_none_ahead() {
        let mut shard = shard_of(1, 0);
        assert!((0..20).all(|_| to_populate(&mut shard, 1).is_none()));
        assert_eq!(shard.spaces[SegmentKind::Code.index()].pages.count(), 20);
    }
}
