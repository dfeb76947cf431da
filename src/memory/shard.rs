//! [`Shard`]: the books of one part of a window. Plain data; its lock guards it, under which nothing else happens.
//!
//! A window has as many shards as threads are likely to link at once. Each owns whole slabs of every pool, opened for it
//! one by one, so two threads that link share no word. What belongs to a shard goes back to that shard, whoever gives it
//! back.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::SegmentKind;
use crate::memory::free_space::{FreeSpace, RangeId};
use crate::memory::layout::{CHUNK, DATA_GRANULE, FRAME_SLOT, PAGE, TEXT_GRANULE};
use crate::memory::manager::PoolStatistics;
use crate::memory::page_set::PageSet;
use crate::memory::plan::{PoolPlan, SegmentPlan, SegmentRequest};

pub(crate) struct Shard {
    pub(crate) spaces: [PoolSpace; 3],
    pub(crate) allocations: usize,
    /// Bytes asked for, by pool.
    pub(crate) requested: [u64; 3],
    /// Bytes given back to this shard since somebody last looked whether the kernel should have them.
    pub(crate) freed_bytes: u64,
    /// Bytes that were given back to the kernel, over all time.
    pub(crate) returned_bytes: u64,
}

/// What a shard owns of one pool.
pub(crate) struct PoolSpace {
    pub(crate) free: FreeSpace,
    pub(crate) pages: PageSet,
    /// Granules that are going back to the kernel: out of the free space meanwhile, and nobody's.
    pub(crate) returning: u32,
    /// Granules in a page.
    pub(crate) per_page: u32,
    /// Pages, as the mapping says.
    at_once: u32,
}

/// What an allocation has of one pool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolSpan {
    /// `None` when it has nothing.
    pub(crate) id: Option<RangeId>,
    /// In granules from the start of the pool.
    pub(crate) offset: u32,
    pub(crate) granules: u32,
}

/// `(granules, alignment in granules)` by pool.
pub(crate) type Request = [(u32, u32); 3];

/// What has to be zeroed of new memory, in bytes from the start of the pool's part.
pub(crate) type ToZero = SmallVec<[(SegmentKind, Range<u64>); 1]>;

/// Pages of a pool that hold nothing yet, and are to be backed at one go; some that hold something may be among them.
pub(crate) type ToPopulate = SmallVec<[(SegmentKind, Range<u32>); 1]>;

/// What is taken out of a shard's books.
pub(crate) struct Reservation {
    pub(crate) parts: [PoolSpan; 3],
    pub(crate) dirt: ToZero,
    pub(crate) fresh: ToPopulate,
    /// Whether so much is alive that no near cache has what others left here.
    pub(crate) is_far: bool,
}

/// Bytes that are alive in a shard: with fewer, what is allocated next is near still, and to ask for it takes longer than to wait.
const NEAR: u64 = 256 << 10;

impl Shard {
    /// `at_once` is how many pages of a pool are worth backing at one go.
    pub(crate) fn new(at_once: [u32; 3]) -> Shard {
        let space = |pool| PoolSpace {
            free: FreeSpace::new(),
            pages: PageSet::default(),
            returning: 0,
            per_page: (PAGE / granule(pool)) as u32,
            at_once: at_once[pool.index()],
        };
        Shard {
            spaces: SegmentKind::ALL.map(space),
            allocations: 0,
            requested: [0; 3],
            freed_bytes: 0,
            returned_bytes: 0,
        }
    }

    /// All pools or nothing; otherwise the first pool that is short.
    pub(crate) fn claim(&mut self, wanted: &Request, plan: &SegmentPlan) -> Result<Reservation, SegmentKind> {
        let mut parts = [PoolSpan::default(); 3];
        for pool in SegmentKind::ALL {
            let (granules, align) = wanted[pool.index()];
            if granules == 0 {
                continue;
            }
            let Some((id, offset)) = self.spaces[pool.index()].free.allocate(granules, align) else {
                self.put_back(&parts);
                return Err(pool);
            };
            parts[pool.index()] = PoolSpan { id: Some(id), offset, granules };
        }
        let (mut dirt, mut fresh) = (ToZero::new(), ToPopulate::new());
        for pool in SegmentKind::ALL {
            let (part, SegmentRequest { size, zero_fill, .. }) = (&parts[pool.index()], *plan.segment(pool));
            if part.granules == 0 {
                continue;
            }
            self.requested[pool.index()] += size;
            let space = &mut self.spaces[pool.index()];
            if zero_fill > 0 {
                space.note_dirt(pool, part, size - zero_fill..size, &mut dirt);
            }
            if let Some(pages) = space.note_use(pool, part) {
                fresh.push((pool, pages));
            }
        }
        self.allocations += 1;
        Ok(Reservation { parts, dirt, fresh, is_far: self.live_bytes() > NEAR })
    }

