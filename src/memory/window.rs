//! [`Window`]: a mapped window, its shards, and how far each pool is open.
//!
//! An allocation takes these steps:
//!
//! 1. Try the home shard of the thread.
//! 2. If its lock is held, try the other shards.
//! 3. If the shard is short of memory, open more for the home shard ([`grow`](Window::grow)) and try again.
//! 4. If no slab is left, take memory of any other shard.
//!
//! # Locks
//! Only `growth` is held over a system call: while a pool grows, and while pages return to the kernel (`purge.rs`). An
//! allocation that finds free memory does not take it. The lock of a shard guards arithmetic only.
//!
//! `windows.rs` chooses the window of an allocation, and `growth.rs` opens its pools. Model: `loom_tests/loom_growth.rs`.

use crate::arch::{FETCHES_EARLY, flush_code};
use crate::base::{ExecutorAddr, MemoryEvent, SegmentKind, align_up};
use crate::error::{MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::data_segment::DataSegment;
use crate::memory::events::{EventBuf, EventSink};
use crate::memory::fork_guard::{after_writing, before_writing, generation};
use crate::memory::frame_table::FrameTable;
use crate::memory::group_counts::GroupCounts;
use crate::memory::layout::{CHUNK, FRAME_SLOT, FRAME_TABLE_OFFSET, MAX_WINDOW, TEXT_GRANULE};
use crate::memory::layout::{PoolRange, WindowLayout, granule_size, reserved_bytes_per_granule};
use crate::memory::mapper::MappedWindow;
use crate::memory::options::{OnFull, SlabPoolOptions};
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::memory::purge_thread::PurgeThread;
use crate::memory::shard::{PoolPart, PoolParts, PoolSpan, Request, Reservation, Shard};
use crate::os::page_size;
use crate::sync::{Arc, AtomicBool, MappedU64, Mutex, Ordering, Rank, seeded_bug, thread_number};

pub(crate) struct Window {
    pub(crate) mapped: Arc<dyn MappedWindow>,
    pub(crate) layout: WindowLayout,
    /// The address of each pool. The mapping never changes it.
    pub(crate) pool_starts: [ExecutorAddr; 3],
    /// The unit of allocation of each pool in bytes: a multiple of the granule. The mapping never changes it.
    allocation_units: [u64; 3],
    pub(crate) frames: Option<FrameTable>,
    /// Changed under `growth`.
    pub(crate) data_segment: Option<DataSegment>,
    pub(crate) slab_size: u64,
    trap_freed_code: bool,
    pub(crate) returns_memory: bool,
    budget: Arc<Budget>,
    /// How far each pool is open. The lock is held
    /// - while a pool grows, so that slots of the frame table are initialised before their code is handed out;
    /// - while pages return to the kernel, so that a thread that is short of memory waits for these pages and does not
    ///   open a slab.
    pub(crate) growth: Mutex<Growth>,
    pub(crate) shards: Box<[ShardLock]>,
    /// The allocations in this window. `None` if there is only ever one window of its placement.
    groups: Option<GroupCounts>,
    /// The allocations in all windows below 2 GiB. `None` if this is not one of them.
    low_groups: Option<Arc<GroupCounts>>,
    /// As in [`PoolShared`].
    pub(crate) returned_bytes: Arc<MappedU64>,
    pub(crate) purge_thread: PurgeThread,
    pub(crate) sink: EventSink,
    /// Whether the observer got the event that the window is mapped, so that it also gets the event that it is
    /// unmapped. Relaxed: the drop of the last `Arc` orders the two.
    is_reported: AtomicBool,
}

/// How far each pool of a window is open (`growth.rs`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// Open bytes by pool, counted from the end of the pool.
    pub(crate) opened: [u64; 3],
    /// The shard that owns the lowest slab of code.
    pub(crate) code_owner: usize,
}

/// What the windows of a pool share.
pub(crate) struct PoolShared {
    pub(crate) budget: Arc<Budget>,
    pub(crate) sink: EventSink,
    /// The allocations below 2 GiB, and those that a thread is about to make there. Empty if every window of the pool
    /// lies there.
    pub(crate) low_groups: Arc<GroupCounts>,
    /// Bytes returned to the kernel so far, also by windows that are closed. For reports only.
    pub(crate) returned_bytes: Arc<MappedU64>,
}

