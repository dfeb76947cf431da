//! [`Shard`]: the books of one part of a window. Plain data; its lock guards it, under which nothing else happens.
//!
//! A window has as many shards as threads are likely to link at once. Each owns whole slabs of every pool, opened for it
//! one by one, so two threads that link share no word. What belongs to a shard goes back to that shard, whoever gives it
//! back.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::Pool;
use crate::memory::free_space::{FreeSpace, RangeId};
use crate::memory::layout::{DATA_GRANULE, FRAME_SLOT, PAGE, TEXT_GRANULE};
use crate::memory::manager::PoolStatistics;
use crate::memory::page_set::PageSet;
use crate::memory::plan::{PoolPlan, SegmentPlan};

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
    /// Granules in a page.
    pub(crate) per_page: u32,
}

/// What an allocation has of one pool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    /// `None` when it has nothing.
    pub(crate) id: Option<RangeId>,
    /// In granules from the start of the pool.
    pub(crate) offset: u32,
    pub(crate) granules: u32,
}

/// `(granules, alignment in granules)` by pool.
pub(crate) type Wanted = [(u32, u32); 3];

/// What has to be zeroed of new memory, in bytes from the start of the pool's part.
pub(crate) type Dirt = SmallVec<[(Pool, Range<u64>); 1]>;

impl Shard {
    pub(crate) fn new() -> Shard {
        let space = |pool| PoolSpace {
            free: FreeSpace::new(),
            pages: PageSet::default(),
            per_page: (PAGE / granule(pool)) as u32,
        };
        Shard { spaces: Pool::ALL.map(space), allocations: 0, requested: [0; 3], freed_bytes: 0, returned_bytes: 0 }
    }

    /// All pools or nothing; otherwise the first pool that is short.
    pub(crate) fn claim(&mut self, wanted: &Wanted, plan: &SegmentPlan) -> Result<([Part; 3], Dirt), Pool> {
        let mut parts = [Part::default(); 3];
        for pool in Pool::ALL {
            let (granules, align) = wanted[pool.index()];
            if granules == 0 {
                continue;
            }
            let Some((id, offset)) = self.spaces[pool.index()].free.allocate(granules, align) else {
                self.put_back(&parts);
                return Err(pool);
            };
            parts[pool.index()] = Part { id: Some(id), offset, granules };
        }
        let mut dirt = Dirt::new();
        for pool in Pool::ALL {
            let segment = plan.segment(pool);
            let zero = segment.size - segment.zero_fill..segment.size;
            self.spaces[pool.index()].note_use(pool, &parts[pool.index()], zero, &mut dirt);
        }
        self.allocations += 1;
        for (sum, segment) in self.requested.iter_mut().zip(&plan.segments) {
            *sum += segment.size;
        }
        Ok((parts, dirt))
    }

    /// Takes an allocation's memory back.
    pub(crate) fn release(&mut self, parts: &[Part; 3], plan: &PoolPlan) {
        self.put_back(parts);
        self.allocations -= 1;
        for pool in Pool::ALL {
            self.requested[pool.index()] -= plan.size(pool);
        }
        self.freed_bytes += held_by(parts);
    }

    /// Asks for the records of an allocation that is given back next.
    pub(crate) fn prefetch(&self, parts: &[Part; 3]) {
        for (part, space) in parts.iter().zip(&self.spaces) {
            part.id.into_iter().for_each(|id| space.free.prefetch(id));
        }
    }

    fn put_back(&mut self, parts: &[Part; 3]) {
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
    pub(crate) fn bytes(&self, granules: impl Fn(&FreeSpace) -> u32) -> u64 {
        Pool::ALL.iter().map(|pool| u64::from(granules(&self.spaces[pool.index()].free)) * held_bytes(*pool)).sum()
    }

    /// Adds what is held of one pool to its statistics.
    pub(crate) fn add_to(&self, pool: Pool, sum: &mut PoolStatistics) {
        let PoolSpace { free, pages, .. } = &self.spaces[pool.index()];
        let bytes = |granules: u32| u64::from(granules) * granule(pool);
        sum.requested += self.requested[pool.index()];
        sum.reserved += bytes(free.used_granules());
        sum.opened += bytes(free.granules());
        sum.free += bytes(free.free_granules());
        sum.largest_free = sum.largest_free.max(bytes(free.largest_free()));
        sum.resident += u64::from(pages.count()) * PAGE;
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
    /// Takes note that a part will be written, and says which bytes of `zero` are not zero now.
    fn note_use(&mut self, pool: Pool, part: &Part, zero: Range<u64>, dirt: &mut Dirt) {
        if part.granules == 0 {
            return;
        }
        let granule = granule(pool);
        let start = u64::from(part.offset) * granule;
        let page_of = |byte: u64| ((start + byte) / PAGE) as u32;
        let pages = |bytes: &Range<u64>| page_of(bytes.start)..page_of(bytes.end - 1) + 1;
        if !zero.is_empty() && self.pages.contains_any(pages(&zero)) {
            let zero_pages = pages(&zero);
            if zero_pages.len() <= FEW_PAGES {
                dirt.push((pool, zero));
            } else {
                // Of a large stretch only what was used before: a fresh `.bss` costs no pages.
                let in_part = |page: u32| (u64::from(page) * PAGE).saturating_sub(start).clamp(zero.start, zero.end);
                let runs = self.pages.runs_in(zero_pages);
                dirt.extend(runs.into_iter().map(|run| (pool, in_part(run.start)..in_part(run.end))));
            }
        }
        self.pages.insert(pages(&(0..u64::from(part.granules) * granule)));
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

/// Bytes that an allocation holds in all pools, with the slots of the frame table.
pub(crate) fn held_by(parts: &[Part; 3]) -> u64 {
    Pool::ALL.iter().map(|pool| u64::from(parts[pool.index()].granules) * held_bytes(*pool)).sum()
}

pub(crate) fn granule(pool: Pool) -> u64 {
    if pool == Pool::Code { TEXT_GRANULE } else { DATA_GRANULE }
}

/// Bytes that one granule of a pool holds, with its slot of the frame table.
pub(crate) fn held_bytes(pool: Pool) -> u64 {
    granule(pool) + if pool == Pool::Code { FRAME_SLOT } else { 0 }
}

/// Up to so many pages are zeroed without asking which of them are zero.
const FEW_PAGES: usize = 8;
