//! [`MemoryMap`]: what stands where, at about one moment, to look at and to draw.
//!
//! A survey copies each shard's books under its lock, one shard after the other, and works on the copies: links and
//! removals wait no longer than the copying takes, and the picture may be of slightly different moments. Slabs are shown
//! in chunks of 2 MiB, each of which belongs to one shard.
//!
//! The pools know ranges, not who lives in them. Whoever allocated says so with [`MemoryMap::attribute`].
//!
//! ```text
//!   pool    [ slab, shard 0          ][ slab, shard 1          ][ slab, shard 0   ] unopened …
//!   ranges  [live a][free ][live b][free        ][live c ][free                   ]
//!   pages   ■■■■■■■■■■■■■■■■■■■■■■□□□□□■■■■□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□□    ■ resident
//!                  stranded: resident and in a free range
//! ```
//!
//! Drawn by `map_text.rs` and `map_svg.rs`.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::memory::layout::{CHUNK, PAGE};
use crate::memory::manager::{Finalized, fragmentation};
use crate::memory::page_set::PageSet;
use crate::memory::shard::granule;
use crate::memory::window::Window;
use crate::sync::Arc;

/// What stands where in a manager's windows.
#[derive(Debug, Clone, Default)]
pub struct MemoryMap {
    /// The windows, in order of their making.
    pub windows: Vec<WindowMap>,
    /// Who lives in the ranges, as far as somebody said so.
    pub tenants: Vec<Tenant>,
}

/// One window.
#[derive(Debug, Clone)]
pub struct WindowMap {
    /// Its first byte.
    pub base: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// How it is mapped, in a few words.
    pub description: &'static str,
    /// Bytes of its header and frame table that hold something.
    pub frame_table_bytes: u64,
    /// Its pools, in [`SegmentKind::ALL`] order.
    pub pools: [PoolMap; 3],
}

/// One pool of a window.
#[derive(Debug, Clone)]
pub struct PoolMap {
    /// Which.
    pub pool: SegmentKind,
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// What is opened of it, in order of address.
    pub slabs: Vec<SlabMap>,
    /// What the slabs are divided into, in order of address: no gaps, no overlap. A range may span several slabs of one
    /// shard.
    pub ranges: Vec<MemoryRange>,
    /// The stretches of pages that the kernel may have backed, in order of address: start, and size in bytes.
    pub resident: Vec<(ExecutorAddr, u64)>,
}

/// 2 MiB of a pool; all sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabMap {
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size.
    pub size: u64,
    /// Which of the shards has it.
    pub shard: usize,
    /// Held by allocations.
    pub live_bytes: u64,
    /// In free ranges.
    pub free_bytes: u64,
    /// Of pages that the kernel may have backed.
    pub resident_bytes: u64,
    /// Resident, and holding nothing live.
    pub stranded_bytes: u64,
    /// Stranded in whole pages: what [`release_free`](crate::memory::MemoryManager::release_free) gives back. The rest
    /// shares its pages with something live.
    pub returnable_bytes: u64,
    /// The longest stretch of a free range in it.
    pub largest_free: u64,
    /// How many live ranges begin in it.
    pub allocations: usize,
}

/// A live or a free range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first byte.
    pub start: ExecutorAddr,
    /// Its size in bytes.
    pub size: u64,
    /// Whether an allocation has it.
    pub is_live: bool,
    /// How much of it is on pages that the kernel may have backed, in bytes.
    pub resident_bytes: u64,
    /// Who lives there, by position in [`MemoryMap::tenants`]; `None` in free ranges, and where nobody said.
    pub tenant: Option<usize>,
}

/// Who lives in some ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// What it is called: a module's object.
    pub name: Arc<str>,
    /// What it belongs to, together with others: a module's dylib. Drawn in one colour.
    pub group: Arc<str>,
    /// By whose removal it goes: a tracker's key.
    pub owner: Arc<str>,
    /// Where its segments start and how many bytes it asked for, in [`SegmentKind::ALL`] order.
    pub segments: [(ExecutorAddr, u64); 3],
}

impl Tenant {
    /// Somebody who lives in `memory`.
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

    /// Bytes asked for in all pools.
    pub fn requested_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, size)| size).sum()
    }
}

