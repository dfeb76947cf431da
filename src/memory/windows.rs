//! [`Windows`]: the windows of a [`SlabPool`](crate::memory::SlabPool), and the choice of one for each allocation.
//!
//! Nearly always there is one window. Another one is opened
//!
//! - when the first is full and the options say [`OnFull::OpenAnother`];
//! - when an allocation must lie below 2 GiB and the options do not place all windows there.
//!
//! Allocations of the same group (a dylib) go into a window that has the group, while it has space: a 32-bit
//! displacement is sure to reach only within one window. Without pooling, each allocation has a window of its own.
//!
//! The pool of a session maps its first window when it first allocates, so a session that links nothing maps nothing.
//!
//! # Locks
//! The first window is set once and never changes, so an allocation from it takes no lock of this file. The lock of the other windows
//! is held while one of them is opened, searched or closed. Model: `loom_tests/loom_growth.rs`.

use crate::base::SegmentKind;
use crate::error::{Error, ErrorKind, MemoryFault, Result};
use crate::memory::allocation::InFlight;
use crate::memory::budget::Budget;
use crate::memory::events::{EventBuf, EventSink};
use crate::memory::fork_guard::before_writing;
use crate::memory::group_counts::GroupCounts;
use crate::memory::layout::{CHUNK, MAX_WINDOW, WindowLayout};
use crate::memory::manager::Released;
use crate::memory::mapper::{MemoryMapper, Placement, check_new};
use crate::memory::options::{OnFull, SlabPoolOptions};
use crate::memory::plan::SegmentPlan;
use crate::memory::shard::PoolSpace;
use crate::memory::slab_allocation::{new_allocation, record_bytes};
use crate::memory::statistics::MemoryStatistics;
use crate::memory::window::{PoolShared, ShardRef, Window};
use crate::sync::{Arc, AtomicBool, MappedU64, Mutex, Ordering, Rank, StaticCell, Weak, seeded_bug};

pub(crate) struct Windows {
    mapper: Box<dyn MemoryMapper>,
    options: SlabPoolOptions,
    shared: PoolShared,
    /// Set by [`open_first`](Self::open_first).
    first: StaticCell<OpenWindow>,
    others: Mutex<Vec<(Placement, OpenWindow)>>,
    /// Whether `others` has any window. Read without its lock, and Relaxed: who knows a group has it from an earlier allocation, and sees
    /// its window. Who sees an old value allocates from the first window.
    has_others: AtomicBool,
    /// Whether `shared.low_groups` ever had any group. Read without its lock, and Relaxed, as above.
    has_low_groups: AtomicBool,
    /// Without pooling: the window of each allocation, as long as it lives.
    unpooled: Mutex<Vec<Weak<Window>>>,
}

/// A window from which many allocations are made.
struct OpenWindow {
    window: Arc<Window>,
    /// The reference of each shard.
    shards: Box<[Arc<ShardRef>]>,
}

impl OpenWindow {
    fn new(window: Window) -> OpenWindow {
        let window = Arc::new(window);
        let shard_ref = |index| Arc::new(ShardRef { window: window.clone(), index });
        OpenWindow { shards: (0..window.shards.len()).map(shard_ref).collect(), window }
    }

    fn allocate(&self, plan: &SegmentPlan, events: &mut EventBuf) -> Result<Box<dyn InFlight>> {
        let reservation = self.window.reserve(plan, events)?;
        self.window.count_and_populate(&reservation, plan);
        new_allocation(&self.shards[reservation.shard], plan, &reservation.reservation)
    }
}

