//! Memory goes back to the kernel: on request, or late and in large pieces by a thread of its own; never on the way of a
//! link or a removal.
//!
//! What may go are whole pages in free ranges that something was in since they were mapped or last given back. Giving them
//! back is three steps: *hold* them, so that nobody takes them meanwhile (a free range becomes a used one, under the
//! shard's lock); the system call, under no lock but `growth`; *free* them again, out of the set of pages in use.
//!
//! By itself memory goes back when more than an eighth of what lives, and more than 8 MiB, is free, in pieces of at least
//! 64 KiB, which were free at two looks a second apart: so a working set that comes and goes is left alone. The thread
//! that looks starts when 8 MiB were freed and ends when there is nothing left for it to do.

use std::ops::Range;
use std::time::Duration;

use crate::base::{MemoryEvent, SegmentKind};
use crate::memory::fork_guard::{before_writing, generation, is_past_forks, wait_for_forks};
use crate::memory::free_space::RangeId;
use crate::memory::layout::PAGE;
use crate::memory::manager::Released;
use crate::memory::page_set::PageSet;
use crate::memory::shard::Shard;
use crate::memory::window::Window;
use crate::sync::{Arc, Ordering, Weak, seeded_bug, sleep, spawn_detached};

/// Pages that are kept from being handed out.
struct PurgeRange {
    pool: SegmentKind,
    id: RangeId,
    pages: Range<u32>,
}

/// What was free at some time.
#[derive(Default)]
struct FreeSnapshot {
    /// Pages, by shard and pool.
    free: Vec<[PageSet; 3]>,
    /// Bytes of those that hold something.
    free_bytes: u64,
    live_bytes: u64,
}

impl FreeSnapshot {
    /// Whether so much is free that it should not stay.
    fn is_too_much(&self) -> bool {
        self.free_bytes > KEPT_BYTES.max(self.live_bytes / KEPT_SHARE)
    }
}

impl Window {
    /// Gives back every page that nothing lives in.
    pub(crate) fn give_back_pages(&self) -> Released {
        self.give_back(1, None)
    }

    /// Gives back whole slabs that nothing lives in.
    pub(crate) fn give_back_slabs(&self) -> Released {
        self.give_back((self.slab_size / PAGE) as u32, None)
    }

    /// Gives back what is free in pieces of at least `least` pages and, if that is given, was so before.
    fn give_back(&self, least: u32, before: Option<&FreeSnapshot>) -> Released {
        before_writing();
        let mut released = Released::default();
        for (index, shard) in self.shards.iter().enumerate() {
            let before = before.map(|before| &before.free[index]);
            // Bounded, should others free as fast as this gives back.
            for _ in 0..MOST_TURNS {
                // A link that wants a slab waits for one turn at most, and then looks again what is free.
                let growth = self.growth.lock();
                let held = self.hold(&mut shard.0.lock(), least, before);
                if held.is_empty() {
                    break;
                }
                // Seeded bug: somebody may take and fill what is about to be emptied.
                if seeded_bug!("free_while_it_goes_back") {
                    held.iter().for_each(|held| shard.0.lock().spaces[held.pool.index()].free.free(held.id));
                }
                let refused = self.purge(&held);
                // A child must not find pages that its books take for zero with what was in them before. Whoever forks may
                // link in a handler, and must not wait for a lock of a thread that waits for the fork.
                let _growth = if is_past_forks() {
                    Some(growth)
                } else {
                    drop(growth);
                    wait_for_forks();
                    None
                };
                self.free_again(&mut shard.0.lock(), held, &refused, &mut released);
                if !refused.is_empty() {
                    break; // the kernel will not like it better the next time
                }
            }
        }
        let mut telling = self.teller.telling();
        if released.bytes > 0 {
            let Released { bytes, slabs } = released;
            self.teller.note(&mut telling.happened, MemoryEvent::Returned { window: self.mapped.base(), bytes, slabs });
        }
        if seeded_bug!("slabs_closed_under_no_lock") {
            let mut opened = *self.growth.lock();
            self.close_slabs(&mut opened, &mut telling.happened);
            *self.growth.lock() = opened;
        } else {
            self.close_slabs(&mut self.growth.lock(), &mut telling.happened);
        }
        released
    }

    /// Takes free pages that were used out of the free space, a few ranges at a time.
    fn hold(&self, books: &mut Shard, least: u32, before: Option<&[PageSet; 3]>) -> Vec<PurgeRange> {
        let mut held = Vec::new();
        let slab = (self.slab_size / PAGE) as u32;
        let mut left = MOST_PAGES.max(slab);
        for pool in SegmentKind::ALL.into_iter().filter(|pool| self.may_return(*pool)) {
            let space = &mut books.spaces[pool.index()];
            let per_page = space.per_page;
            let wanted = |(index, offset, granules)| {
                let whole = aligned(space.whole_pages(offset, granules), least, self.slab_size);
                let used = space.pages.extent_in(whole, before.map(|before| &before[pool.index()]))?;
                // Of slabs whole ones only.
                let unit = if least == slab { slab } else { 1 };
                let start = used.start / unit * unit;
                let pages = start..used.end.next_multiple_of(unit).min(start + left / unit * unit);
                left -= pages.len() as u32;
                (!pages.is_empty()).then_some((index, pages))
            };
            let found: Vec<_> =
                space.free.long_ranges(least.saturating_mul(per_page)).filter_map(wanted).take(MOST_RANGES).collect();
            for (index, pages) in found {
                let granules = pages.len() as u32 * per_page;
                let id = space.free.carve(index, pages.start * per_page, granules);
                space.returning += granules;
                held.push(PurgeRange { pool, id, pages });
            }
        }
        held
    }

