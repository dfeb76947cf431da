//! Model: a purge, which returns free pages to the kernel, races with allocating and freeing, and with another purge.
//!
//! Runs `src/memory/purge.rs`, `src/memory/window.rs` and `src/memory/purge_thread.rs`. No thread gets pages that a purge is about to clear. Allocated
//! memory is zero where the plan asks for it. No memory is lost. Memory that is freed while the purge thread ends is seen.
//!
//! Seeded bugs: `free_while_it_goes_back`, `freed_memory_read_before_the_purge_thread_is_idle`.

#![cfg(loom)]

mod plain_memory;
mod support;

use std::sync::Arc;

use jittison::base::SegmentKind;
use jittison::memory::*;
use loom::sync::Mutex;
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

/// A purge thread without memory, and the freed bytes that it has not seen.
struct FreedBytes {
    thread: PurgeThread,
    unseen: Mutex<u64>,
}

impl FreedBytes {
    /// What the purge thread does: it sees the freed bytes, finds little free memory, and ends.
    fn run(&self) {
        loop {
            *self.unseen.lock().unwrap() = 0;
            if self.thread.try_end(1, || *self.unseen.lock().unwrap() > 0) {
                return;
            }
        }
    }

    /// Frees a byte, and runs the purge thread here if none runs.
    fn free(&self) {
        *self.unseen.lock().unwrap() += 1;
        if !self.thread.is_running(1) && self.thread.try_start(1) {
            self.run();
        }
    }
}

#[test]
fn freeing_memory_versus_the_end_of_the_purge_thread() {
    // The bytes that no purge thread has seen at the end.
    explore("freeing_memory_versus_the_end_of_the_purge_thread", None, 4, [0], || {
        let freed = Arc::new(FreedBytes { thread: PurgeThread::new(), unseen: Mutex::new(1) });
        assert!(freed.thread.try_start(1));
        let other = freed.clone();
        let purge_thread = thread::spawn(move || other.run());
        freed.free();
        purge_thread.join().unwrap();
        *freed.unseen.lock().unwrap()
    });
}
