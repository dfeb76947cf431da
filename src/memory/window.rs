//! [`Window`]: a mapped window and its books: which shard owns which slabs, and how far each pool is opened.
//!
//! The way of an allocation: try the home shard of the thread; when its lock is held, any other that has room; when there
//! is no room, open a slab for the home shard. No lock is held over a system call but `growth`, and that one only while a
//! pool grows or pages go back to the kernel, never on the way of an allocation that finds room.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, MemoryEvent, SegmentKind, align_up};
use crate::error::{MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::events::{EventBuf, EventSink};
use crate::memory::fork_guard::{after_writing, before_writing, generation};
use crate::memory::frame_table::FrameTable;
use crate::memory::layout::{CHUNK, FRAME_SLOT, FRAME_TABLE_OFFSET, MAX_WINDOW, PAGE, TEXT_GRANULE};
use crate::memory::layout::{PoolRange, WindowLayout};
use crate::memory::mapper::MappedWindow;
use crate::memory::plan::{PoolPlan, SegmentPlan, SegmentRequest};
use crate::memory::shard::{PoolSpan, Request, Reservation, Shard, granule, held_by, held_bytes};
use crate::memory::slab_pool::{OnFull, SlabPoolOptions};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Rank, seeded_bug, thread_number};

pub(crate) struct Window {
    pub(crate) mapped: Arc<dyn MappedWindow>,
    pub(crate) layout: WindowLayout,
    /// What the mapping says of each pool, once and for all: where it starts, and in what units it is given out.
    starts: [ExecutorAddr; 3],
    units: [u64; 3],
    pub(crate) frames: Option<FrameTable>,
    pub(crate) slab_size: u64,
    trap_freed_code: bool,
    pub(crate) returns_memory: bool,
    budget: Arc<Budget>,
    /// Bytes by pool that are opened: each slab below belongs to a shard. Held while a pool grows, so that slots are
    /// initialised before new text is handed out, and while pages go back to the kernel, so that nobody opens a slab for
    /// want of pages that come back at once.
    pub(crate) growth: Mutex<[u64; 3]>,
    pub(crate) shards: Box<[ShardLock]>,
    /// How many allocations of each group live here; kept only where there may be more windows than one.
    groups: Option<Mutex<FxHashMap<u64, usize>>>,
    /// In which generation of forks a thread was started that gives memory back, and is at work; zero for none. A child's
    /// parent's thread is not its own.
    pub(crate) watched_in: AtomicU64,
    pub(crate) teller: EventSink,
    /// Whether anybody was told that the window is there, and is to be told when it goes.
    is_announced: AtomicBool,
}

/// On cache lines of its own, so that two threads' locks never share one.
#[repr(align(128))]
pub(crate) struct ShardLock(pub(crate) Mutex<Shard>);

/// What allocations hold of their window: one for each shard, so that threads that link side by side do not count on one
/// word.
#[repr(align(128))]
pub(crate) struct ShardRef {
    pub(crate) window: Arc<Window>,
    pub(crate) shard: usize,
}

/// What was taken out of a shard's books, and is to become an allocation.
pub(crate) struct Taken {
    pub(crate) shard: usize,
    pub(crate) claimed: Reservation,
}

impl Window {
    pub(crate) fn new(
        mapped: Arc<dyn MappedWindow>,
        layout: WindowLayout,
        options: &SlabPoolOptions,
        budget: Arc<Budget>,
        teller: EventSink,
    ) -> Window {
        let starts = SegmentKind::ALL.map(|pool| layout.pool_start(mapped.base(), pool));
        let at_once = SegmentKind::ALL.map(|pool| mapped.pages_at_once(pool));
        let shard = |_| ShardLock(Mutex::new(Shard::new(at_once)));
        // SAFETY: M5, M6 - the pool of the layout that the window was mapped with, and the window is new.
        let frames =
            unsafe { FrameTable::new(&mapped, starts[SegmentKind::Code.index()], layout.pool(SegmentKind::Code).size) };
        Window {
            starts,
            // More than one granule of ours at a time where the mapping cannot tell smaller owners apart.
            units: SegmentKind::ALL.map(|pool| mapped.granule(pool).max(granule(pool))),
            frames,
            mapped,
            layout,
            slab_size: align_up(options.slab_size.clamp(CHUNK, MAX_WINDOW), CHUNK).unwrap_or(CHUNK),
            trap_freed_code: options.trap_freed_code,
            returns_memory: options.returns_memory,
            budget,
            growth: Mutex::ranked(Rank::Growth, [0; 3]),
            shards: (0..options.shard_count()).map(shard).collect(),
            groups: (options.on_full == OnFull::OpenAnother).then(|| Mutex::new(FxHashMap::default())),
            watched_in: AtomicU64::new(0),
            teller,
            is_announced: AtomicBool::new(false),
        }
    }

