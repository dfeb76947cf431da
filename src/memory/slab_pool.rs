//! [`SlabPool`]: the memory manager. A window whose pools grow by slabs and are packed below a page.
//!
//! The address space is there from the start; a *slab* is how much of a pool is opened at a time. An allocation takes
//! its whole footprint, in all pools, in one step under one lock, and gives it back the same way. The lock covers
//! arithmetic only (`free_space.rs`): no system call is made and no page is touched under it.
//!
//! One window per manager; a pool that is full is an error that can be retried after removing something.

use crate::base::{ExecutorAddr, Pool, align_up};
use crate::error::{MemoryFault, Result};
use crate::memory::dual_mapper::DualMapper;
use crate::memory::frame_table::{Frame, FrameTable};
use crate::memory::free_space::{FreeSpace, RangeId};
use crate::memory::layout::{CHUNK, DATA_GRANULE, FRAME_SLOT, MAX_WINDOW, TEXT_GRANULE, WindowLayout};
use crate::memory::manager::{Finalized, InFlight, MemoryManager, MemoryStatistics, MemoryUsage};
use crate::memory::mapper::{MappedWindow, MemoryMapper};
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::sync::{Arc, MappedU64, Mutex, Ordering, Rank};

/// Settings of a [`SlabPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabPoolOptions {
    /// Bytes of address space to reserve; halved as often as the kernel refuses, down to 32 MiB.
    pub window_size: u64,
    /// Bytes by which a pool grows, rounded up to 2 MiB.
    pub slab_size: u64,
    /// Whether freed code is filled with traps, so that a call into it stops at once. On in builds with debug
    /// assertions.
    pub trap_freed_code: bool,
}

impl Default for SlabPoolOptions {
    fn default() -> Self {
        SlabPoolOptions { window_size: MAX_WINDOW, slab_size: CHUNK, trap_freed_code: cfg!(debug_assertions) }
    }
}

/// The slab-pool memory manager (seed: ORC's mapper manager, with pools by protection).
pub struct SlabPool {
    window: Arc<Window>,
}

/// A mapped window and the books of its pools.
struct Window {
    mapped: Arc<dyn MappedWindow>,
    layout: WindowLayout,
    frames: Option<FrameTable>,
    slab_size: u64,
    trap_freed_code: bool,
    /// Serialises growth: slots are initialised under it, before the new text is handed out.
    growth: Mutex<()>,
    spaces: Mutex<Spaces>,
}

struct Spaces {
    /// By pool, in granules.
    free: [FreeSpace; 3],
    /// By pool: granules below this one have been handed out before, and hold old bytes.
    used_end: [u32; 3],
    allocations: usize,
    live_bytes: u64,
}

impl SlabPool {
    /// Reserves a window of this process.
    ///
    /// # Errors
    /// When even the smallest window is refused.
    pub fn new(options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::with_mapper(&DualMapper, options)
    }

    /// Reserves a window through `mapper`.
    ///
    /// # Errors
    /// When even the smallest window is refused: the refusal of that one.
    pub fn with_mapper(mapper: &dyn MemoryMapper, options: SlabPoolOptions) -> Result<SlabPool> {
        let mut size = options.window_size.clamp(SMALLEST_WINDOW, MAX_WINDOW);
        loop {
            let Some(layout) = WindowLayout::divide(size) else {
                return Err(bad_window(size).into());
            };
            match mapper.map_window(&layout) {
                Ok(mapped) => return Ok(SlabPool { window: Arc::new(Window::new(mapped, layout, options)) }),
                Err(refusal) if size / 2 < SMALLEST_WINDOW => return Err(refusal.into()),
                Err(_) => size /= 2,
            }
        }
    }

    /// The window's address range: `(base, size in bytes)`.
    pub fn window(&self) -> (ExecutorAddr, u64) {
        (self.window.mapped.base(), self.window.layout.size)
    }
}

