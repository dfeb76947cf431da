//! Every interleaving of giving pages back to the kernel with allocating and freeing.
//!
//! Checks `src/memory/purge.rs` and `src/memory/window.rs`: nobody is given pages that are about to be emptied,
//! what is given out is zero where the plan says so, and nothing is lost.

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
struct Scene {
    pool: Arc<SlabPool>,
    cells: Arc<Cells>,
}

fn scene() -> Scene {
    let cells = Cells::new();
    let options =
        SlabPoolOptions { window_size: 0, returns_memory: false, trap_freed_code: false, ..Default::default() };
    Scene { pool: Arc::new(SlabPool::with_mapper(PlainMapper(cells.clone()), options).unwrap()), cells }
}

fn plan() -> SegmentPlan {
    let data = SegmentRequest { size: 4096, align: 4096, zero_fill: 4096 };
    SegmentPlan { segments: [SegmentRequest::default(), SegmentRequest::default(), data], ..SegmentPlan::default() }
}

/// Allocates a page and fills it; whether it was zero.
fn use_a_page(Scene { pool, cells }: &Scene, mark: u8) -> bool {
    let mut page = pool.allocate(&plan()).unwrap();
    cells.write(page.address(SegmentKind::Data).value(), 1);
    let was_zero = page.working(SegmentKind::Data).iter().all(|byte| *byte == 0);
    page.working(SegmentKind::Data).fill(mark);
    was_zero
}

#[test]
fn giving_back_versus_allocating() {
    // Whether the page was zero, what was given back, what is there at the end.
    let outcomes = [(true, 0, 4096), (true, 4096, 0), (true, 4096, 4096), (true, 8192, 0)];
    explore("giving_back_versus_allocating", None, 10, outcomes, || {
        let scene = scene();
        use_a_page(&scene, 1);
        let other = scene.clone();
        let user = thread::spawn(move || use_a_page(&other, 2));
        let released = scene.pool.release_free().bytes;
        let was_zero = user.join().unwrap();
        let statistics = scene.pool.statistics();
        assert_eq!((statistics.allocations, statistics.reserved_bytes), (0, 0));
        assert_eq!(statistics.opened_bytes, statistics.free_bytes);
        (was_zero, released, statistics.resident_bytes)
    });
}

#[test]
fn giving_back_twice_at_once() {
    // Each page goes once.
    explore("giving_back_twice_at_once", None, 4, [(4096, 0)], || {
        let scene = scene();
        use_a_page(&scene, 1);
        let other = scene.pool.clone();
        let there = thread::spawn(move || other.release_free().bytes);
        let here = scene.pool.release_free().bytes;
        (here + there.join().unwrap(), scene.pool.statistics().resident_bytes)
    });
}
