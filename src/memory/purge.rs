//! Returns the free pages of a [`Window`] to the kernel (a *purge*): on request, or in the background. A link or a
//! removal never does it.
//!
//! A page can be purged if it lies entirely in a free range and is in the set of used pages ([`PageSet`]). A purge has
//! three steps for each batch of ranges:
//!
//! | step | under | effect |
//! |---|---|---|
//! | 1. reserve (`purge_scan.rs`) | the lock of the shard | the free ranges become used ranges that the purge owns (M1) |
//! | 2. purge | `growth` only | the system calls; the pages are zero after them |
//! | 3. free | the lock of the shard | the ranges are free again, and the pages leave the set of used pages |
//!
//! # In the background
//! A thread starts when 2 MiB of a shard were freed. It checks the window once a second. Memory counts as too much
//! if more than 2 MiB are free, and more than an eighth of the live bytes. The thread purges pieces of at least 64 KiB
//! that two consecutive checks found free, so memory that a program frees and allocates in turns stays. It ends when
//! there is no longer too much.
//!
//! `purge_thread.rs` says how the thread starts and ends. Model: `loom_tests/loom_purge.rs`.

use std::time::Duration;

use crate::base::{MemoryEvent, SegmentKind};
use crate::memory::fork_guard::{before_writing, generation, is_past_forks, wait_for_forks};
use crate::memory::manager::Released;
use crate::memory::page_set::PageSet;
use crate::memory::purge_scan::{PurgeRange, PurgeScan, PurgeScope, SlabGrid};
use crate::memory::shard::Shard;
use crate::memory::window::{PURGE_CHECK_BYTES, Window};
use crate::os::page_size;
use crate::sync::{Arc, Ordering, Weak, seeded_bug, sleep, spawn_detached};

/// The free pages of a window at one check.
#[derive(Default)]
struct FreeSnapshot {
    /// Free pages, by shard and pool.
    free: Vec<[PageSet; 3]>,
    /// Bytes of those pages that the kernel may have backed.
    free_bytes: u64,
    live_bytes: u64,
}

impl FreeSnapshot {
    /// Whether more memory is free than should stay.
    fn is_too_much(&self) -> bool {
        self.free_bytes > RETAINED_BYTES.max(self.live_bytes / RETAINED_DIVISOR)
    }
}

impl Window {
    /// Purges every free page.
    pub(crate) fn purge_pages(&self) -> Released {
        self.purge(1, None)
    }

    /// Purges only entire free slabs.
    pub(crate) fn purge_slabs(&self) -> Released {
        before_writing();
        self.open_rest_of_free_slab(&mut self.sink.deferred().events);
        self.purge((self.slab_size / page_size()) as u32, None)
    }

    /// Purges used pages in free pieces of at least `min_pages` pages. With `before`, it purges in each piece only from the
    /// first to the last used page that was free in that snapshot, too.
    fn purge(&self, min_pages: u32, before: Option<&FreeSnapshot>) -> Released {
        before_writing();
        let mut released = Released::default();
        let grids = SegmentKind::ALL.map(|pool| self.may_purge(pool).then(|| self.slab_grid(pool)));
        for (index, shard) in self.shards.iter().enumerate() {
            let before = before.map(|before| &before.free[index]);
            let counts = shard.0.lock().spaces.each_ref().map(|space| space.free.free_ranges());
            let mut scan = PurgeScan::new(PurgeScope { min_pages, grids, before }, counts);
            // Bounded, because other threads may free as fast as this one purges.
            for _ in 0..MAX_BATCHES {
                // A link that needs a slab waits for one batch at most. Then it looks for free memory again.
                let growth = self.growth.lock();
                let ranges = scan.next_batch(&mut shard.0.lock());
                if ranges.is_empty() {
                    break;
                }
                // Seeded bug: another thread may allocate and fill pages that are about to be purged.
                if seeded_bug!("free_while_it_goes_back") {
                    ranges.iter().for_each(|range| shard.0.lock().spaces[range.pool.index()].free.free(range.id));
                }
                let refused = self.purge_ranges(&ranges);
                // A child must not find old contents in pages that its shards take for zero. So the pages leave the set
                // of used pages only when no fork is under way. A fork handler may link, so this thread releases
                // `growth` before it waits.
                let _growth = if is_past_forks() {
                    Some(growth)
                } else {
                    drop(growth);
                    wait_for_forks();
                    None
                };
                self.free_ranges(&mut shard.0.lock(), ranges, &refused, &mut released);
                if !refused.is_empty() {
                    break; // the kernel would refuse again
                }
            }
        }
        let mut deferred = self.sink.deferred();
        if released.bytes > 0 {
            let Released { bytes, slabs } = released;
            let event = MemoryEvent::Returned { window: self.mapped.base(), bytes, slabs };
            self.sink.record(&mut deferred.events, event);
        }
        if seeded_bug!("slabs_closed_under_no_lock") {
            let mut growth = *self.growth.lock();
            self.close_slabs(&mut growth, &mut deferred.events);
            *self.growth.lock() = growth;
        } else {
            self.close_slabs(&mut self.growth.lock(), &mut deferred.events);
        }
        released
    }

