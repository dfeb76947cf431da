//! [`SlabPool`]: the memory manager. A window whose pools grow by slabs and are packed below a page.
//!
//! The address space is there from the start; a *slab* is how much of a pool is opened at a time, for one shard. An
//! allocation takes its whole footprint, in all pools, in one step under one lock, and gives it back the same way. The
//! lock covers arithmetic only (`shard.rs`): no system call is made and no page is touched under it.
//!
//! Mostly one window per manager (`windows.rs`); a pool that is full is an error that can be retried after removing
//! something, unless the policy is to open another window.

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::memory::batch;
use crate::memory::events::{EventSink, MemoryObserver};
use crate::memory::extended;
use crate::memory::frame_table::Frame;
use crate::memory::large_sections::ApartBooks;
use crate::memory::layout::{CHUNK, MAX_WINDOW};
use crate::memory::manager::{Finalized, InFlight, MemoryManager, MemoryStatistics, Released};
use crate::memory::mapper::{MemoryMapper, Placement};
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::memory::system_mapper::SystemMapper;
use crate::memory::windows::Windows;
use crate::os::stay_loaded;
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
    /// Where in the address space windows are put.
    pub placement: Placement,
    /// What happens when a window is full.
    pub on_full: OnFull,
    /// Whether allocations share windows. Otherwise each has a window of its own, unmapped when it is freed: for finding
    /// faults, as it costs a dozen system calls an allocation.
    pub is_pooled: bool,
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
            on_full: OnFull::default(),
            is_pooled: true,
        }
    }
}

impl SlabPoolOptions {
    pub(crate) fn shard_count(&self) -> usize {
        let count = if self.shards == 0 { processors().min(8) } else { self.shards.min(64) };
        if cfg!(loom) { 1 } else { count }
    }
}

/// What happens when a window is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFull {
    /// The allocation is refused, with [`MemoryFault::PoolExhausted`](crate::error::MemoryFault::PoolExhausted): retry
    /// after removing something.
    #[default]
    Refuse,
    /// Another window is opened, and closed by [`release_free`](MemoryManager::release_free) when nothing lives in it. A
    /// dylib that outgrows its window is continued there; what of it does not reach across is an error of the link.
    OpenAnother,
}

/// The slab-pool memory manager (seed: ORC's mapper manager, with pools by protection).
pub struct SlabPool {
    windows: Windows,
    /// What is mapped outside the windows.
    apart: Arc<ApartBooks>,
}

impl SlabPool {
    /// Reserves a window of this process.
    ///
    /// # Errors
    /// When even the smallest window is refused.
    pub fn new(options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::with_mapper(SystemMapper::default(), options)
    }

    /// Reserves a window through `mapper`.
    ///
    /// # Errors
    /// When even the smallest window is refused: the refusal of that one.
    pub fn with_mapper(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::open(mapper, options, EventSink::default())
    }

    /// As [`with_mapper`](Self::with_mapper), with `observer` hearing what becomes of the memory, from the first window on.
    ///
    /// # Errors
    /// As [`with_mapper`](Self::with_mapper).
    pub fn observed(
        mapper: impl MemoryMapper + 'static,
        options: SlabPoolOptions,
        observer: MemoryObserver,
    ) -> Result<SlabPool> {
        SlabPool::open(mapper, options, EventSink::new(observer))
    }

    fn open(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions, teller: EventSink) -> Result<SlabPool> {
        // The loader, forks and the thread that gives pages back come back here whatever the holder of the library thinks.
        stay_loaded();
        let windows = Windows::open(Box::new(mapper), options, teller.clone())?;
        Ok(SlabPool { apart: ApartBooks::new(windows.budget().clone(), teller), windows })
    }

    /// The first window's address range: `(base, size in bytes)`.
    pub fn window(&self) -> (ExecutorAddr, u64) {
        let window = self.windows.first();
        (window.mapped.base(), window.layout.size)
    }

    /// How memory is mapped, in a few words.
    pub fn description(&self) -> &'static str {
        self.windows.first().mapped.description()
    }
}

impl MemoryManager for SlabPool {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        extended::allocate(plan, &self.apart, |plan| Ok(self.windows.allocate(plan)?))
    }

    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        batch::finalize_all(batch)
    }

    fn statistics(&self) -> MemoryStatistics {
        let mut sum = self.windows.statistics();
        self.apart.add_to(&mut sum);
        sum
    }

    fn release_free(&self) -> Released {
        self.windows.give_back(false)
    }

    fn release_free_slabs(&self) -> usize {
        self.windows.give_back(true).slabs
    }

    fn memory_map(&self) -> Option<MemoryMap> {
        let windows = self.windows.all().iter().map(|window| window.survey()).collect();
        Some(MemoryMap { windows, tenants: Vec::new() })
    }
}
