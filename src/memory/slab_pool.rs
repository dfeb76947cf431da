//! [`SlabPool`]: the memory manager. A window whose pools grow by slabs and are packed below a page.
//!
//! The address space is there from the start; a *slab* is how much of a pool is opened at a time, for one shard. An
//! allocation takes its whole footprint, in all pools, in one step under one lock, and gives it back the same way. The
//! lock covers arithmetic only (`shard.rs`): no system call is made and no page is touched under it.
//!
//! One window per manager; a pool that is full is an error that can be retried after removing something.

use crate::base::{ExecutorAddr, Pool};
use crate::error::{MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::claim::Claim;
use crate::memory::free_space::FreeSpace;
use crate::memory::layout::{CHUNK, MAX_WINDOW, WindowLayout};
use crate::memory::manager::{InFlight, MemoryManager, MemoryStatistics, Released};
use crate::memory::mapper::{MemoryMapper, Placement};
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::memory::system_mapper::SystemMapper;
use crate::memory::window::{Home, Taken, Window};
use crate::sync::{Arc, processors};

/// Settings of a [`SlabPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabPoolOptions {
    /// Bytes of address space to reserve; halved as often as the kernel refuses, down to 32 MiB.
    pub window_size: u64,
    /// Bytes by which a pool grows, rounded up to 2 MiB.
    pub slab_size: u64,
    /// In how many parts the books are kept, so that as many threads can link side by side; 0 for one per processor, at
    /// most eight.
    pub shards: usize,
    /// Bytes that allocations may hold, padding and unwind table included; what goes beyond is refused.
    pub budget: Option<u64>,
    /// Whether memory that nothing lives in goes back to the kernel by itself: late, in large pieces, by a thread that is
    /// there only while there is something to give back. Otherwise it does so on request only.
    pub returns_memory: bool,
    /// Whether freed code is filled with traps, so that a call into it stops at once; its pages are not given back to the
    /// kernel then. On in builds with debug assertions.
    pub trap_freed_code: bool,
    /// Where in the address space the window is put.
    pub placement: Placement,
}

impl Default for SlabPoolOptions {
    fn default() -> Self {
        SlabPoolOptions {
            window_size: MAX_WINDOW,
            slab_size: CHUNK,
            shards: 0,
            budget: None,
            returns_memory: true,
            trap_freed_code: cfg!(debug_assertions),
            placement: Placement::default(),
        }
    }
}

impl SlabPoolOptions {
    pub(crate) fn shard_count(&self) -> usize {
        let count = if self.shards == 0 { processors().min(8) } else { self.shards.min(64) };
        if cfg!(loom) { 1 } else { count }
    }
}

/// The slab-pool memory manager (seed: ORC's mapper manager, with pools by protection).
pub struct SlabPool {
    window: Arc<Window>,
    /// By shard.
    homes: Box<[Arc<Home>]>,
}

impl SlabPool {
    /// Reserves a window of this process.
    ///
    /// # Errors
    /// When even the smallest window is refused.
    pub fn new(options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::with_mapper(&SystemMapper::default(), options)
    }

    /// Reserves a window through `mapper`.
    ///
    /// # Errors
    /// When even the smallest window is refused: the refusal of that one.
    pub fn with_mapper(mapper: &dyn MemoryMapper, options: SlabPoolOptions) -> Result<SlabPool> {
        let budget = Arc::new(Budget::new(options.budget));
        let mut size = options.window_size.clamp(SMALLEST_WINDOW, MAX_WINDOW);
        loop {
            let Some(layout) = WindowLayout::divide(size) else {
                return Err(bad_window(size).into());
            };
            match mapper.map_window(&layout, options.placement) {
                Ok(mapped) => return Ok(SlabPool::of(Window::new(mapped, layout, &options, budget))),
                Err(refusal) if size / 2 < SMALLEST_WINDOW => return Err(refusal.into()),
                Err(_) => size /= 2,
            }
        }
    }

    fn of(window: Window) -> SlabPool {
        let window = Arc::new(window);
        let home = |shard| Arc::new(Home { window: window.clone(), shard });
        SlabPool { homes: (0..window.shards.len()).map(home).collect(), window }
    }

    /// The window's address range: `(base, size in bytes)`.
    pub fn window(&self) -> (ExecutorAddr, u64) {
        (self.window.mapped.base(), self.window.layout.size)
    }

    /// How memory is mapped, in a few words.
    pub fn description(&self) -> &'static str {
        self.window.mapped.description()
    }
}

impl MemoryManager for SlabPool {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let Taken { shard, parts, dirt } = self.window.take(plan)?;
        Ok(Box::new(Claim::new(&self.homes[shard], plan, parts, &dirt)?))
    }

    fn statistics(&self) -> MemoryStatistics {
        let mut sum = MemoryStatistics { windows: 1, ..MemoryStatistics::default() };
        for shard in &self.window.shards {
            let books = shard.0.lock();
            sum.allocations += books.allocations;
            sum.live_bytes += books.live_bytes();
            sum.reserved_bytes += books.bytes(FreeSpace::used_granules);
            sum.opened_bytes += books.bytes(FreeSpace::granules);
            sum.free_bytes += books.bytes(FreeSpace::free_granules);
            sum.free_ranges += books.spaces.iter().map(|space| space.free.free_ranges()).sum::<usize>();
            sum.resident_bytes += books.resident_bytes();
            sum.returned_bytes += books.returned_bytes;
            sum.metadata_bytes += books.heap_bytes() + (books.allocations * size_of::<Claim>()) as u64;
            for (pool, sum) in Pool::ALL.into_iter().zip(&mut sum.pools) {
                books.add_to(pool, sum);
            }
        }
        sum.frame_table_bytes = self.window.frame_table_bytes(sum.pools[Pool::Code.index()].opened);
        sum
    }

    fn release_free(&self) -> Released {
        self.window.give_back_pages()
    }

    fn release_free_slabs(&self) -> usize {
        self.window.give_back_slabs().slabs
    }

    fn memory_map(&self) -> Option<MemoryMap> {
        Some(MemoryMap { windows: vec![self.window.survey()], tenants: Vec::new() })
    }
}

fn bad_window(size: u64) -> MemoryFault {
    MemoryFault::BadPlan { pool: "any", size, align: CHUNK, problem: "the window is too small to divide" }
}

/// The smallest window that is any use.
const SMALLEST_WINDOW: u64 = 32 << 20;