impl Windows {
    /// Maps no window.
    pub(crate) fn new(mapper: Box<dyn MemoryMapper>, options: SlabPoolOptions, sink: EventSink) -> Windows {
        let shared = PoolShared {
            budget: Arc::new(Budget::new(options.budget)),
            sink,
            low_groups: Arc::new(GroupCounts::new()),
            returned_bytes: Arc::new(MappedU64::new(0)),
        };
        Windows {
            mapper,
            options,
            shared,
            first: StaticCell::new(),
            others: Mutex::ranked(Rank::Windows, Vec::new()),
            has_others: AtomicBool::new(false),
            has_low_groups: AtomicBool::new(false),
            unpooled: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Maps the first window, if no allocation has.
    ///
    /// # Errors
    /// If the kernel refuses even the smallest window: the refusal of that one.
    pub(crate) fn map_first(&self) -> Result<()> {
        self.first_or_open(&mut self.shared.sink.deferred().events).map(drop)
    }

    fn first_or_open(&self, events: &mut EventBuf) -> Result<&OpenWindow> {
        loop {
            if let Some(first) = self.first.get() {
                return Ok(first);
            }
            self.open_first(events)?;
        }
    }

    /// The first window, if it is mapped.
    pub(crate) fn first(&self) -> Option<&Window> {
        self.first.get().map(|first| &*first.window)
    }

    /// Maps the first window, if no other thread does so first.
    ///
    /// No lock is held while it is mapped, for the reason that [`allocate_from_others`](Self::allocate_from_others) has. So several
    /// threads may map a window at once. The window of one of them is kept, and the others are unmapped without an event.
    ///
    /// # Errors
    /// If the kernel refuses even the smallest window, and no other thread has mapped one: the refusal of that one.
    #[cold]
    fn open_first(&self, events: &mut EventBuf) -> Result<()> {
        let new = match map_window(&*self.mapper, &self.options, self.options.placement, &self.shared) {
            Ok(window) => OpenWindow::new(window),
            Err(_) if self.first.get().is_some() => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        let window = new.window.clone();
        let unkept = {
            let _others = self.others.lock();
            self.first.set(new).err()
        };
        if unkept.is_none() {
            window.report_mapped(events);
        }
        Ok(())
    }

    /// Allocates from the window that suits the plan.
    ///
    /// # Errors
    /// [`MemoryFault`]. A failed call holds no memory.
    pub(crate) fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        before_writing();
        let mut deferred = self.shared.sink.deferred();
        self.allocate_recording(plan, &mut deferred.events)
    }

    /// The same. The caller delivers `events` when it holds no lock.
    fn allocate_recording(&self, plan: &SegmentPlan, events: &mut EventBuf) -> Result<Box<dyn InFlight>> {
        if self.options.placement != Placement::Low2GiB && self.is_low(plan) {
            return self.allocate_low(plan, events);
        }
        if !self.options.is_pooled {
            return self.allocate_unpooled(plan, self.options.placement, events);
        }
        let first = self.first_or_open(events)?;
        if self.has_others.load(Ordering::Relaxed)
            && !first.window.contains_group(plan.group)
            && let Some(result) = self.allocate_with_group(plan, events)
        {
            return result;
        }
        match first.allocate(plan, events) {
            Err(error) if is_exhausted(&error) && self.options.on_full == OnFull::OpenAnother => {
                self.allocate_from_others(plan, self.options.placement, events)
            }
            result => result,
        }
    }

    /// Allocates below 2 GiB, where the first window is not.
    #[cold]
    fn allocate_low(&self, plan: &SegmentPlan, events: &mut EventBuf) -> Result<Box<dyn InFlight>> {
        // Held until the allocation is counted or has failed: a window may be mapped meanwhile.
        let _claim = plan.low.then(|| self.claim_low(plan.group));
        if self.options.is_pooled {
            self.allocate_from_others(plan, Placement::Low2GiB, events)
        } else {
            self.allocate_unpooled(plan, Placement::Low2GiB, events)
        }
    }

    /// Whether a plan must lie below 2 GiB: because it says so, or because its group has such an allocation, which may
    /// refer to it by a 32-bit address.
    fn is_low(&self, plan: &SegmentPlan) -> bool {
        plan.low || self.has_low_groups.load(Ordering::Relaxed) && self.shared.low_groups.contains(plan.group)
    }

    /// Counts an allocation below 2 GiB that is about to be made, so that other allocations of its group lie there,
    /// too.
    fn claim_low(&self, group: u64) -> LowClaim<'_> {
        self.shared.low_groups.add(group);
        self.has_low_groups.store(true, Ordering::Relaxed);
        LowClaim { groups: &self.shared.low_groups, group }
    }

    /// Allocates from another window that has the group. `None` if there is no such window or all of them are full.
    fn allocate_with_group(&self, plan: &SegmentPlan, events: &mut EventBuf) -> Option<Result<Box<dyn InFlight>>> {
        allocate_from_open_of(&self.others.lock(), plan, (self.options.placement, true), events)
    }

    /// Allocates from any other window of this placement that has space, or from a new one.
    ///
    /// No lock is held while the new window is mapped: the mapping waits for a fork of another thread, and a fork handler
    /// of the program may need the lock. So several threads may map a window at once. One of them keeps its window; the
    /// others allocate from that one if it has space, and unmap theirs.
    fn allocate_from_others(
        &self,
        plan: &SegmentPlan,
        placement: Placement,
        events: &mut EventBuf,
    ) -> Result<Box<dyn InFlight>> {
        if let Some(result) = allocate_from_open(&self.others.lock(), plan, placement, events) {
            return result;
        }
        let mut options = self.options;
        if placement != self.options.placement {
            // Addresses below 2 GiB are scarce, and all sessions of the process share them.
            options.window_size = smallest_for(plan).max(LOW_WINDOW).min(options.window_size);
        }
        // Declared before the lock, so that a window that is not kept is unmapped without it.
        let new = map_window(&*self.mapper, &options, placement, &self.shared).map(OpenWindow::new);
        let mut others = self.others.lock();
        if !seeded_bug!("window_opened_under_a_later_lock")
            && let Some(result) = allocate_from_open(&others, plan, placement, events)
        {
            return result;
        }
        // If the plan fits into no window at all, the new window is unmapped again, without an event.
        let allocation = allocate_from_new(new.as_ref().map_err(Error::clone)?, plan, events)?;
        others.extend(new.ok().map(|window| (placement, window)));
        self.has_others.store(true, Ordering::Relaxed);
        Ok(allocation)
    }

    /// Allocates from a new window of its own, as small as possible.
    fn allocate_unpooled(
        &self,
        plan: &SegmentPlan,
        placement: Placement,
        events: &mut EventBuf,
    ) -> Result<Box<dyn InFlight>> {
        let window_size = smallest_for(plan);
        let options = SlabPoolOptions { window_size, shards: 1, returns_memory: false, ..self.options };
        let window = OpenWindow::new(map_window(&*self.mapper, &options, placement, &self.shared)?);
        let allocation = allocate_from_new(&window, plan, events)?;
        let mut unpooled = self.unpooled.lock();
        unpooled.retain(|window| window.strong_count() > 0);
        unpooled.push(Arc::downgrade(&window.window));
        Ok(allocation)
    }

    /// All windows that are mapped. The first window comes first.
    pub(crate) fn all(&self) -> Vec<Arc<Window>> {
        let mut all: Vec<_> = self.first.get().map(|first| first.window.clone()).into_iter().collect();
        all.extend(self.others.lock().iter().map(|(_, open)| open.window.clone()));
        all.extend(self.unpooled.lock().iter().filter_map(Weak::upgrade));
        all
    }

    pub(crate) fn statistics(&self) -> MemoryStatistics {
        let returned_bytes = self.shared.returned_bytes.load(Ordering::Relaxed);
        let mut sum = MemoryStatistics { returned_bytes, ..MemoryStatistics::default() };
        for window in self.all() {
            sum.windows += 1;
            let mut opened_code = 0;
            for shard in &window.shards {
                let shard = shard.0.lock();
                sum.allocations += shard.allocations.iter().sum::<usize>();
                sum.live_bytes += shard.live_bytes();
                sum.reserved_bytes += shard.bytes(PoolSpace::used_granules);
                sum.opened_bytes += shard.bytes(PoolSpace::granules);
                sum.free_bytes += shard.bytes(PoolSpace::free_granules);
                sum.free_ranges += shard.spaces.iter().map(|space| space.free.free_ranges()).sum::<usize>();
                sum.resident_bytes += shard.resident_bytes();
                sum.metadata_bytes += shard.heap_bytes() + record_bytes(&shard.allocations);
                let before = sum.pools[SegmentKind::Code.index()].opened;
                for (pool, sum) in SegmentKind::ALL.into_iter().zip(&mut sum.pools) {
                    shard.add_to(pool, sum);
                }
                opened_code += sum.pools[SegmentKind::Code.index()].opened - before;
            }
            sum.frame_table_bytes += window.frame_table_bytes(opened_code);
        }
        sum
    }

    /// Returns free pages to the kernel, or only entire free slabs. Then unmaps the empty windows, except the first
    /// one.
    pub(crate) fn purge(&self, only_slabs: bool) -> Released {
        let mut released = Released::default();
        for window in self.all() {
            let more = if only_slabs { window.purge_slabs() } else { window.purge_pages() };
            released.bytes += more.bytes;
            released.slabs += more.slabs;
        }
        let empty: Vec<_> = {
            // No thread allocates from these windows without this lock. They are unmapped after it is released.
            let mut others = self.others.lock();
            let windows = std::mem::take(&mut *others).into_iter();
            let (empty, used) = windows.partition(|(_, open)| open.window.is_empty());
            if seeded_bug!("windows_kept_under_a_later_lock") {
                drop(others);
                others = self.others.lock();
            }
            *others = used;
            self.has_others.store(!others.is_empty(), Ordering::Relaxed);
            empty
        };
        drop(empty);
        released
    }
}

/// Counts an allocation in its group until the window counts it.
struct LowClaim<'a> {
    groups: &'a GroupCounts,
    group: u64,
}