    /// Step 2: the system calls. Returns the indices of the ranges that the kernel refused.
    fn purge_ranges(&self, ranges: &[PurgeRange]) -> Vec<usize> {
        let refused = |(index, PurgeRange { pool, pages, .. }): (usize, &PurgeRange)| {
            let (offset, size) = (u64::from(pages.start) * page_size(), pages.len() as u64 * page_size());
            // SAFETY: M1, M6 - step 1 has reserved these entire pages in the free space, and only this purge owns them.
            unsafe { self.mapped.purge(*pool, offset, size) }.err().map(|_| index)
        };
        ranges.iter().enumerate().filter_map(refused).collect()
    }

    /// Step 3: frees the ranges, and removes their pages from the set of used pages, except those that the kernel
    /// refused.
    fn free_ranges(&self, shard: &mut Shard, ranges: Vec<PurgeRange>, refused: &[usize], released: &mut Released) {
        for (index, PurgeRange { pool, id, pages }) in ranges.into_iter().enumerate() {
            let space = &mut shard.spaces[pool.index()];
            if !refused.contains(&index) {
                let bytes = u64::from(space.pages.remove(pages.clone())) * page_size();
                released.bytes += bytes;
                released.slabs += self.slab_grid(pool).count_entire(&pages);
                // Relaxed: the sum is for reports, and no other memory is read because of it.
                self.returned_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            space.purging -= pages.len() as u32 * space.granules_per_page;
            if !seeded_bug!("free_while_it_goes_back") {
                space.free.free(id);
            }
        }
    }

    fn slab_grid(&self, pool: SegmentKind) -> SlabGrid {
        SlabGrid::new(self.layout.pool(pool).size, self.slab_size, page_size())
    }

    /// The free ranges that are long enough for a purge in the background. Resets the counts of freed bytes.
    fn free_snapshot(&self) -> FreeSnapshot {
        let mut snapshot = FreeSnapshot::default();
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            shard.freed_bytes = 0;
            snapshot.live_bytes += shard.live_bytes();
            let mut free: [PageSet; 3] = Default::default();
            for pool in SegmentKind::ALL.into_iter().filter(|pool| self.may_purge(*pool)) {
                let space = &shard.spaces[pool.index()];
                for (_, offset, granules) in space.free.long_ranges(min_background_pages() * space.granules_per_page) {
                    let pages = space.full_pages(offset, granules);
                    snapshot.free_bytes += u64::from(space.pages.count_in(pages.clone())) * page_size();
                    free[pool.index()].insert(pages);
                }
            }
            snapshot.free.push(free);
        }
        snapshot
    }

    /// Starts the purge thread of this window, unless it runs already.
    pub(crate) fn start_purge_thread(self: &Arc<Window>) {
        if !self.purge_thread.try_start(generation()) {
            return;
        }
        let window = Arc::downgrade(self);
        // If no thread can be started, the memory stays until the next attempt or the next request.
        if spawn_detached("jittison-memory".to_string(), move || purge_in_background(&window)).is_err() {
            self.purge_thread.start_failed();
        }
    }

    /// Whether so much memory of a shard was freed since the last check that another check is due.
    fn is_much_freed(&self) -> bool {
        self.shards.iter().any(|shard| shard.0.lock().freed_bytes > PURGE_CHECK_BYTES)
    }
}

/// The purge thread: takes a snapshot every second, and purges what two consecutive snapshots found free. Returns when
/// there is no longer too much free memory.
fn purge_in_background(window: &Weak<Window>) {
    let mut before: Option<FreeSnapshot> = None;
    loop {
        sleep(CHECK_INTERVAL);
        // The thread does not keep the window between two checks.
        let Some(window) = window.upgrade() else { return };
        let snapshot = window.free_snapshot();
        if !snapshot.is_too_much() {
            if window.purge_thread.try_end(generation(), || window.is_much_freed()) {
                return;
            }
        } else if let Some(before) = &before {
            window.purge(min_background_pages(), Some(before));
        }
        before = Some(snapshot);
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The free bytes that stay in the background: the greater of this number and of `live_bytes / RETAINED_DIVISOR`.
const RETAINED_BYTES: u64 = 2 << 20;
const RETAINED_DIVISOR: u64 = 8;

/// The smallest piece that is purged in the background: 64 KiB, which no page exceeds. A smaller one is not worth a system call and the
/// page faults when it is used again.
fn min_background_pages() -> u32 {
    ((64 << 10) / page_size()) as u32
}

const MAX_BATCHES: usize = 100_000;