impl MemoryManager for SlabPool {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let claim = Window::claim(&self.window, plan)?;
        Ok(Box::new(claim))
    }

    fn statistics(&self) -> MemoryStatistics {
        let spaces = self.window.spaces.lock();
        let bytes = |granules: fn(&FreeSpace) -> u32| {
            Pool::ALL.iter().map(|pool| u64::from(granules(&spaces.free[pool.index()])) * held_bytes(*pool)).sum()
        };
        MemoryStatistics {
            windows: 1,
            allocations: spaces.allocations,
            live_bytes: spaces.live_bytes,
            reserved_bytes: bytes(FreeSpace::used_granules),
            opened_bytes: bytes(FreeSpace::end),
            free_bytes: bytes(FreeSpace::free_granules),
            free_ranges: spaces.free.iter().map(FreeSpace::free_ranges).sum(),
        }
    }
}

impl Window {
    fn new(mapped: Arc<dyn MappedWindow>, layout: WindowLayout, options: SlabPoolOptions) -> Window {
        let text_start = layout.pool_start(mapped.base(), Pool::Code);
        let frames = FrameTable::new(&mapped, text_start, layout.pool(Pool::Code).size);
        Window {
            frames,
            mapped,
            layout,
            slab_size: align_up(options.slab_size.clamp(CHUNK, MAX_WINDOW), CHUNK).unwrap_or(CHUNK),
            trap_freed_code: options.trap_freed_code,
            growth: Mutex::ranked(Rank::Growth, ()),
            spaces: Mutex::new(Spaces {
                free: std::array::from_fn(|_| FreeSpace::new()),
                used_end: [0; 3],
                allocations: 0,
                live_bytes: 0,
            }),
        }
    }

    /// Takes everything that a plan asks for out of the free space, growing pools as needed.
    fn claim(window: &Arc<Window>, plan: &SegmentPlan) -> Result<Claim> {
        let mut wanted = [(0, 1); 3];
        for pool in Pool::ALL {
            wanted[pool.index()] = window.granules_for(pool, plan)?;
        }
        loop {
            match window.try_claim(&wanted, requested(plan)) {
                Ok(parts) => {
                    let mut claim = Claim { window: window.clone(), plan: *plan, parts, sealed: false };
                    claim.zero_tails();
                    return Ok(claim);
                }
                Err((pool, shortfall)) => window.grow(pool, shortfall, wanted[pool.index()])?,
            }
        }
    }

    /// All pools or nothing; the pool that is short, and by how many granules.
    fn try_claim(&self, wanted: &[(u32, u32); 3], requested: u64) -> std::result::Result<[Part; 3], (Pool, u32)> {
        let mut spaces = self.spaces.lock();
        let mut parts = [Part::default(); 3];
        for pool in Pool::ALL {
            let (granules, align) = wanted[pool.index()];
            if granules == 0 {
                continue;
            }
            let Some((id, offset)) = spaces.free[pool.index()].allocate(granules, align) else {
                let shortfall = spaces.free[pool.index()].shortfall(granules, align);
                for pool in Pool::ALL {
                    if let Some(id) = parts[pool.index()].id {
                        spaces.free[pool.index()].free(id);
                    }
                }
                return Err((pool, shortfall));
            };
            let used_before = spaces.used_end[pool.index()];
            parts[pool.index()] = Part { id: Some(id), offset, granules, fresh_from: used_before.max(offset) };
        }
        for (part, used_end) in parts.iter().zip(&mut spaces.used_end) {
            *used_end = (*used_end).max(part.offset + part.granules);
        }
        spaces.allocations += 1;
        spaces.live_bytes += requested;
        Ok(parts)
    }

    /// Opens enough slabs of a pool for `shortfall` more granules.
    fn grow(&self, pool: Pool, shortfall: u32, wanted: (u32, u32)) -> Result<()> {
        let _serialised = self.growth.lock();
        let granule = granule(pool);
        let capacity = self.layout.pool(pool).size / granule;
        let (end, still_short) = {
            let spaces = self.spaces.lock();
            let space = &spaces.free[pool.index()];
            (u64::from(space.end()), space.shortfall(wanted.0, wanted.1))
        };
        if still_short == 0 {
            return Ok(()); // another thread grew it, or gave something back
        }
        let needed = u64::from(shortfall.max(still_short)) * granule;
        let slabs = align_up(needed, self.slab_size).map_or(u64::MAX, |bytes| bytes / granule);
        let smallest = align_up(needed, CHUNK).map_or(u64::MAX, |bytes| bytes / granule);
        let added = [slabs, smallest, capacity - end].into_iter().find(|added| end.saturating_add(*added) <= capacity);
        let added = added.filter(|added| added * granule >= needed).ok_or_else(|| self.exhausted(pool, wanted.0))?;
        if let (Pool::Code, Some(frames)) = (pool, &self.frames) {
            frames.open(end + added);
        }
        self.spaces.lock().free[pool.index()].grow(added as u32);
        Ok(())
    }