impl Drop for LowClaim<'_> {
    fn drop(&mut self) {
        self.groups.remove(self.group);
    }
}

/// Allocates from the first of these windows that has this placement and space. The windows that have the group come
/// before the others. `None` if there is none.
fn allocate_from_open(
    windows: &[(Placement, OpenWindow)],
    plan: &SegmentPlan,
    placement: Placement,
    events: &mut EventBuf,
) -> Option<Result<Box<dyn InFlight>>> {
    [true, false].iter().find_map(|has_group| allocate_from_open_of(windows, plan, (placement, *has_group), events))
}

/// The same, for only the windows that have the group of the plan, or only those that do not.
fn allocate_from_open_of(
    windows: &[(Placement, OpenWindow)],
    plan: &SegmentPlan,
    (placement, has_group): (Placement, bool),
    events: &mut EventBuf,
) -> Option<Result<Box<dyn InFlight>>> {
    let suits = |(place, open): &&(Placement, OpenWindow)| {
        *place == placement && open.window.contains_group(plan.group) == has_group
    };
    let suitable = windows.iter().filter(suits);
    suitable.map(|(_, window)| window.allocate(plan, events)).find(|result| !result.as_ref().is_err_and(is_exhausted))
}

/// Allocates from a window that was just mapped. The events of the window are recorded only if that succeeds.
fn allocate_from_new(window: &OpenWindow, plan: &SegmentPlan, events: &mut EventBuf) -> Result<Box<dyn InFlight>> {
    let mut growth = EventBuf::new();
    let allocation = window.allocate(plan, &mut growth)?;
    window.window.report_mapped(events);
    events.extend(growth);
    Ok(allocation)
}