impl MemoryMap {
    /// Says who lives where: a tenant has the live ranges that its segments start. Those that went since the map was made
    /// are kept in the list, and have no range.
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

    /// Bytes held by allocations, in all windows.
    pub fn live_bytes(&self) -> u64 {
        self.pools().map(PoolMap::live_bytes).sum()
    }

    /// All pools of all windows.
    pub fn pools(&self) -> impl Iterator<Item = &PoolMap> {
        self.windows.iter().flat_map(|window| &window.pools)
    }
}

impl PoolMap {
    /// Bytes opened.
    pub fn opened_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.size).sum()
    }

    /// Bytes held by allocations.
    pub fn live_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.live_bytes).sum()
    }

    /// Opened bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.free_bytes).sum()
    }

    /// Bytes of pages that the kernel may have backed.
    pub fn resident_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.resident_bytes).sum()
    }

    /// Resident bytes that hold nothing live.
    pub fn stranded_bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.stranded_bytes).sum()
    }

    /// The longest free range, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.free_ranges().map(|range| range.size).max().unwrap_or(0)
    }

    /// The free ranges, in order of address.
    pub fn free_ranges(&self) -> impl Iterator<Item = &MemoryRange> {
        self.ranges.iter().filter(|range| !range.is_live)
    }

    /// How many allocations have a part of the pool.
    pub fn allocations(&self) -> usize {
        self.slabs.iter().map(|slab| slab.allocations).sum()
    }

    /// Which share of what is free is not in the longest free range; 0 when nothing is free. What is not opened yet does
    /// not count.
    pub fn fragmentation(&self) -> f64 {
        fragmentation(self.largest_free(), self.free_bytes())
    }

    /// The ranges that have a part of a slab.
    pub fn ranges_in(&self, slab: &SlabMap) -> &[MemoryRange] {
        let end = slab.start.offset(slab.size);
        let from = self.ranges.partition_point(|range| range.end() <= slab.start);
        let to = self.ranges.partition_point(|range| range.start < end);
        &self.ranges[from..to.max(from)]
    }

    /// As [`ranges_in`](Self::ranges_in), with free ranges cut where they stop or start to be resident: what is to be drawn.
    pub(crate) fn pieces_in(&self, slab: &SlabMap) -> Vec<MemoryRange> {
        let mut pieces = Vec::new();
        for range in self.ranges_in(slab) {
            if range.is_live || range.resident_bytes == 0 || range.resident_bytes == range.size {
                pieces.push(*range);
            } else {
                self.cut(range, slab.end(), &mut pieces);
            }
        }
        pieces
    }

    /// Cuts a free range where it stops or starts to be resident, up to `end`.
    fn cut(&self, range: &MemoryRange, end: ExecutorAddr, pieces: &mut Vec<MemoryRange>) {
        let end = range.end().min(end);
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
        let mut at = range.start;
        let first = self.resident.partition_point(|(start, size)| start.offset(*size) <= range.start);
        for (start, size) in self.resident[first..].iter().take_while(|(start, _)| *start < end) {
            push(at, (*start).max(at), false);
            push((*start).max(at), start.offset(*size).min(end), true);
            at = start.offset(*size).min(end);
        }
        push(at, end, false);
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
    /// The first byte behind it.
    pub fn end(&self) -> ExecutorAddr {
        self.start.offset(self.size)
    }
}

impl SlabMap {
    /// The first byte behind it.
    pub fn end(&self) -> ExecutorAddr {
        self.start.offset(self.size)
    }
}

/// A copy of what a shard knows of a pool.
struct Books {
    shard: usize,
    /// Offset and length in granules, and whether it is in use.
    ranges: Vec<(u32, u32, bool)>,
    pages: PageSet,
}