    /// `(granules, alignment in granules)` of a plan's segment.
    fn granules_for(&self, pool: Pool, plan: &SegmentPlan) -> Result<(u32, u32)> {
        let SegmentRequest { size, align, zero_fill } = *plan.segment(pool);
        let bad = |problem| MemoryFault::BadPlan { pool: pool.name(), size, align, problem };
        let align = align.max(1);
        if !align.is_power_of_two() {
            return Err(bad("the alignment is no power of two").into());
        }
        if zero_fill > size {
            return Err(bad("more zero-fill than segment").into());
        }
        let start = self.layout.pool_start(self.mapped.base(), pool).value();
        if !start.is_multiple_of(align) {
            return Err(bad("no pool is aligned to that").into());
        }
        if size > self.layout.pool(pool).size {
            return Err(self.exhausted_bytes(pool, size).into());
        }
        let frames = if pool == Pool::Code { plan.frame_count } else { 0 };
        let granules = size.div_ceil(granule(pool)).max(frames);
        if granules > self.layout.pool(pool).size / granule(pool) {
            return Err(self.exhausted_bytes(pool, granules.saturating_mul(granule(pool))).into());
        }
        Ok((granules as u32, (align / granule(pool)).max(1) as u32))
    }

    fn exhausted(&self, pool: Pool, granules: u32) -> MemoryFault {
        self.exhausted_bytes(pool, u64::from(granules) * granule(pool))
    }

    fn exhausted_bytes(&self, pool: Pool, requested: u64) -> MemoryFault {
        let spaces = self.spaces.lock();
        let space = &spaces.free[pool.index()];
        let capacity = self.layout.pool(pool).size;
        let unopened = capacity - u64::from(space.end()) * granule(pool);
        MemoryFault::PoolExhausted {
            pool: pool.name(),
            requested,
            available: unopened + u64::from(space.free_granules()) * granule(pool),
            capacity,
            largest: (u64::from(space.largest_free()) * granule(pool)).max(unopened),
        }
    }

    fn release(&self, parts: &[Part; 3], plan: &SegmentPlan) {
        let code = &parts[Pool::Code.index()];
        if code.id.is_some() {
            if let Some(frames) = &self.frames {
                frames.clear(u64::from(code.offset), u64::from(code.granules));
            }
            if self.trap_freed_code {
                self.bytes(Pool::Code, code, u64::from(code.granules) * TEXT_GRANULE).fill(TRAP);
            }
        }
        let mut spaces = self.spaces.lock();
        for pool in Pool::ALL {
            if let Some(id) = parts[pool.index()].id {
                spaces.free[pool.index()].free(id);
            }
        }
        spaces.allocations -= 1;
        spaces.live_bytes -= requested(plan);
    }

    /// The first `size` writable bytes of a part.
    #[allow(clippy::mut_from_ref)] // exclusive by M1: only the part's owner calls this
    fn bytes(&self, pool: Pool, part: &Part, size: u64) -> &mut [u8] {
        let start = u64::from(part.offset) * granule(pool);
        assert!(start + size <= self.layout.pool(pool).size && size <= u64::from(part.granules) * granule(pool));
        // SAFETY: M1, M6 - inside the pool by the line above, and the part has one owner, which is the caller.
        unsafe { std::slice::from_raw_parts_mut(self.mapped.working_view(pool).add(start as usize), size as usize) }
    }

    fn address(&self, pool: Pool, part: &Part) -> ExecutorAddr {
        self.layout.pool_start(self.mapped.base(), pool).offset(u64::from(part.offset) * granule(pool))
    }
}

/// What an allocation has of one pool.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// `None` when it has nothing.
    id: Option<RangeId>,
    offset: u32,
    granules: u32,
    /// From this granule on, the memory has never been handed out, and is zero.
    fresh_from: u32,
}

/// An allocation, in flight until it is sealed. Its drop gives everything back.
struct Claim {
    window: Arc<Window>,
    plan: SegmentPlan,
    parts: [Part; 3],
    sealed: bool,
}