/// Maps a window. As long as the kernel refuses, tries half the size.
fn map_window(
    mapper: &dyn MemoryMapper,
    options: &SlabPoolOptions,
    placement: Placement,
    shared: &PoolShared,
) -> Result<Window> {
    let is_low = placement == Placement::Low2GiB && options.placement != placement;
    let mut size = options.window_size.clamp(MIN_WINDOW, MAX_WINDOW);
    loop {
        let layout = WindowLayout::divide(size).ok_or_else(|| bad_window(size))?;
        match mapper.map_window(&layout, placement) {
            Ok(mapped) => return Ok(Window::new(check_new(mapped, &layout)?, layout, options, shared, is_low)),
            Err(refusal) if size == MIN_WINDOW => return Err(refusal.into()),
            // The default size is no power of two, so its halves alone would skip the smallest window.
            Err(_) => size = (size / 2).max(MIN_WINDOW),
        }
    }
}

/// The size in bytes of the smallest window that a plan fits into. If it fits into none, the size of the largest
/// window.
fn smallest_for(plan: &SegmentPlan) -> u64 {
    let fits = |size: &u64| {
        let layout = WindowLayout::divide(*size);
        layout.is_some_and(|layout| {
            // The slots of the frames count, too: a window for the bytes alone would refuse many tiny functions.
            SegmentKind::ALL.iter().all(|pool| plan.bytes_to_reserve(*pool) <= layout.pool(*pool).size)
        })
    };
    let sizes = std::iter::successors(Some(MIN_WINDOW), |size| Some((size * 2).min(MAX_WINDOW)));
    sizes.take(WINDOW_SIZES).find(fits).unwrap_or(MAX_WINDOW)
}

