//! Every interleaving of giving pages back to the kernel with allocating and freeing.
//!
//! Checks `src/memory/giving_back.rs` and `src/memory/window.rs`: nobody is given pages that are about to be emptied,
//! what is given out is zero where the plan says so, and nothing is lost.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::base::{ExecutorAddr, Pool};
use jittison::error::MemoryFault;
use jittison::memory::*;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use support::explore;

/// A window of plain memory, whose pages are emptied by writing zeroes.
struct Plain {
    bytes: Vec<u64>,
    layout: WindowLayout,
    purges: AtomicUsize,
}

struct PlainMapper;

impl MemoryMapper for PlainMapper {
    fn map_window(&self, layout: &WindowLayout) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let bytes = vec![0; layout.size as usize / 8 + 512];
        Ok(Arc::new(Plain { bytes, layout: *layout, purges: AtomicUsize::new(0) }))
    }
}

// SAFETY: the vector is longer than the layout, is never resized, and nobody else writes it.
unsafe impl MappedWindow for Plain {
    fn base(&self) -> ExecutorAddr {
        ExecutorAddr::new((self.bytes.as_ptr() as u64).next_multiple_of(4096))
    }
    fn working_view(&self, pool: Pool) -> *mut u8 {
        (self.base().value() + self.layout.pool(pool).offset) as *mut u8
    }
    fn frame_header(&self) -> Option<*mut u8> {
        None
    }
    unsafe fn purge(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // Loom may let another thread run here, as the kernel may.
        self.purges.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's word.
        unsafe { self.working_view(pool).add(offset as usize).write_bytes(0, size as usize) };
        Ok(())
    }
}

fn pool() -> Arc<SlabPool> {
    let options =
        SlabPoolOptions { window_size: 0, returns_memory: false, trap_freed_code: false, ..Default::default() };
    Arc::new(SlabPool::with_mapper(&PlainMapper, options).unwrap())
}

fn plan() -> SegmentPlan {
    let data = SegmentRequest { size: 4096, align: 4096, zero_fill: 4096 };
    SegmentPlan { segments: [SegmentRequest::default(), SegmentRequest::default(), data], frame_count: 0 }
}

/// Allocates a page and fills it; whether it was zero, and stayed as it was filled.
fn use_a_page(pool: &SlabPool, mark: u8) -> (bool, bool) {
    let mut page = pool.allocate(&plan()).unwrap();
    let was_zero = page.working(Pool::Data).iter().all(|byte| *byte == 0);
    page.working(Pool::Data).fill(mark);
    // Others may run here.
    pool.statistics();
    let stayed = page.working(Pool::Data).iter().all(|byte| *byte == mark);
    (was_zero, stayed)
}

#[test]
fn giving_back_versus_allocating() {
    let outcomes =
        [((true, true), 0, 4096), ((true, true), 4096, 0), ((true, true), 4096, 4096), ((true, true), 8192, 0)];
    explore("giving_back_versus_allocating", None, 10, outcomes, || {
        let pool = pool();
        use_a_page(&pool, 1);
        let other = pool.clone();
        let user = thread::spawn(move || use_a_page(&other, 2));
        let released = pool.release_free().bytes;
        let used = user.join().unwrap();
        let statistics = pool.statistics();
        assert_eq!((statistics.allocations, statistics.reserved_bytes), (0, 0));
        assert_eq!(statistics.opened_bytes, statistics.free_bytes);
        (used, released, statistics.resident_bytes)
    });
}

#[test]
fn giving_back_twice_at_once() {
    // Each page goes once.
    explore("giving_back_twice_at_once", None, 4, [(4096, 0)], || {
        let pool = pool();
        use_a_page(&pool, 1);
        let other = pool.clone();
        let there = thread::spawn(move || other.release_free().bytes);
        let here = pool.release_free().bytes;
        (here + there.join().unwrap(), pool.statistics().resident_bytes)
    });
}