impl Window {
    /// What stands where.
    pub(crate) fn survey(&self) -> WindowMap {
        let mut books: [Vec<Books>; 3] = Default::default();
        for (shard, lock) in self.shards.iter().enumerate() {
            let held = lock.0.lock();
            for (copies, space) in books.iter_mut().zip(&held.spaces) {
                copies.push(Books { shard, ranges: space.free.ranges(), pages: space.pages.clone() });
            }
        }
        let pools = SegmentKind::ALL.map(|pool| {
            let start = self.layout.pool_start(self.mapped.base(), pool);
            survey_pool(pool, start, self.layout.pool(pool).size, &books[pool.index()])
        });
        WindowMap {
            base: self.mapped.base(),
            size: self.layout.size,
            description: self.mapped.description(),
            frame_table_bytes: self.frame_table_bytes(pools[SegmentKind::Code.index()].opened_bytes()),
            pools,
        }
    }
}

fn survey_pool(pool: SegmentKind, start: ExecutorAddr, size: u64, books: &[Books]) -> PoolMap {
    let mut ranges = Vec::with_capacity(books.iter().map(|books| books.ranges.len()).sum());
    let mut slabs: Vec<SlabMap> = Vec::new();
    let mut resident = Vec::new();
    for Books { shard, ranges: own, pages } in books {
        for (offset, granules, is_live) in own {
            let from = u64::from(*offset) * granule(pool);
            let to = from + u64::from(*granules) * granule(pool);
            let place = start.offset(from);
            let resident_bytes = resident_in(pages, from, to);
            ranges.push(MemoryRange { start: place, size: to - from, is_live: *is_live, resident_bytes, tenant: None });
            enter(&mut slabs, start, *shard, pages, (from, to), *is_live);
        }
        let runs = pages.runs_in(0..(size / PAGE) as u32).into_iter();
        resident.extend(runs.map(|run| (start.offset(u64::from(run.start) * PAGE), run.len() as u64 * PAGE)));
    }
    ranges.sort_unstable_by_key(|range: &MemoryRange| range.start);
    slabs.sort_unstable_by_key(|slab| slab.start);
    resident.sort_unstable();
    PoolMap { pool, start, size, slabs, ranges, resident }
}

/// Counts a range, which comes behind all others of its shard, in the slabs that it has a part of.
fn enter(
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
            slabs.push(new_slab(start, shard, resident_in(pages, chunk_start, chunk_end)));
        }
        let Some(slab) = slabs.last_mut() else { return };
        let (start, end) = (from.max(chunk_start), to.min(chunk_end));
        if is_live {
            slab.live_bytes += end - start;
            slab.allocations += usize::from(from >= chunk_start);
        } else {
            slab.free_bytes += end - start;
            slab.largest_free = slab.largest_free.max(end - start);
            slab.stranded_bytes += resident_in(pages, start, end);
            let whole = (start.div_ceil(PAGE) as u32)..((end / PAGE) as u32).max(start.div_ceil(PAGE) as u32);
            slab.returnable_bytes += u64::from(pages.count_in(whole)) * PAGE;
        }
    }
}

fn new_slab(start: ExecutorAddr, shard: usize, resident_bytes: u64) -> SlabMap {
    SlabMap {
        start,
        size: CHUNK,
        shard,
        live_bytes: 0,
        free_bytes: 0,
        resident_bytes,
        stranded_bytes: 0,
        returnable_bytes: 0,
        largest_free: 0,
        allocations: 0,
    }
}

/// How many of the bytes `[from, to)` of a pool are on pages of the set.
fn resident_in(pages: &PageSet, from: u64, to: u64) -> u64 {
    if from >= to {
        return 0;
    }
    let (first, last) = ((from / PAGE) as u32, ((to - 1) / PAGE) as u32);
    let is_in = |page: u32| u64::from(pages.count_in(page..page + 1));
    let whole = u64::from(pages.count_in(first..last + 1)) * PAGE;
    // Of the first and the last page only what is inside.
    whole - is_in(first) * (from % PAGE) - is_in(last) * ((u64::from(last) + 1) * PAGE - to)
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
        let naive = |from: u64, to: u64| (from..to).filter(|byte| matches!(byte / PAGE, 1 | 2 | 4)).count() as u64;
        for from in [0, 1, 4095, 4096, 4097, 9000, 12287, 12288, 16384, 20000, 20480] {
            for to in [0, 1, 4096, 4097, 8192, 12288, 12289, 16383, 16385, 20480, 30000] {
                assert_eq!(resident_in(&pages, from, to), naive(from, to), "{from}..{to}");
            }
        }
    }
}