fn is_exhausted(error: &crate::error::Error) -> bool {
    matches!(error.kind(), ErrorKind::Memory(MemoryFault::PoolExhausted { .. }))
}

fn bad_window(size: u64) -> MemoryFault {
    MemoryFault::BadPlan { pool: "any", size, align: CHUNK, problem: "the window is too small for three pools" }
}

/// The size of the smallest window in bytes.
const MIN_WINDOW: u64 = 32 << 20;

/// The size in bytes of a window below 2 GiB, if the options do not ask for that placement.
const LOW_WINDOW: u64 = 64 << 20;

/// The number of window sizes, from the smallest to the largest, each twice the one before.
const WINDOW_SIZES: usize = 7;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::base::MemoryEvent;
    use crate::memory::mapper::MappedWindow;
    use crate::memory::plan::SegmentRequest;
    use crate::memory::system_mapper::SystemMapper;

    /// Maps a window when two threads have asked for one. The second thread gets its answer when the first window is in use.
    struct TwoAsk {
        calls: AtomicUsize,
        both: Barrier,
        in_use: Arc<Barrier>,
        refuses_second: bool,
    }

    impl MemoryMapper for TwoAsk {
        fn map_window(
            &self,
            layout: &WindowLayout,
            placement: Placement,
        ) -> std::result::Result<Arc<dyn MappedWindow>, MemoryFault> {
            match self.calls.fetch_add(1, Ordering::Relaxed) {
                0 => drop(self.both.wait()),
                1 => {
                    self.both.wait();
                    self.in_use.wait();
                    if self.refuses_second {
                        let (step, problem) = ("the test".to_string(), "one is enough".to_string());
                        return Err(MemoryFault::Refused { step, problem });
                    }
                }
                _ => unreachable!("the smallest window was refused"),
            }
            SystemMapper::default().map_window(layout, placement)
        }
    }

    /// Two threads allocate first, and both map a window. Checks that both have memory of one window, and that one was reported.
    fn allocate_in_two_threads(refuses_second: bool) {
        let in_use = Arc::new(Barrier::new(2));
        let mapper =
            TwoAsk { calls: AtomicUsize::new(0), both: Barrier::new(2), in_use: in_use.clone(), refuses_second };
        let reported = Arc::new(AtomicUsize::new(0));
        let sum = reported.clone();
        let sink = EventSink::new(Arc::new(move |event| {
            sum.fetch_add(matches!(event, MemoryEvent::WindowMapped { .. }).into(), Ordering::Relaxed);
        }));
        let options = SlabPoolOptions { window_size: MIN_WINDOW, ..SlabPoolOptions::default() };
        let windows = Windows::new(Box::new(mapper), options, sink);
        let mut plan = SegmentPlan::default();
        plan.segments[SegmentKind::Data.index()] = SegmentRequest { size: 16, align: 16, zero_fill: 0 };
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| windows.allocate(&plan).map(drop)));
            while windows.first().is_none() {
                std::thread::yield_now();
            }
            in_use.wait();
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        assert_eq!((windows.all().len(), reported.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn of_two_first_windows_one_is_kept_and_reported() {
        allocate_in_two_threads(false);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn a_refused_first_window_is_no_error_if_another_thread_has_mapped_one() {
        allocate_in_two_threads(true);
    }
}