    /// Takes an allocation's memory back.
    pub(crate) fn release(&mut self, parts: &[PoolSpan; 3], plan: &PoolPlan) {
        self.put_back(parts);
        self.allocations -= 1;
        for pool in SegmentKind::ALL {
            self.requested[pool.index()] -= plan.size(pool);
        }
        self.freed_bytes += held_by(parts);
    }

    /// Asks for the records of an allocation that is given back next.
    pub(crate) fn prefetch(&self, parts: &[PoolSpan; 3]) {
        for (part, space) in parts.iter().zip(&self.spaces) {
            part.id.into_iter().for_each(|id| space.free.prefetch(id));
        }
    }

    fn put_back(&mut self, parts: &[PoolSpan; 3]) {
        for (part, space) in parts.iter().zip(&mut self.spaces) {
            if let Some(id) = part.id {
                space.free.free(id);
            }
        }
    }

    /// Bytes asked for in all pools.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.requested.iter().sum()
    }

    /// Bytes of all pools, with the slots of the frame table.
    pub(crate) fn bytes(&self, granules: impl Fn(&PoolSpace) -> u32) -> u64 {
        SegmentKind::ALL.iter().map(|pool| u64::from(granules(&self.spaces[pool.index()])) * held_bytes(*pool)).sum()
    }

    /// Adds what is held of one pool to its statistics.
    pub(crate) fn add_to(&self, pool: SegmentKind, sum: &mut PoolStatistics) {
        let space = &self.spaces[pool.index()];
        let bytes = |granules: u32| u64::from(granules) * granule(pool);
        sum.requested += self.requested[pool.index()];
        sum.reserved += bytes(space.used_granules());
        sum.opened += bytes(space.granules());
        sum.free += bytes(space.free_granules());
        sum.largest_free = sum.largest_free.max(bytes(space.free.largest_free()));
        sum.resident += u64::from(space.pages.count()) * PAGE;
    }

    /// Bytes of pages that the kernel may have backed.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.spaces.iter().map(|space| u64::from(space.pages.count()) * PAGE).sum()
    }

    /// Bytes of memory that the books themselves take.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.spaces.iter().map(|space| space.free.heap_bytes() + space.pages.heap_bytes()).sum()
    }
}

impl PoolSpace {
    pub(crate) fn granules(&self) -> u32 {
        self.free.granules()
    }

    /// Of allocations.
    pub(crate) fn used_granules(&self) -> u32 {
        self.free.used_granules() - self.returning
    }

    /// Of no allocation.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free.free_granules() + self.returning
    }

    /// Says which bytes of `zero`, of a part that was not written yet, are not zero now.
    fn note_dirt(&self, pool: SegmentKind, part: &PoolSpan, zero: Range<u64>, dirt: &mut ToZero) {
        let start = u64::from(part.offset) * granule(pool);
        let zero_pages = pages_of(start + zero.start, start + zero.end);
        if !self.pages.contains_any(zero_pages.clone()) {
            return;
        }
        if zero_pages.len() <= FEW_PAGES {
            dirt.push((pool, zero));
        } else {
            // Of a large stretch only what was used before: a fresh `.bss` costs no pages.
            let in_part = |page: u32| (u64::from(page) * PAGE).saturating_sub(start).clamp(zero.start, zero.end);
            let runs = self.pages.runs_in(zero_pages);
            dirt.extend(runs.into_iter().map(|run| (pool, in_part(run.start)..in_part(run.end))));
        }
    }

    /// Takes note that a part will be written, and says which pages are worth backing.
    #[inline]
    fn note_use(&mut self, pool: SegmentKind, part: &PoolSpan) -> Option<Range<u32>> {
        let granule = granule(pool);
        let used = pages_of(u64::from(part.offset) * granule, u64::from(part.offset + part.granules) * granule);
        let is_fresh = self.pages.insert(used.clone()) > 0 && self.at_once > 0;
        is_fresh.then(|| self.with_next(used))
    }

    /// Pages that are used, and those behind them that will be next: no more than a share of all that are in use, in the
    /// same slab, and up to where something was.
    fn with_next(&mut self, used: Range<u32>) -> Range<u32> {
        let most = self.at_once.saturating_sub(used.len() as u32).min(self.pages.count() / AHEAD_SHARE);
        let slab_end = used.end.next_multiple_of((CHUNK / PAGE) as u32);
        let is_next = |page: &u32| !self.pages.contains_any(*page..page + 1);
        let next = (used.end..slab_end).take(most as usize).take_while(is_next).count() as u32;
        let pages = used.start..used.end + next;
        self.pages.insert(pages.clone());
        pages
    }

    /// Takes a stretch out of the space, if all of it is free and nothing is in its pages: whoever gets it next takes them
    /// for zero.
    pub(crate) fn close(&mut self, offset: u32, granules: u32) -> bool {
        !self.pages.contains_any(self.whole_pages(offset, granules)) && self.free.withdraw(offset, granules)
    }

    /// The whole pages of a free range.
    pub(crate) fn whole_pages(&self, offset: u32, granules: u32) -> Range<u32> {
        offset.div_ceil(self.per_page)..(offset + granules) / self.per_page
    }
}

