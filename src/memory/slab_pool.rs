//! [`SlabPool`]: the memory manager that allocates from windows.
//!
//! A *window* is one range of addresses, which is reserved when the window is mapped. A *slab* is the unit by which a
//! pool of the window grows; it belongs to one shard. An allocation reserves its memory in all pools in one step, under
//! one lock, and frees it in the same way.
//!
//! | part | file |
//! |---|---|
//! | the windows, and the choice of one | `windows.rs` |
//! | one window, its pools and locks | `window.rs` |
//! | one shard: arithmetic only, no system call | `shard.rs` |
//! | large sections and scratch memory | `large_sections.rs`, `extended.rs` |
//!
//! If a pool is full, the allocation fails, and it can be retried after code was removed. The options can ask for
//! another window instead ([`OnFull`](crate::memory::OnFull)).

use crate::arch::{MAX_PAGE_SIZE, MIN_PAGE_SIZE};
use crate::base::ExecutorAddr;
use crate::error::{MemoryFault, Result};
use crate::memory::allocation::{Finalized, InFlight};
use crate::memory::batch;
use crate::memory::events::{EventSink, MemoryObserver};
use crate::memory::extended;
use crate::memory::frame::Frame;
use crate::memory::large_sections::LargeTotals;
use crate::memory::manager::{MemoryManager, Released};
use crate::memory::mapper::MemoryMapper;
use crate::memory::memory_map::MemoryMap;
use crate::memory::options::SlabPoolOptions;
use crate::memory::plan::SegmentPlan;
use crate::memory::statistics::MemoryStatistics;
use crate::memory::system_mapper::SystemMapper;
use crate::memory::windows::Windows;
use crate::os::{page_size, prevent_unload};
use crate::sync::Arc;

/// The memory manager that allocates from windows (ORC: `MapperJITLinkMemoryManager`), with one pool for each
/// protection.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// use std::sync::Arc;
///
/// use jittison::Jit;
/// use jittison::memory::{MemoryManager, SlabPool, SlabPoolOptions};
///
/// # fn main() -> Result<(), jittison::Error> {
/// // Two sessions share one pool and one budget.
/// let options = SlabPoolOptions { window_size: 64 << 20, budget: Some(16 << 20), ..SlabPoolOptions::default() };
/// let pool = Arc::new(SlabPool::new(options)?);
/// let first = Jit::builder().memory_manager(pool.clone()).build()?;
/// let second = Jit::builder().memory_manager(pool.clone()).build()?;
///
/// for jit in [&first, &second] {
///     jit.link_object(&jit.main_dylib().create_tracker()?, "add.o", ADD)?;
/// }
/// let (base, size) = pool.window();
/// let add = first.address_of(first.main_dylib(), "add")?;
/// assert!((base..base.offset(size)).contains(&add));
/// # Ok(()) }
/// ```
pub struct SlabPool {
    windows: Windows,
    large: Arc<LargeTotals>,
}

impl SlabPool {
    /// Reserves a window in this process.
    ///
    /// # Errors
    /// If the system refuses even the smallest window.
    pub fn new(options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::with_mapper(SystemMapper::default(), options)
    }

    /// Reserves a window through `mapper`.
    ///
    /// # Errors
    /// If the mapper refuses even the smallest window: the mapper's error for that window.
    pub fn with_mapper(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions) -> Result<SlabPool> {
        SlabPool::open(mapper, options, EventSink::default())
    }

    /// As [`with_mapper`](Self::with_mapper). `observer` receives the events of the memory, from the first window on.
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

    fn open(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions, sink: EventSink) -> Result<SlabPool> {
        let pool = SlabPool::unmapped(mapper, options, sink)?;
        pool.map_first_window()?;
        Ok(pool)
    }

    /// A pool whose first allocation maps the first window.
    ///
    /// # Errors
    /// The system's pages have a size that this crate does not support.
    pub(crate) fn lazy(
        mapper: impl MemoryMapper + 'static,
        options: SlabPoolOptions,
        observer: Option<MemoryObserver>,
    ) -> Result<SlabPool> {
        SlabPool::unmapped(mapper, options, observer.map(EventSink::new).unwrap_or_default())
    }

    /// For models: a pool whose first allocation maps the first window.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn mapped_by_the_first_allocation(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions) -> SlabPool {
        SlabPool::lazy(mapper, options, None).expect("the pages are small")
    }

    fn unmapped(mapper: impl MemoryMapper + 'static, options: SlabPoolOptions, sink: EventSink) -> Result<SlabPool> {
        // The loader, fork handlers and the purge thread call this library later, even if the program closes it with
        // `dlclose`.
        prevent_unload();
        check_page_size(page_size())?;
        let windows = Windows::new(Box::new(mapper), options, sink.clone());
        Ok(SlabPool { large: LargeTotals::new(windows.budget().clone(), sink), windows })
    }

    /// Maps the first window, if no allocation has.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn map_first_window(&self) -> Result<()> {
        self.windows.map_first()
    }

    /// The addresses of the first window: `(base, size in bytes)`.
    pub fn window(&self) -> (ExecutorAddr, u64) {
        let unmapped = (ExecutorAddr::new(0), 0);
        self.windows.first().map_or(unmapped, |window| (window.mapped.base(), window.layout.size()))
    }

    /// How the first window is mapped, in a few words.
    pub fn description(&self) -> &'static str {
        self.windows.first().map_or("not mapped yet", |window| window.mapped.description())
    }
}

/// # Errors
/// [`MemoryFault::Refused`] if windows have no layout for pages of this size.
pub(crate) fn check_page_size(size: u64) -> std::result::Result<(), MemoryFault> {
    if size.is_power_of_two() && (MIN_PAGE_SIZE..=MAX_PAGE_SIZE).contains(&size) {
        return Ok(());
    }
    let problem = format!(
        "the kernel has pages of {size} bytes, and jittison supports pages of {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}"
    );
    Err(MemoryFault::Refused { step: "the size of pages".to_string(), problem })
}

// SAFETY: M1, M4 - each allocation owns its spans until it is dropped, and keeps its window. M2, M3 - nothing else writes
// them. M6 - the free space gives out spans of the requested size in one window, which has 2 GiB at most. M5 - a drop makes
// the frames unknown before it frees the code.
unsafe impl MemoryManager for SlabPool {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        extended::allocate(plan, &self.large, |plan| self.windows.allocate(plan))
    }

    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        batch::finalize_all(batch)
    }

    fn statistics(&self) -> MemoryStatistics {
        let mut sum = self.windows.statistics();
        self.large.add_to(&mut sum);
        sum
    }

    fn release_free(&self) -> Released {
        self.windows.purge(false)
    }

    fn release_free_slabs(&self) -> usize {
        self.windows.purge(true).slabs
    }

    fn memory_map(&self) -> Option<MemoryMap> {
        let windows = self.windows.all().iter().map(|window| window.map()).collect();
        Some(MemoryMap { windows, tenants: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_pages_beyond_64_kib_is_refused_by_their_size() {
        assert!([4 << 10, 16 << 10, 64 << 10].into_iter().all(|size| check_page_size(size).is_ok()));
        let error = check_page_size(128 << 10).unwrap_err().to_string();
        assert!(error.contains("pages of 131072 bytes") && error.contains("65536"), "{error}");
    }
}