/// A shard and its lock, on cache lines of their own, so that the locks of two threads never share one.
#[repr(align(128))]
pub(crate) struct ShardLock(pub(crate) Mutex<Shard>);

/// A shard of a window. Allocations keep the window through it. Each shard has its own reference count, on its own
/// cache line, so that threads on different shards do not contend.
#[repr(align(128))]
pub(crate) struct ShardRef {
    pub(crate) window: Arc<Window>,
    pub(crate) index: usize,
}

/// Memory that a shard of this window has reserved, before it becomes an allocation.
pub(crate) struct WindowReservation {
    pub(crate) shard: usize,
    pub(crate) reservation: Reservation,
}

impl Window {
    /// `is_low` says that the window is below 2 GiB, and that the other windows of the pool need not be. `mapped` passed
    /// [`check_new`](crate::memory::mapper::check_new) with `layout`.
    pub(crate) fn new(
        mapped: Arc<dyn MappedWindow>,
        layout: WindowLayout,
        options: &SlabPoolOptions,
        shared: &PoolShared,
        is_low: bool,
    ) -> Window {
        let pool_starts = SegmentKind::ALL.map(|pool| layout.pool_start(mapped.base(), pool));
        let populate_at_once = SegmentKind::ALL.map(|pool| mapped.pages_to_populate(pool));
        let shard = |_| ShardLock(Mutex::new(Shard::new(populate_at_once)));
        // SAFETY: M5, M6 - the start and the size are those of the code pool in the layout that the window was mapped
        // with: `check_new` has compared the layouts. It also found no other handle of the window, so no other table of
        // it exists.
        let frames = unsafe {
            FrameTable::new(&mapped, pool_starts[SegmentKind::Code.index()], layout.pool(SegmentKind::Code).size)
        };
        Window {
            pool_starts,
            // Several granules at a time if the mapping can only change the protection of larger units.
            allocation_units: SegmentKind::ALL.map(|pool| mapped.granule(pool).max(granule_size(pool))),
            data_segment: DataSegment::new(&mapped, layout.pool(SegmentKind::Data).size),
            frames,
            mapped,
            layout,
            slab_size: align_up(options.slab_size.clamp(CHUNK, MAX_WINDOW), CHUNK).unwrap_or(CHUNK),
            trap_freed_code: options.trap_freed_code,
            returns_memory: options.returns_memory,
            budget: shared.budget.clone(),
            growth: Mutex::ranked(Rank::Growth, Growth { opened: [0; 3], code_owner: 0 }),
            shards: (0..options.shard_count()).map(shard).collect(),
            groups: (options.on_full == OnFull::OpenAnother || is_low).then(GroupCounts::new),
            low_groups: is_low.then(|| shared.low_groups.clone()),
            returned_bytes: shared.returned_bytes.clone(),
            purge_thread: PurgeThread::new(),
            sink: shared.sink.clone(),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Records the event that the window is mapped, once it is certain that the window stays.
    pub(crate) fn report_mapped(&self, events: &mut EventBuf) {
        if self.sink.has_observer() {
            self.is_reported.store(true, Ordering::Relaxed);
            events.push(MemoryEvent::WindowMapped { address: self.mapped.base(), bytes: self.layout.size() });
        }
    }

    /// Whether the window has allocations of a group. Always true for group zero, which is no group.
    pub(crate) fn contains_group(&self, group: u64) -> bool {
        group == 0 || self.groups.as_ref().is_none_or(|groups| groups.contains(group))
    }

    /// Whether the window has no allocation.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.0.lock().allocations == [0; 4])
    }

    /// The counts of this window, and those that it shares.
    #[inline]
    fn group_counts(&self) -> impl Iterator<Item = &GroupCounts> {
        self.groups.iter().chain(self.low_groups.as_deref())
    }

    /// Reserves everything that a plan requests of one shard. Pools grow as needed. The caller then calls
    /// [`count_and_populate`](Self::count_and_populate) and delivers `events`.
    ///
    /// # Errors
    /// [`MemoryFault`]. A failed call holds no memory.
    pub(crate) fn reserve(&self, plan: &SegmentPlan, events: &mut EventBuf) -> Result<WindowReservation> {
        let mut request = [(0, 1); 3];
        for pool in SegmentKind::ALL {
            request[pool.index()] = self.granules_for(pool, plan)?;
        }
        let bytes_of = |pool: &SegmentKind| u64::from(request[pool.index()].0) * reserved_bytes_per_granule(*pool);
        let bytes = SegmentKind::ALL.iter().map(bytes_of).sum();
        self.budget.reserve(bytes)?;
        let home = self.home_shard();
        match self.try_reserve(home, &request, plan) {
            Ok(reservation) => Ok(reservation),
            Err(short_pool) => {
                let bytes = if seeded_bug!("refused_bytes_left_counted") { 0 } else { bytes };
                self.grow_and_reserve(home, short_pool, &request, plan, events)
                    .inspect_err(|_| self.budget.release(bytes))
            }
        }
    }

    /// The same if the home shard is short of a pool.
    #[cold]
    fn grow_and_reserve(
        &self,
        home: usize,
        mut short_pool: SegmentKind,
        request: &Request,
        plan: &SegmentPlan,
        events: &mut EventBuf,
    ) -> Result<WindowReservation> {
        loop {
            if let Err(exhausted) = self.grow(home, short_pool, request[short_pool.index()], events) {
                // No slab is left. Other shards may still have free memory.
                let found = (0..self.shards.len()).find_map(|other| self.reserve_from(other, request, plan).ok());
                return found.ok_or(exhausted);
            }
            short_pool = match self.try_reserve(home, request, plan) {
                Ok(reservation) => return Ok(reservation),
                Err(short_pool) => short_pool,
            };
        }
    }

    /// Counts the new allocation in its group, and populates its fresh pages. Called under the list of windows for a
    /// further window, else with no lock held. A purge at the same
    /// time may miss some of the pages that are populated here. Such pages are zero, and count as used when they are
    /// handed out.
    pub(crate) fn count_and_populate(&self, reservation: &WindowReservation, plan: &SegmentPlan) {
        self.group_counts().for_each(|groups| groups.add(plan.group));
        for (pool, pages) in &reservation.reservation.to_populate {
            self.mapped.populate(*pool, u64::from(pages.start) * page_size(), pages.len() as u64 * page_size());
        }
    }

    /// The home shard of the calling thread.
    fn home_shard(&self) -> usize {
        let (thread, count) = (thread_number(), self.shards.len());
        // A comparison is cheaper than a division, and usually there are as many shards as threads.
        if thread < count { thread } else { thread % count }
    }

    /// Reserves from the home shard. If its lock is held, reserves from another shard.
    #[inline(always)] // into `reserve`
    fn try_reserve(
        &self,
        home: usize,
        request: &Request,
        plan: &SegmentPlan,
    ) -> std::result::Result<WindowReservation, SegmentKind> {
        let Some(mut shard) = self.shards[home].0.try_lock() else {
            return self.reserve_from_others(home, request, plan);
        };
        let reservation = shard.reserve(request, plan)?;
        Ok(WindowReservation { shard: home, reservation })
    }

    /// Reserves from any shard whose lock is free, except `home`, whose lock is held. If none of them has the memory,
    /// waits for the lock of `home`.
    #[cold]
    fn reserve_from_others(
        &self,
        home: usize,
        request: &Request,
        plan: &SegmentPlan,
    ) -> std::result::Result<WindowReservation, SegmentKind> {
        let count = self.shards.len();
        for index in (1..count).map(|step| (home + step) % count) {
            let Some(mut shard) = self.shards[index].0.try_lock() else { continue };
            if let Ok(reservation) = shard.reserve(request, plan) {
                return Ok(WindowReservation { shard: index, reservation });
            }
        }
        self.reserve_from(home, request, plan)
    }

    /// Reserves from one shard, and waits for its lock.
    fn reserve_from(
        &self,
        shard: usize,
        request: &Request,
        plan: &SegmentPlan,
    ) -> std::result::Result<WindowReservation, SegmentKind> {
        let reservation = self.shards[shard].0.lock().reserve(request, plan)?;
        Ok(WindowReservation { shard, reservation })
    }

    /// Bytes of the header and of the used slots of the frame table, in entire pages, if `code_opened` bytes of code
    /// are open.
    pub(crate) fn frame_table_bytes(&self, code_opened: u64) -> u64 {
        let slots = code_opened / TEXT_GRANULE * FRAME_SLOT;
        if self.frames.is_some() { (FRAME_TABLE_OFFSET + slots).next_multiple_of(page_size()) } else { 0 }
    }

    /// `(granules, alignment in granules)` of the segment of a plan.
    fn granules_for(&self, pool: SegmentKind, plan: &SegmentPlan) -> Result<(u32, u32)> {
        let SegmentRequest { size, align, zero_fill } = *plan.segment(pool);
        let bad = |problem| MemoryFault::BadPlan { pool: pool.name(), size, align, problem };
        let align = align.max(1);
        if !align.is_power_of_two() {
            return Err(bad("the alignment is not a power of two").into());
        }
        if zero_fill > size {
            return Err(bad("the plan has more zero-fill bytes than the segment has").into());
        }
        let start = self.pool_starts[pool.index()].value();
        if start & (align - 1) != 0 {
            return Err(bad("the pool itself has a smaller alignment").into());
        }
        let capacity = self.layout.pool(pool).size;
        if size > capacity {
            return Err(self.pool_exhausted(pool, size).into());
        }
        let unit = self.allocation_units[pool.index()];
        let reserved = align_up(plan.bytes_to_reserve(pool), unit).unwrap_or(u64::MAX);
        if reserved > capacity {
            return Err(self.pool_exhausted(pool, reserved).into());
        }
        // Granules are powers of two. This runs for every link, and a division by a variable costs more than all the
        // rest.
        let bits = granule_size(pool).trailing_zeros();
        Ok(((reserved >> bits) as u32, (align.max(unit) >> bits) as u32))
    }

    pub(crate) fn pool_exhausted(&self, pool: SegmentKind, requested: u64) -> MemoryFault {
        let capacity = self.layout.pool(pool).size;
        let unopened = capacity - self.growth.lock().opened[pool.index()];
        let (mut free, mut largest) = (0, unopened);
        for shard in &self.shards {
            let shard = shard.0.lock();
            let space = &shard.spaces[pool.index()].free;
            free += u64::from(space.free_granules()) * granule_size(pool);
            largest = largest.max(u64::from(space.largest_free()) * granule_size(pool));
        }
        MemoryFault::PoolExhausted { pool: pool.name(), requested, available: unopened + free, capacity, largest }
    }

    /// The address of the record of the first span of an allocation of shard `shard`, if it has one.
    pub(crate) fn free_space_record(&self, shard: usize, parts: PoolParts<'_>) -> Option<usize> {
        self.shards[shard].0.lock().free_space_record(parts)
    }

    /// Frees the memory of an allocation of shard `shard`.
    pub(crate) fn release(self: &Arc<Window>, shard: usize, parts: PoolParts<'_>, group: u64) {
        // The records of all pools then come into the cache while the frame table is written.
        self.shards[shard].0.lock().prefetch(parts);
        if let Some(PoolPart { span: code, .. }) = parts.of(SegmentKind::Code) {
            before_writing();
            if let Some(frames) = &self.frames {
                frames.clear(u64::from(code.offset), u64::from(code.granules));
            }
            if self.trap_freed_code {
                // SAFETY: M1 - the owner has released the span, and the free space gets it only below. So this function
                // is its only owner.
                unsafe { self.fill_with_traps(code) };
            }
            after_writing();
        }
        let reserved_bytes = parts.reserved_bytes();
        let is_early = seeded_bug!("budget_given_back_before_the_memory");
        if is_early {
            self.budget.release(reserved_bytes);
        }
        let freed_bytes = {
            let mut shard = self.shards[shard].0.lock();
            shard.release(parts, reserved_bytes);
            shard.freed_bytes
        };
        if !is_early {
            self.budget.release(reserved_bytes);
        }
        self.group_counts().for_each(|groups| groups.remove(group));
        if freed_bytes > PURGE_CHECK_BYTES && self.returns_memory && !self.purge_thread.is_running(generation()) {
            self.start_purge_thread();
        }
    }

    /// Fills freed code with trap instructions.
    ///
    /// # Safety
    /// As for [`open_spans`](Self::open_spans), and no thread runs the code.
    unsafe fn fill_with_traps(&self, code: &PoolSpan) {
        let code_only = only_span(SegmentKind::Code, code);
        // SAFETY: M1 - the caller owns the span alone.
        if unsafe { self.open_spans(&code_only) }.is_ok() {
            // SAFETY: M1 - the caller owns the span alone, and the line above has opened it.
            let bytes = unsafe { self.working_bytes(SegmentKind::Code, code, u64::from(code.granules) * TEXT_GRANULE) };
            // A call into freed code stops at once.
            bytes.fill(self.mapped.trap());
            let (written, size) = (bytes.as_ptr(), bytes.len());
            // If the kernel does not seal the range again, it stays writable and is not executable (M2).
            // SAFETY: M1 - the caller owns the span alone, and it was opened above.
            let _ = unsafe { self.seal_spans(&code_only) };
            // The process that runs a copy does this for its own caches.
            if FETCHES_EARLY && !self.mapped.is_copied() {
                let running = self.address(SegmentKind::Code, code).value() as *const u8;
                // SAFETY: M1, M4 - both are views of the span, which the caller owns alone.
                unsafe { flush_code(written, running, size) };
            }
        }
    }

    /// Whether pages of a pool may return to the kernel. Code that is filled with traps may not, because its pages
    /// would be zero.
    pub(crate) fn may_purge(&self, pool: SegmentKind) -> bool {
        pool != SegmentKind::Code || !self.trap_freed_code
    }

    /// Makes the spans of an allocation writable.
    ///
    /// # Errors
    /// The first refusal.
    ///
    /// # Safety
    /// The free space of this window has given out the spans, and only the caller owns them (M1).
    pub(crate) unsafe fn open_spans(&self, spans: &[PoolSpan; 3]) -> Result<()> {
        // SAFETY: M1, M6 - the free space of this window gave out the spans, so they are entire granules in their
        // pools, and the caller owns them.
        Ok(unsafe { self.mapped.open_all(&byte_ranges(spans)) }?)
    }

    /// Gives the spans of an allocation their final protection.
    ///
    /// # Errors
    /// The first refusal.
    ///
    /// # Safety
    /// As for [`open_spans`](Self::open_spans), which was called for them.
    pub(crate) unsafe fn seal_spans(&self, spans: &[PoolSpan; 3]) -> Result<()> {
        // SAFETY: M1, M6 - the free space of this window gave out the spans, and the caller owns and has opened them.
        Ok(unsafe { self.mapped.seal_all(&byte_ranges(spans)) }?)
    }

    /// The first `size` bytes of a span, through the working view.
    ///
    /// # Safety
    /// - As for [`open_spans`](Self::open_spans), which was called for the span.
    /// - While the returned slice lives, there is no other reference to its bytes.
    #[allow(clippy::mut_from_ref)] // the caller guarantees that it is the only reference
    pub(crate) unsafe fn working_bytes(&self, pool: SegmentKind, span: &PoolSpan, size: u64) -> &mut [u8] {
        let (start, reserved) = byte_range(pool, span);
        assert!(start + size <= self.layout.pool(pool).size && size <= reserved);
        // SAFETY: M6 - `start` is inside the pool by the assertion, and the working view has as many bytes as the pool.
        let first = unsafe { self.mapped.working_view(pool).add(start as usize) };
        // SAFETY: M1, M6 - the assertion keeps the slice inside the span, which only the caller owns. The caller
        // guarantees that there is no other reference.
        unsafe { std::slice::from_raw_parts_mut(first, size as usize) }
    }

    pub(crate) fn address(&self, pool: SegmentKind, span: &PoolSpan) -> ExecutorAddr {
        self.pool_starts[pool.index()].offset(byte_range(pool, span).0)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.is_reported.load(Ordering::Relaxed) {
            let (address, bytes) = (self.mapped.base(), self.layout.size());
            self.sink.deliver_one(MemoryEvent::WindowUnmapped { address, bytes });
        }
    }
}

/// `(offset in the pool, size)` of a span in bytes.
fn byte_range(pool: SegmentKind, span: &PoolSpan) -> (u64, u64) {
    (u64::from(span.offset) * granule_size(pool), u64::from(span.granules) * granule_size(pool))
}

/// The byte ranges of an allocation, by pool.
fn byte_ranges(spans: &[PoolSpan; 3]) -> [PoolRange; 3] {
    SegmentKind::ALL.map(|pool| {
        let (offset, size) = byte_range(pool, &spans[pool.index()]);
        PoolRange { offset, size }
    })
}

/// One span, and empty spans for the other pools.
pub(crate) fn only_span(pool: SegmentKind, span: &PoolSpan) -> [PoolSpan; 3] {
    let mut spans = [PoolSpan::default(); 3];
    spans[pool.index()] = *span;
    spans
}

/// After so many freed bytes of a shard, a thread checks whether pages should return to the kernel.
pub(crate) const PURGE_CHECK_BYTES: u64 = 2 << 20;