/// The pages that bytes of a pool stand in.
#[inline]
fn pages_of(start: u64, end: u64) -> Range<u32> {
    (start / PAGE) as u32..((end - 1) / PAGE) as u32 + 1
}

/// Bytes that an allocation holds in all pools, with the slots of the frame table.
pub(crate) fn held_by(parts: &[PoolSpan; 3]) -> u64 {
    SegmentKind::ALL.iter().map(|pool| u64::from(parts[pool.index()].granules) * held_bytes(*pool)).sum()
}

pub(crate) fn granule(pool: SegmentKind) -> u64 {
    if pool == SegmentKind::Code { TEXT_GRANULE } else { DATA_GRANULE }
}

/// Bytes that one granule of a pool holds, with its slot of the frame table.
pub(crate) fn held_bytes(pool: SegmentKind) -> u64 {
    granule(pool) + if pool == SegmentKind::Code { FRAME_SLOT } else { 0 }
}

/// What is backed ahead of its use is this share of what is used, at the most.
const AHEAD_SHARE: u32 = 4;

/// Up to so many pages are zeroed without asking which of them are zero.
const FEW_PAGES: usize = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::plan::SegmentRequest;

    const SLAB_PAGES: u32 = (CHUNK / PAGE) as u32;

    /// Takes whole pages of the code pool; which pages are to be backed.
    fn fresh_of(shard: &mut Shard, pages: u32) -> Option<Range<u32>> {
        let per_page = shard.spaces[SegmentKind::Code.index()].per_page;
        let size = u64::from(pages) * PAGE;
        let plan = SegmentPlan { segments: [SegmentRequest { size, align: 1, zero_fill: 0 }; 3], ..Default::default() };
        let claimed = shard.claim(&[(pages * per_page, 1), (0, 1), (0, 1)], &plan).ok().unwrap();
        claimed.fresh.into_iter().map(|(_, pages)| pages).next()
    }

    fn shard_of(slabs: u32, at_once: u32) -> Shard {
        let mut shard = Shard::new([at_once, 0, 0]);
        let space = &mut shard.spaces[SegmentKind::Code.index()];
        space.free.add(0, slabs * SLAB_PAGES * space.per_page);
        shard
    }

    #[test]
    fn fresh_pages_are_backed_a_few_at_a_time_and_never_more_than_a_share_of_those_in_use() {
        let mut shard = shard_of(1, 8);
        let runs: Vec<_> = (0..60).map(|_| fresh_of(&mut shard, 1)).collect();
        for (page, run) in (0..).zip(&runs) {
            let Some(run) = run else { continue };
            assert!(
                run.start == page && run.len() as u32 <= 8 && run.end - page <= 1 + (page + 1) / AHEAD_SHARE,
                "{run:?}"
            );
        }
        let backed: Vec<u32> = runs.iter().flatten().cloned().flatten().collect();
        assert!(backed.iter().copied().eq(0..backed.len() as u32), "each page once, in order: {backed:?}");
        assert!(runs.iter().filter(|run| run.is_none()).count() > 40);
        assert_eq!(shard.spaces[SegmentKind::Code.index()].pages.count(), backed.len() as u32);
    }

    #[test]
    fn what_is_large_is_backed_as_a_whole_and_nothing_is_behind_a_slab_or_where_something_was() {
        let mut shard = shard_of(2, 8);
        assert_eq!(fresh_of(&mut shard, SLAB_PAGES - 2), Some(0..SLAB_PAGES - 2));
        assert_eq!(fresh_of(&mut shard, 1), Some(SLAB_PAGES - 2..SLAB_PAGES));
        shard.spaces[SegmentKind::Code.index()].pages.insert(SLAB_PAGES + 3..SLAB_PAGES + 4);
        assert_eq!(fresh_of(&mut shard, 2), Some(SLAB_PAGES - 1..SLAB_PAGES + 3));
    }

    #[test]
    fn where_it_gains_nothing_no_page_is_backed_ahead() {
        let mut shard = shard_of(1, 0);
        assert!((0..20).all(|_| fresh_of(&mut shard, 1).is_none()));
        assert_eq!(shard.spaces[SegmentKind::Code.index()].pages.count(), 20);
    }
}