    /// Takes note that the window is there to stay.
    pub(crate) fn announce(&self, happened: &mut EventBuf) {
        if self.teller.is_heard() {
            self.is_announced.store(true, Ordering::Relaxed);
            happened.push(MemoryEvent::WindowMapped { address: self.mapped.base(), bytes: self.layout.size });
        }
    }

    /// Whether something of a group lives here. What belongs to nothing is at home anywhere.
    pub(crate) fn houses(&self, group: u64) -> bool {
        let is_here = |groups: &Mutex<FxHashMap<u64, usize>>| groups.lock().contains_key(&group);
        group == 0 || self.groups.as_ref().is_none_or(is_here)
    }

    /// Whether nothing lives here.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.0.lock().allocations == 0)
    }

    #[inline]
    fn count_in(&self, group: u64) {
        if let Some(groups) = self.groups.as_ref().filter(|_| group != 0) {
            *groups.lock().entry(group).or_default() += 1;
        }
    }

    fn count_out(&self, group: u64) {
        let Some(groups) = self.groups.as_ref().filter(|_| group != 0) else { return };
        if let Entry::Occupied(mut count) = groups.lock().entry(group) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Takes everything that a plan asks for out of one shard's books, growing pools as needed. The caller has it counted
    /// and backed, and tells what happened meanwhile.
    pub(crate) fn take(&self, plan: &SegmentPlan, happened: &mut EventBuf) -> Result<Taken> {
        let mut wanted = [(0, 1); 3];
        for pool in SegmentKind::ALL {
            wanted[pool.index()] = self.granules_for(pool, plan)?;
        }
        let bytes = SegmentKind::ALL.iter().map(|pool| u64::from(wanted[pool.index()].0) * held_bytes(*pool)).sum();
        self.budget.take(bytes)?;
        let home = self.home();
        match self.try_take(home, &wanted, plan) {
            Ok(taken) => Ok(taken),
            Err(short) => {
                let bytes = if seeded_bug!("refused_bytes_left_counted") { 0 } else { bytes };
                self.take_grown(home, short, &wanted, plan, happened).inspect_err(|_| self.budget.give_back(bytes))
            }
        }
    }

    /// The same where the home shard is short of a pool.
    #[cold]
    fn take_grown(
        &self,
        home: usize,
        mut short: SegmentKind,
        wanted: &Request,
        plan: &SegmentPlan,
        happened: &mut EventBuf,
    ) -> Result<Taken> {
        loop {
            if let Err(full) = self.grow(home, short, wanted[short.index()], happened) {
                // Room that other threads keep is better than none.
                let found = (0..self.shards.len()).find_map(|other| self.take_from(other, wanted, plan).ok());
                return found.ok_or(full);
            }
            short = match self.try_take(home, wanted, plan) {
                Ok(taken) => return Ok(taken),
                Err(short) => short,
            };
        }
    }

    /// Counts what was taken, and has fresh pages of it backed, under no lock. Who gives free pages back meanwhile may miss
    /// a few that are backed just then: they are zero, and come back into the books when something comes into them.
    pub(crate) fn count_and_back(&self, taken: &Taken, plan: &SegmentPlan) {
        self.count_in(plan.group);
        for (pool, pages) in &taken.claimed.fresh {
            self.mapped.back(*pool, u64::from(pages.start) * PAGE, pages.len() as u64 * PAGE);
        }
    }

    /// The shard of the thread that asks.
    fn home(&self) -> usize {
        let (thread, count) = (thread_number(), self.shards.len());
        // Mostly there are as many as threads, and a division costs more than to look.
        if thread < count { thread } else { thread % count }
    }

    /// From the home shard or, while that is locked, from another that has room.
    #[inline(always)] // into `take`
    fn try_take(&self, home: usize, wanted: &Request, plan: &SegmentPlan) -> std::result::Result<Taken, SegmentKind> {
        let Some(mut books) = self.shards[home].0.try_lock() else { return self.take_beside(home, wanted, plan) };
        let claimed = books.claim(wanted, plan)?;
        Ok(Taken { shard: home, claimed })
    }

    /// From any shard but one, which is locked; from that one if there is no other way.
    #[cold]
    fn take_beside(
        &self,
        home: usize,
        wanted: &Request,
        plan: &SegmentPlan,
    ) -> std::result::Result<Taken, SegmentKind> {
        let count = self.shards.len();
        for shard in (1..count).map(|step| (home + step) % count) {
            let Some(mut books) = self.shards[shard].0.try_lock() else { continue };
            if let Ok(claimed) = books.claim(wanted, plan) {
                return Ok(Taken { shard, claimed });
            }
        }
        self.take_from(home, wanted, plan)
    }

    fn take_from(&self, shard: usize, wanted: &Request, plan: &SegmentPlan) -> std::result::Result<Taken, SegmentKind> {
        let claimed = self.shards[shard].0.lock().claim(wanted, plan)?;
        Ok(Taken { shard, claimed })
    }

    /// Opens slabs of a pool for a shard, as many as the request needs, below those that are open.
    fn grow(&self, shard: usize, pool: SegmentKind, wanted: (u32, u32), happened: &mut EventBuf) -> Result<()> {
        let mut opened = self.growth.lock();
        let granule = granule(pool);
        let unopened = self.layout.pool(pool).size - opened[pool.index()];
        let at = (unopened / granule) as u32;
        let shortfall = self.shards[shard].0.lock().spaces[pool.index()].free.shortfall(at, wanted.0, wanted.1);
        if shortfall == 0 {
            return Ok(()); // another thread gave something back
        }
        if seeded_bug!("grown_under_a_later_lock") {
            drop(opened);
            opened = self.growth.lock();
        }
        let needed = u64::from(shortfall) * granule;
        let rounded = [self.slab_size, CHUNK].map(|unit| align_up(needed, unit).unwrap_or(u64::MAX));
        let added = rounded.into_iter().chain([unopened]).find(|added| *added <= unopened);
        let Some(added) = added.filter(|added| *added >= needed) else {
            drop(opened);
            return Err(self.exhausted(pool, u64::from(wanted.0) * granule).into());
        };
        let start = unopened - added;
        if let (SegmentKind::Code, Some(frames)) = (pool, &self.frames) {
            frames.open(start / TEXT_GRANULE, added / TEXT_GRANULE);
        }
        opened[pool.index()] += added;
        let _opened = if seeded_bug!("slab_added_under_a_later_lock") {
            drop(opened);
            self.growth.lock()
        } else {
            opened
        };
        self.shards[shard].0.lock().spaces[pool.index()].free.add((start / granule) as u32, (added / granule) as u32);
        let address = self.starts[pool.index()].offset(start);
        self.teller.note(happened, MemoryEvent::SlabOpened { pool, address, bytes: added });
        Ok(())
    }

    /// Takes the lowest slabs that nothing lives in out of use again, so that any shard may open them, and the pages of
    /// the frame table that were theirs go back. `opened` is what `growth` guards.
    pub(crate) fn close_slabs(&self, opened: &mut [u64; 3], happened: &mut EventBuf) {
        for pool in SegmentKind::ALL.into_iter().filter(|pool| self.may_return(*pool)) {
            let granules = (CHUNK / granule(pool)) as u32;
            let lowest = self.layout.pool(pool).size - opened[pool.index()];
            while opened[pool.index()] >= CHUNK {
                let start = self.layout.pool(pool).size - opened[pool.index()];
                let at = (start / granule(pool)) as u32;
                let withdraw = |shard: &ShardLock| shard.0.lock().spaces[pool.index()].close(at, granules);
                if !self.shards.iter().any(withdraw) {
                    break;
                }
                opened[pool.index()] -= CHUNK;
            }
            let closed = self.layout.pool(pool).size - opened[pool.index()] - lowest;
            if closed > 0 {
                let address = self.starts[pool.index()].offset(lowest);
                self.teller.note(happened, MemoryEvent::SlabClosed { pool, address, bytes: closed });
            }
        }
        if let Some(frames) = &self.frames {
            let closed_text = self.layout.pool(SegmentKind::Code).size - opened[SegmentKind::Code.index()];
            // SAFETY: M5 - growth is locked, and no text below is open.
            unsafe { frames.close_below(closed_text / TEXT_GRANULE) };
        }
    }

    /// Bytes of the header and the frame table that hold something when so many bytes of code are opened; in whole pages.
    pub(crate) fn frame_table_bytes(&self, code_opened: u64) -> u64 {
        let slots = code_opened / TEXT_GRANULE * FRAME_SLOT;
        if self.frames.is_some() { (FRAME_TABLE_OFFSET + slots).next_multiple_of(PAGE) } else { 0 }
    }

    /// `(granules, alignment in granules)` of a plan's segment.
    fn granules_for(&self, pool: SegmentKind, plan: &SegmentPlan) -> Result<(u32, u32)> {
        let SegmentRequest { size, align, zero_fill } = *plan.segment(pool);
        let bad = |problem| MemoryFault::BadPlan { pool: pool.name(), size, align, problem };
        let align = align.max(1);
        if !align.is_power_of_two() {
            return Err(bad("the alignment is no power of two").into());
        }
        if zero_fill > size {
            return Err(bad("more zero-fill than segment").into());
        }
        let start = self.starts[pool.index()].value();
        if start & (align - 1) != 0 {
            return Err(bad("no pool is aligned to that").into());
        }
        let capacity = self.layout.pool(pool).size;
        if size > capacity {
            return Err(self.exhausted(pool, size).into());
        }
        let frames = if pool == SegmentKind::Code { plan.frame_count } else { 0 };
        let unit = self.units[pool.index()];
        let held = align_up(size.max(frames.saturating_mul(granule(pool))), unit).unwrap_or(u64::MAX);
        if held > capacity {
            return Err(self.exhausted(pool, held).into());
        }
        // All are powers of two; this is done for every link, and a division by a variable costs more than the rest of it.
        let bits = granule(pool).trailing_zeros();
        Ok(((held >> bits) as u32, (align.max(unit) >> bits) as u32))
    }

    fn exhausted(&self, pool: SegmentKind, requested: u64) -> MemoryFault {
        let capacity = self.layout.pool(pool).size;
        let unopened = capacity - self.growth.lock()[pool.index()];
        let (mut free, mut largest) = (0, unopened);
        for shard in &self.shards {
            let books = shard.0.lock();
            let space = &books.spaces[pool.index()].free;
            free += u64::from(space.free_granules()) * granule(pool);
            largest = largest.max(u64::from(space.largest_free()) * granule(pool));
        }
        MemoryFault::PoolExhausted { pool: pool.name(), requested, available: unopened + free, capacity, largest }
    }

    /// Takes an allocation's memory back.
    pub(crate) fn release(self: &Arc<Window>, shard: usize, parts: &[PoolSpan; 3], plan: &PoolPlan) {
        // The books are waited for at the same time as the frame table, and those of all pools at once.
        self.shards[shard].0.lock().prefetch(parts);
        let code = &parts[SegmentKind::Code.index()];
        if code.id.is_some() {
            before_writing();
            if let Some(frames) = &self.frames {
                frames.clear(u64::from(code.offset), u64::from(code.granules));
            }
            if self.trap_freed_code {
                // SAFETY: M1 - released by their owner, and in nobody's books until they are freed below.
                unsafe { self.trap(code) };
            }
            after_writing();
        }
        let is_early = seeded_bug!("budget_given_back_before_the_memory");
        if is_early {
            self.budget.give_back(held_by(parts));
        }
        let freed_bytes = {
            let mut books = self.shards[shard].0.lock();
            books.release(parts, plan);
            books.freed_bytes
        };
        if !is_early {
            self.budget.give_back(held_by(parts));
        }
        self.count_out(plan.group);
        // Asked first: a word that is only read is shared for nothing.
        if freed_bytes > WORTH_A_LOOK && self.returns_memory && self.watched_in.load(Ordering::Relaxed) != generation()
        {
            self.watch();
        }
    }

    /// Fills freed code with traps.
    ///
    /// # Safety
    /// As for [`open_parts`](Self::open_parts), and nobody runs the code.
    unsafe fn trap(&self, code: &PoolSpan) {
        let alone = only(SegmentKind::Code, code);
        // SAFETY: M1 - by contract.
        if unsafe { self.open_parts(&alone) }.is_ok() {
            // SAFETY: M1 - by contract, and opened by the line above.
            unsafe { self.bytes(SegmentKind::Code, code, u64::from(code.granules) * TEXT_GRANULE) }.fill(TRAP);
            // A range that cannot be sealed again stays writable, and is not executable.
            // SAFETY: M1 - by contract, and opened above.
            let _ = unsafe { self.seal_parts(&alone) };
        }
    }

    /// Whether pages of a pool may go back to the kernel: trapped code would not trap any more.
    pub(crate) fn may_return(&self, pool: SegmentKind) -> bool {
        pool != SegmentKind::Code || !self.trap_freed_code
    }

    /// Lets an allocation's parts be written; stops at the first refusal.
    ///
    /// # Safety
    /// The parts were given out by this window's free space, and belong to the caller alone (M1).
    pub(crate) unsafe fn open_parts(&self, parts: &[PoolSpan; 3]) -> Result<()> {
        // SAFETY: M1, M6 - by contract.
        Ok(unsafe { self.mapped.open_all(&extents(parts)) }?)
    }

    /// Gives an allocation's parts their final protection; stops at the first refusal.
    ///
    /// # Safety
    /// As for [`open_parts`](Self::open_parts), which was called.
    pub(crate) unsafe fn seal_parts(&self, parts: &[PoolSpan; 3]) -> Result<()> {
        // SAFETY: M1, M6 - by contract.
        Ok(unsafe { self.mapped.seal_all(&extents(parts)) }?)
    }

    /// The first `size` writable bytes of a part.
    ///
    /// # Safety
    /// - As for [`open_parts`](Self::open_parts), which was called.
    /// - No other reference to the bytes lives as long as this one.
    #[allow(clippy::mut_from_ref)] // by contract
    pub(crate) unsafe fn bytes(&self, pool: SegmentKind, part: &PoolSpan, size: u64) -> &mut [u8] {
        let (start, held) = extent(pool, part);
        assert!(start + size <= self.layout.pool(pool).size && size <= held);
        // SAFETY: M1, M6 - inside the pool by the line above, and the part has one owner, which is the caller.
        unsafe { std::slice::from_raw_parts_mut(self.mapped.working_view(pool).add(start as usize), size as usize) }
    }

    pub(crate) fn address(&self, pool: SegmentKind, part: &PoolSpan) -> ExecutorAddr {
        self.starts[pool.index()].offset(extent(pool, part).0)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.is_announced.load(Ordering::Relaxed) {
            let (address, bytes) = (self.mapped.base(), self.layout.size);
            self.teller.tell_one(MemoryEvent::WindowUnmapped { address, bytes });
        }
    }
}

/// `(offset in the pool, size)` of a part, in bytes.
fn extent(pool: SegmentKind, part: &PoolSpan) -> (u64, u64) {
    (u64::from(part.offset) * granule(pool), u64::from(part.granules) * granule(pool))
}

/// What an allocation has of all pools, in bytes.
fn extents(parts: &[PoolSpan; 3]) -> [PoolRange; 3] {
    SegmentKind::ALL.map(|pool| {
        let (offset, size) = extent(pool, &parts[pool.index()]);
        PoolRange { offset, size }
    })
}

/// An allocation's part of one pool, without the others.
pub(crate) fn only(pool: SegmentKind, part: &PoolSpan) -> [PoolSpan; 3] {
    let mut parts = [PoolSpan::default(); 3];
    parts[pool.index()] = *part;
    parts
}

/// `int3`: a call into freed code stops at once.
const TRAP: u8 = 0xcc;

/// After so many bytes of removals somebody looks whether memory should go back.
const WORTH_A_LOOK: u64 = 8 << 20;