    /// The system calls; which of them were refused.
    fn purge(&self, held: &[PurgeRange]) -> Vec<usize> {
        let refused = |(index, PurgeRange { pool, pages, .. }): (usize, &PurgeRange)| {
            let (offset, size) = (u64::from(pages.start) * PAGE, pages.len() as u64 * PAGE);
            // SAFETY: M1, M6 - whole pages that the free space gave out to this function alone.
            unsafe { self.mapped.purge(*pool, offset, size) }.err().map(|_| index)
        };
        held.iter().enumerate().filter_map(refused).collect()
    }

    fn free_again(&self, books: &mut Shard, held: Vec<PurgeRange>, refused: &[usize], released: &mut Released) {
        for (index, PurgeRange { pool, id, pages }) in held.into_iter().enumerate() {
            let space = &mut books.spaces[pool.index()];
            if !refused.contains(&index) {
                let bytes = u64::from(space.pages.remove(pages.clone())) * PAGE;
                released.bytes += bytes;
                released.slabs += whole_slabs(&pages, (self.slab_size / PAGE) as u32);
                books.returned_bytes += bytes;
            }
            space.returning -= pages.len() as u32 * space.per_page;
            if !seeded_bug!("free_while_it_goes_back") {
                space.free.free(id);
            }
        }
    }

    /// What is free in pieces that are worth a system call.
    fn look(&self) -> FreeSnapshot {
        let mut look = FreeSnapshot::default();
        for shard in &self.shards {
            let mut books = shard.0.lock();
            books.freed_bytes = 0;
            look.live_bytes += books.live_bytes();
            let mut free: [PageSet; 3] = Default::default();
            for pool in SegmentKind::ALL.into_iter().filter(|pool| self.may_return(*pool)) {
                let space = &books.spaces[pool.index()];
                for (_, offset, granules) in space.free.long_ranges(WORTH_A_CALL * space.per_page) {
                    let pages = space.whole_pages(offset, granules);
                    look.free_bytes += u64::from(space.pages.count_in(pages.clone())) * PAGE;
                    free[pool.index()].insert(pages);
                }
            }
            look.free.push(free);
        }
        look
    }

    /// Has a thread look after memory that should go back, if none does.
    pub(crate) fn watch(self: &Arc<Window>) {
        let now = generation();
        if self.watched_in.swap(now, Ordering::Relaxed) == now {
            return;
        }
        let window = Arc::downgrade(self);
        // Where no thread can be had, memory stays until somebody asks for it, or the next time.
        if spawn_detached("jittison-memory".to_string(), move || watch(&window)).is_err() {
            self.watched_in.store(0, Ordering::Relaxed);
        }
    }
}

/// Looks every second, and gives back what was free at two looks; ends when there is no more than may stay.
fn watch(window: &Weak<Window>) {
    let mut before: Option<FreeSnapshot> = None;
    loop {
        sleep(BETWEEN_LOOKS);
        // Between looks the window may go.
        let Some(window) = window.upgrade() else { return };
        let look = window.look();
        if !look.is_too_much() {
            window.watched_in.store(0, Ordering::Relaxed);
            return;
        }
        if let Some(before) = &before {
            window.give_back(WORTH_A_CALL, Some(before));
        }
        before = Some(look);
    }
}

/// The part of a run of pages that is worth giving back: whole slabs, where whole slabs are asked for.
fn aligned(pages: Range<u32>, least: u32, slab_size: u64) -> Range<u32> {
    let slab = (slab_size / PAGE) as u32;
    if least < slab {
        return pages;
    }
    let (start, end) = (pages.start.next_multiple_of(slab), pages.end / slab * slab);
    start..end.max(start)
}

fn whole_slabs(pages: &Range<u32>, slab: u32) -> usize {
    (pages.end / slab).saturating_sub(pages.start.div_ceil(slab)) as usize
}

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// So much may stay in any case, and this share of what lives.
const KEPT_BYTES: u64 = 8 << 20;
const KEPT_SHARE: u64 = 8;

/// Pages for which a system call, and the faults when they come back, are a fair price: 64 KiB.
const WORTH_A_CALL: u32 = 16;

/// Pages, and ranges, that are held at a time: what is held, nobody else can have. 4 MiB are given back in a millisecond.
const MOST_PAGES: u32 = 1024;
const MOST_RANGES: usize = 64;
const MOST_TURNS: usize = 100_000;
