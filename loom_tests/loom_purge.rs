//! Model: a purge, which returns free pages to the kernel, races with allocating and freeing, and with another purge.
//!
//! Runs `src/memory/purge.rs` and `src/memory/window.rs`. No thread gets pages that a purge is about to clear. Allocated
//! memory is zero where the plan asks for it. No memory is lost.
//!
//! Seeded bug: `free_while_it_goes_back`.

#![cfg(loom)]

mod plain_memory;
mod support;

use std::sync::Arc;

use jittison::base::SegmentKind;
use jittison::memory::*;
use loom::thread;
use plain_memory::{Cells, PlainMapper};
use support::explore;

#[derive(Clone)]
struct Fixture {
    pool: Arc<SlabPool>,
    cells: Arc<Cells>,
}

fn fixture() -> Fixture {
    let cells = Cells::new();
    let options =
        SlabPoolOptions { window_size: 0, returns_memory: false, trap_freed_code: false, ..Default::default() };
    Fixture { pool: Arc::new(SlabPool::with_mapper(PlainMapper(cells.clone()), options).unwrap()), cells }
}

fn plan() -> SegmentPlan {
    let data = SegmentRequest { size: 4096, align: 4096, zero_fill: 4096 };
    SegmentPlan { segments: [SegmentRequest::default(), SegmentRequest::default(), data], ..SegmentPlan::default() }
}

/// Allocates a page and fills it. Returns whether the page was zero.
fn use_a_page(Fixture { pool, cells }: &Fixture, mark: u8) -> bool {
    let mut page = pool.allocate(&plan()).unwrap();
    cells.write(page.address(SegmentKind::Data).value(), 1);
    let was_zero = page.working(SegmentKind::Data).iter().all(|byte| *byte == 0);
    page.working(SegmentKind::Data).fill(mark);
    was_zero
}

#[test]
fn purge_versus_allocating() {
    // The page was zero; bytes that the purge released; resident bytes at the end.
    let outcomes = [(true, 0, 4096), (true, 4096, 0), (true, 4096, 4096), (true, 8192, 0)];
    explore("purge_versus_allocating", None, 10, outcomes, || {
        let fixture = fixture();
        use_a_page(&fixture, 1);
        let other = fixture.clone();
        let user = thread::spawn(move || use_a_page(&other, 2));
        let released = fixture.pool.release_free().bytes;
        let was_zero = user.join().unwrap();
        let statistics = fixture.pool.statistics();
        assert_eq!((statistics.allocations, statistics.reserved_bytes), (0, 0));
        assert_eq!(statistics.opened_bytes, statistics.free_bytes);
        (was_zero, released, statistics.resident_bytes)
    });
}

#[test]
fn two_purges_at_once() {
    // Each page is released once.
    explore("two_purges_at_once", None, 4, [(4096, 0)], || {
        let fixture = fixture();
        use_a_page(&fixture, 1);
        let other = fixture.pool.clone();
        let there = thread::spawn(move || other.release_free().bytes);
        let here = fixture.pool.release_free().bytes;
        (here + there.join().unwrap(), fixture.pool.statistics().resident_bytes)
    });
}
