//! [`Windows`]: the windows that one pool of code memory consists of.
//!
//! Nearly always one. A second one is opened when the policy says so and the first is full, or when an allocation has to
//! lie below 2 GiB and the first does not. What belongs together (a dylib) goes where its own kind is already, as long as
//! there is room, since only within one window does everything reach everything. With pooling switched off each allocation
//! has a window of its own.
//!
//! The common way takes no lock here: the first window is known. The list of the others is locked while one is opened.

use crate::base::SegmentKind;
use crate::error::{ErrorKind, MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::events::{EventBuf, EventSink};
use crate::memory::fork_guard::before_writing;
use crate::memory::layout::{CHUNK, MAX_WINDOW, WindowLayout};
use crate::memory::manager::{MemoryStatistics, Released};
use crate::memory::mapper::{MemoryMapper, Placement};
use crate::memory::plan::SegmentPlan;
use crate::memory::shard::PoolSpace;
use crate::memory::slab_allocation::SlabAllocation;
use crate::memory::slab_pool::{OnFull, SlabPoolOptions};
use crate::memory::window::{ShardRef, Window};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Rank, Weak, seeded_bug};

pub(crate) struct Windows {
    mapper: Box<dyn MemoryMapper>,
    options: SlabPoolOptions,
    budget: Arc<Budget>,
    teller: EventSink,
    first: OpenWindow,
    more: Mutex<Vec<(Placement, OpenWindow)>>,
    /// Whether `more` holds any: asked without its lock.
    has_more: AtomicBool,
    /// What belongs together, and has something that must lie below 2 GiB.
    low_groups: Mutex<Vec<u64>>,
    has_low: AtomicBool,
    /// With pooling switched off: those that are still there.
    single: Mutex<Vec<Weak<Window>>>,
}

/// A window that is allocated from.
struct OpenWindow {
    window: Arc<Window>,
    /// By shard.
    homes: Box<[Arc<ShardRef>]>,
}

impl OpenWindow {
    fn new(window: Window) -> OpenWindow {
        let window = Arc::new(window);
        let home = |shard| Arc::new(ShardRef { window: window.clone(), shard });
        OpenWindow { homes: (0..window.shards.len()).map(home).collect(), window }
    }

    fn allocate(&self, plan: &SegmentPlan, happened: &mut EventBuf) -> Result<Box<SlabAllocation>> {
        let taken = self.window.take(plan, happened)?;
        self.window.count_and_back(&taken, plan);
        SlabAllocation::new(&self.homes[taken.shard], plan, &taken.claimed)
    }
}