impl Claim {
    /// Zeroes the tails that the plan wants zero, except where memory is fresh: a large `.bss` costs no pages.
    fn zero_tails(&mut self) {
        for pool in Pool::ALL {
            let (request, part) = (self.plan.segment(pool), &self.parts[pool.index()]);
            let used = u64::from(part.fresh_from - part.offset) * granule(pool);
            let dirty_end = request.size.min(used);
            let zero_from = request.size - request.zero_fill;
            if zero_from < dirty_end {
                self.window.bytes(pool, part, dirty_end)[zero_from as usize..].fill(0);
            }
        }
    }
}

impl InFlight for Claim {
    fn address(&self, pool: Pool) -> ExecutorAddr {
        self.window.address(pool, &self.parts[pool.index()])
    }

    fn working(&mut self, pool: Pool) -> &mut [u8] {
        self.window.bytes(pool, &self.parts[pool.index()], self.plan.segment(pool).size)
    }

    fn finalize(mut self: Box<Self>, mut frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let code = &self.parts[Pool::Code.index()];
        let start = self.window.address(Pool::Code, code);
        let end = start.offset(self.plan.segment(Pool::Code).size);
        frames.retain(|frame| (start..end).contains(&frame.start));
        frames.sort_unstable();
        frames.dedup_by_key(|frame| frame.start);
        if frames.len() as u64 > u64::from(code.granules) {
            return Err(MemoryFault::BadPlan {
                pool: Pool::Code.name(),
                size: self.plan.segment(Pool::Code).size,
                align: self.plan.segment(Pool::Code).align,
                problem: "the code has more frames than were planned",
            }
            .into());
        }
        if let Some(table) = &self.window.frames {
            table.fill(u64::from(code.offset), u64::from(code.granules), &frames);
        }
        self.sealed = true;
        Ok(self)
    }
}

impl Finalized for Claim {
    fn address(&self, pool: Pool) -> ExecutorAddr {
        InFlight::address(self, pool)
    }

    fn usage(&self) -> MemoryUsage {
        let size = |pool| self.plan.segment(pool).size;
        MemoryUsage {
            code: size(Pool::Code),
            read_only: size(Pool::ReadOnly),
            data: size(Pool::Data),
            reserved: Pool::ALL
                .iter()
                .map(|pool| u64::from(self.parts[pool.index()].granules) * held_bytes(*pool))
                .sum(),
            metadata: size_of::<Claim>() as u64,
        }
    }

    fn store_word(&self, offset: u64, value: u64) -> bool {
        let fits = offset.is_multiple_of(8)
            && offset.checked_add(8).is_some_and(|end| end <= self.plan.segment(Pool::Data).size);
        if !self.sealed || !fits {
            return false;
        }
        let part = &self.parts[Pool::Data.index()];
        let start = u64::from(part.offset) * DATA_GRANULE + offset;
        // SAFETY: M1, M3, M6 - inside this allocation's data segment by `fits`, aligned, and only ever read by running
        // code and written by this store, both atomic on aligned words.
        let word = unsafe { &*self.window.mapped.working_view(Pool::Data).add(start as usize).cast::<MappedU64>() };
        // Pairs with the reader's load in machine code: whoever sees the new address sees the code behind it.
        word.store(value, Ordering::Release);
        true
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.window.release(&self.parts, &self.plan);
    }
}

fn requested(plan: &SegmentPlan) -> u64 {
    plan.segments.iter().map(|segment| segment.size).sum()
}

fn granule(pool: Pool) -> u64 {
    if pool == Pool::Code { TEXT_GRANULE } else { DATA_GRANULE }
}

/// Bytes that one granule of a pool holds, with its slot of the frame table.
fn held_bytes(pool: Pool) -> u64 {
    granule(pool) + if pool == Pool::Code { FRAME_SLOT } else { 0 }
}

fn bad_window(size: u64) -> MemoryFault {
    MemoryFault::BadPlan { pool: "any", size, align: CHUNK, problem: "the window is too small to divide" }
}

/// `int3`: a call into freed code stops at once.
const TRAP: u8 = 0xcc;

/// The smallest window that is any use.
const SMALLEST_WINDOW: u64 = 32 << 20;