impl Windows {
    /// Maps the first window.
    ///
    /// # Errors
    /// When even the smallest is refused: the refusal of that one.
    pub(crate) fn open(mapper: Box<dyn MemoryMapper>, options: SlabPoolOptions, teller: EventSink) -> Result<Windows> {
        let budget = Arc::new(Budget::new(options.budget));
        let first = OpenWindow::new(map(&*mapper, &options, options.placement, &budget, &teller)?);
        first.window.announce(&mut teller.telling().happened);
        Ok(Windows {
            mapper,
            teller,
            options,
            budget,
            first,
            more: Mutex::ranked(Rank::Windows, Vec::new()),
            has_more: AtomicBool::new(false),
            low_groups: Mutex::new(Vec::new()),
            has_low: AtomicBool::new(false),
            single: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(crate) fn first(&self) -> &Window {
        &self.first.window
    }

    pub(crate) fn allocate(&self, plan: &SegmentPlan) -> Result<Box<SlabAllocation>> {
        before_writing();
        let mut telling = self.teller.telling();
        self.find_room(plan, &mut telling.happened)
    }

    /// What happened meanwhile is to be told when no lock is held.
    fn find_room(&self, plan: &SegmentPlan, happened: &mut EventBuf) -> Result<Box<SlabAllocation>> {
        if !self.options.is_pooled {
            return self.allocate_alone(plan, happened);
        }
        if self.options.placement != Placement::Low2GiB && self.is_low(plan) {
            return self.allocate_in_another(plan, Placement::Low2GiB, happened);
        }
        // What belongs together stays together.
        if self.has_more.load(Ordering::Relaxed)
            && !self.first.window.houses(plan.group)
            && let Some(claim) = self.allocate_beside_its_kind(plan, happened)
        {
            return claim;
        }
        match self.first.allocate(plan, happened) {
            Err(error) if is_exhausted(&error) && self.options.on_full == OnFull::OpenAnother => {
                self.allocate_in_another(plan, self.options.placement, happened)
            }
            done => done,
        }
    }

    /// Whether a plan has to lie below 2 GiB: because it says so, or because something that it belongs together with did,
    /// which may name it in 32 bits.
    fn is_low(&self, plan: &SegmentPlan) -> bool {
        if !plan.low && !self.has_low.load(Ordering::Relaxed) {
            return false;
        }
        let mut groups = self.low_groups.lock();
        if plan.low && plan.group != 0 && !groups.contains(&plan.group) {
            groups.push(plan.group);
            self.has_low.store(true, Ordering::Relaxed);
        }
        plan.low || groups.contains(&plan.group)
    }

    fn allocate_beside_its_kind(
        &self,
        plan: &SegmentPlan,
        happened: &mut EventBuf,
    ) -> Option<Result<Box<SlabAllocation>>> {
        let more = self.more.lock();
        let (_, window) = more.iter().find(|(_, open)| open.window.houses(plan.group))?;
        let claim = window.allocate(plan, happened);
        if claim.as_ref().is_err_and(is_exhausted) { None } else { Some(claim) }
    }

    /// From any further window that has room, or from a new one.
    fn allocate_in_another(
        &self,
        plan: &SegmentPlan,
        placement: Placement,
        happened: &mut EventBuf,
    ) -> Result<Box<SlabAllocation>> {
        let mut more = self.more.lock();
        for (_, window) in more.iter().filter(|(place, _)| *place == placement) {
            match window.allocate(plan, happened) {
                Err(error) if is_exhausted(&error) => {}
                done => return done,
            }
        }
        if seeded_bug!("window_opened_under_a_later_lock") {
            drop(more);
            more = self.more.lock();
        }
        let mut options = self.options;
        if placement != self.options.placement {
            // There is little room below 2 GiB, for every session of the process.
            options.window_size = smallest_for(plan).max(LOW_WINDOW).min(options.window_size);
        }
        let window = OpenWindow::new(map(&*self.mapper, &options, placement, &self.budget, &self.teller)?);
        // What fits into no window at all leaves none behind, and nobody hears of any.
        let claim = allocate_in_new(&window, plan, happened)?;
        more.push((placement, window));
        self.has_more.store(true, Ordering::Relaxed);
        Ok(claim)
    }

    /// A window of its own, no larger than need be.
    fn allocate_alone(&self, plan: &SegmentPlan, happened: &mut EventBuf) -> Result<Box<SlabAllocation>> {
        let window_size = smallest_for(plan);
        let placement = if plan.low { Placement::Low2GiB } else { self.options.placement };
        let options = SlabPoolOptions { window_size, shards: 1, returns_memory: false, ..self.options };
        let window = OpenWindow::new(map(&*self.mapper, &options, placement, &self.budget, &self.teller)?);
        let claim = allocate_in_new(&window, plan, happened)?;
        let mut single = self.single.lock();
        single.retain(|window| window.strong_count() > 0);
        single.push(Arc::downgrade(&window.window));
        Ok(claim)
    }

    /// Every window that there is, the first one first.
    pub(crate) fn all(&self) -> Vec<Arc<Window>> {
        let mut all = vec![self.first.window.clone()];
        all.extend(self.more.lock().iter().map(|(_, open)| open.window.clone()));
        all.extend(self.single.lock().iter().filter_map(Weak::upgrade));
        all
    }

    pub(crate) fn statistics(&self) -> MemoryStatistics {
        let mut sum = MemoryStatistics::default();
        for window in self.all() {
            sum.windows += 1;
            let mut opened_code = 0;
            for shard in &window.shards {
                let books = shard.0.lock();
                sum.allocations += books.allocations;
                sum.live_bytes += books.live_bytes();
                sum.reserved_bytes += books.bytes(PoolSpace::used_granules);
                sum.opened_bytes += books.bytes(PoolSpace::granules);
                sum.free_bytes += books.bytes(PoolSpace::free_granules);
                sum.free_ranges += books.spaces.iter().map(|space| space.free.free_ranges()).sum::<usize>();
                sum.resident_bytes += books.resident_bytes();
                sum.returned_bytes += books.returned_bytes;
                sum.metadata_bytes += books.heap_bytes() + (books.allocations * size_of::<SlabAllocation>()) as u64;
                let before = sum.pools[SegmentKind::Code.index()].opened;
                for (pool, sum) in SegmentKind::ALL.into_iter().zip(&mut sum.pools) {
                    books.add_to(pool, sum);
                }
                opened_code += sum.pools[SegmentKind::Code.index()].opened - before;
            }
            sum.frame_table_bytes += window.frame_table_bytes(opened_code);
        }
        sum
    }

    /// Gives free pages back, or only whole slabs; of the further windows those go that nothing lives in.
    pub(crate) fn give_back(&self, only_slabs: bool) -> Released {
        let mut released = Released::default();
        for window in self.all() {
            let more = if only_slabs { window.give_back_slabs() } else { window.give_back_pages() };
            released.bytes += more.bytes;
            released.slabs += more.slabs;
        }
        let empty: Vec<_> = {
            // Nobody allocates from one of them without this lock. They are unmapped when it is released.
            let mut more = self.more.lock();
            let (empty, kept) = std::mem::take(&mut *more).into_iter().partition(|(_, open)| open.window.is_empty());
            if seeded_bug!("windows_kept_under_a_later_lock") {
                drop(more);
                more = self.more.lock();
            }
            *more = kept;
            self.has_more.store(!more.is_empty(), Ordering::Relaxed);
            empty
        };
        drop(empty);
        // Groups that have nothing left anywhere are nobody's.
        let windows = self.all();
        self.low_groups.lock().retain(|group| windows.iter().any(|window| window.houses(*group)));
        released
    }
}

/// The first allocation in a window that nobody has heard of.
fn allocate_in_new(window: &OpenWindow, plan: &SegmentPlan, happened: &mut EventBuf) -> Result<Box<SlabAllocation>> {
    let mut grown = EventBuf::new();
    let claim = window.allocate(plan, &mut grown)?;
    window.window.announce(happened);
    happened.extend(grown);
    Ok(claim)
}

/// Maps a window, smaller if need be.
fn map(
    mapper: &dyn MemoryMapper,
    options: &SlabPoolOptions,
    placement: Placement,
    budget: &Arc<Budget>,
    teller: &EventSink,
) -> Result<Window> {
    let mut size = options.window_size.clamp(SMALLEST_WINDOW, MAX_WINDOW);
    loop {
        let layout = WindowLayout::divide(size).ok_or_else(|| bad_window(size))?;
        match mapper.map_window(&layout, placement) {
            Ok(mapped) => return Ok(Window::new(mapped, layout, options, budget.clone(), teller.clone())),
            Err(refusal) if size / 2 < SMALLEST_WINDOW => return Err(refusal.into()),
            Err(_) => size /= 2,
        }
    }
}

/// Bytes of the smallest window that a plan fits into; of the largest that there is, if it fits into none.
fn smallest_for(plan: &SegmentPlan) -> u64 {
    let fits = |size: &u64| {
        let layout = WindowLayout::divide(*size);
        layout.is_some_and(|layout| {
            SegmentKind::ALL.iter().all(|pool| plan.segment(*pool).size <= layout.pool(*pool).size)
        })
    };
    let sizes = std::iter::successors(Some(SMALLEST_WINDOW), |size| Some((size * 2).min(MAX_WINDOW)));
    sizes.take(SIZES).find(fits).unwrap_or(MAX_WINDOW)
}

fn is_exhausted(error: &crate::error::Error) -> bool {
    matches!(error.kind(), ErrorKind::Memory(MemoryFault::PoolExhausted { .. }))
}

fn bad_window(size: u64) -> MemoryFault {
    MemoryFault::BadPlan { pool: "any", size, align: CHUNK, problem: "the window is too small to divide" }
}

/// The smallest window that is any use.
const SMALLEST_WINDOW: u64 = 32 << 20;

/// Windows that objects need below 2 GiB, where their session did not ask to be.
const LOW_WINDOW: u64 = 64 << 20;

/// From the smallest window to the largest, doubling.
const SIZES: usize = 7;
