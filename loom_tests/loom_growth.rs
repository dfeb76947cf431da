//! Model: threads grow a pool or open a window while other threads do the same, close slabs, or free memory.
//!
//! Runs `src/memory/growth.rs`, `src/memory/shard.rs` and `src/memory/windows.rs`. No two allocations get the same
//! memory. Where one slab or window is enough, one is opened. A slab or window with an allocation is never closed or
//! lost. A frame table entry stays as long as its allocation lives, whatever other threads grow or free.
//!
//! Seeded bugs: `grown_under_a_later_lock`, `slab_added_under_a_later_lock`, `window_opened_under_a_later_lock`,
//! `slabs_closed_under_no_lock`, `windows_kept_under_a_later_lock`.

#![cfg(loom)]

mod plain_memory;
mod support;

use std::sync::Arc;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::*;
use loom::thread;
use plain_memory::{Cells, FramedMapper, PlainMapper};
use support::explore;

fn pool_with(on_full: OnFull) -> Arc<SlabPool> {
    let options = SlabPoolOptions {
        window_size: 0,
        on_full,
        returns_memory: false,
        trap_freed_code: false,
        ..Default::default()
    };
    Arc::new(SlabPool::with_mapper(PlainMapper(Cells::new()), options).unwrap())
}

/// Asks for bytes of the data pool.
fn plan(size: u64) -> SegmentPlan {
    let mut plan = SegmentPlan::default();
    plan.segments[SegmentKind::Data.index()] = SegmentRequest { size, align: 4096, zero_fill: 0 };
    plan
}

/// The addresses of an allocation.
fn bytes_of(allocation: &dyn InFlight, size: u64) -> std::ops::Range<u64> {
    let start = allocation.address(SegmentKind::Data).value();
    start..start + size
}

fn assert_disjoint(first: &dyn InFlight, second: &dyn InFlight, size: u64) {
    let (first, second) = (bytes_of(first, size), bytes_of(second, size));
    assert!(first.end <= second.start || second.end <= first.start, "two allocations got the same memory");
}

/// Every open slab has an owner: when everything is free, one allocation can take the entire pool.
fn assert_no_slab_is_lost(memory: &SlabPool) {
    let data = WindowLayout::divide(32 << 20).unwrap().pool(SegmentKind::Data).size;
    assert!(memory.allocate(&plan(data)).is_ok(), "an open slab has no owner");
}

#[test]
fn two_threads_that_grow_a_pool_at_once() {
    // Both fit in one slab.
    explore("two_threads_that_grow_a_pool_at_once", None, 4, [SLAB], || {
        let memory = pool_with(OnFull::Refuse);
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(PAGE)).unwrap());
        let here = memory.allocate(&plan(PAGE)).unwrap();
        let there = there.join().unwrap();
        assert_disjoint(&*here, &*there, PAGE);
        let statistics = memory.statistics();
        assert_eq!((statistics.allocations, statistics.reserved_bytes), (2, 2 * PAGE));
        assert_eq!(statistics.free_bytes, statistics.opened_bytes - 2 * PAGE);
        drop((here, there));
        assert_no_slab_is_lost(&memory);
        statistics.opened_bytes
    });
}

#[test]
fn two_threads_that_each_need_a_slab() {
    explore("two_threads_that_each_need_a_slab", None, 4, [2 * SLAB], || {
        let memory = pool_with(OnFull::Refuse);
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(SLAB)).unwrap());
        let here = memory.allocate(&plan(SLAB)).unwrap();
        let there = there.join().unwrap();
        assert_disjoint(&*here, &*there, SLAB);
        let statistics = memory.statistics();
        assert_eq!((statistics.allocations, statistics.free_bytes), (2, 0));
        drop((here, there));
        assert_no_slab_is_lost(&memory);
        statistics.opened_bytes
    });
}

#[test]
fn growing_versus_closing_slabs() {
    // The allocation finds the empty slab open, or opens it again: opened bytes, and number of closed slabs.
    let outcomes = [(SLAB, 0), (SLAB, 1)];
    explore("growing_versus_closing_slabs", None, 4, outcomes, || {
        let memory = pool_with(OnFull::Refuse);
        drop(memory.allocate(&plan(PAGE)).unwrap());
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(PAGE)).unwrap());
        let closed = memory.release_free_slabs();
        let there = there.join().unwrap();
        let more = memory.allocate(&plan(PAGE)).unwrap();
        assert_disjoint(&*there, &*more, PAGE);
        let statistics = memory.statistics();
        assert_eq!((statistics.allocations, statistics.reserved_bytes), (2, 2 * PAGE));
        assert_eq!(statistics.free_bytes, statistics.opened_bytes - 2 * PAGE);
        drop((there, more));
        assert_no_slab_is_lost(&memory);
        (statistics.opened_bytes, closed)
    });
}

#[test]
fn two_first_allocations_of_a_pool_without_a_window() {
    // One of the windows that they map is kept.
    explore("two_first_allocations_of_a_pool_without_a_window", Some(3), 4, [1], || {
        let options =
            SlabPoolOptions { window_size: 0, returns_memory: false, trap_freed_code: false, ..Default::default() };
        let memory = Arc::new(SlabPool::mapped_by_the_first_allocation(PlainMapper(Cells::new()), options));
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(PAGE)).unwrap());
        let here = memory.allocate(&plan(PAGE)).unwrap();
        let there = there.join().unwrap();
        assert_disjoint(&*here, &*there, PAGE);
        assert_eq!(memory.statistics().allocations, 2);
        memory.statistics().windows
    });
}

/// A pool whose first window has one free page of data.
fn nearly_full() -> (Arc<SlabPool>, Box<dyn InFlight>) {
    let memory = pool_with(OnFull::OpenAnother);
    let data = WindowLayout::divide(32 << 20).unwrap().pool(SegmentKind::Data).size;
    let filling = memory.allocate(&plan(data - PAGE)).unwrap();
    (memory, filling)
}

#[test]
fn two_threads_that_open_a_window_at_once() {
    // Both fit in one new window.
    explore("two_threads_that_open_a_window_at_once", Some(2), 4, [2], || {
        let (memory, _filling) = nearly_full();
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(2 * PAGE)).unwrap());
        let here = memory.allocate(&plan(2 * PAGE)).unwrap();
        let there = there.join().unwrap();
        assert_disjoint(&*here, &*there, 2 * PAGE);
        memory.statistics().windows
    });
}

#[test]
fn allocating_versus_closing_an_empty_window() {
    // The window stays, or it is closed and another one is opened. Every allocation lies in a listed window.
    let outcomes = [(2, 3)];
    explore("allocating_versus_closing_an_empty_window", Some(2), 4, outcomes, || {
        let (memory, _filling) = nearly_full();
        drop(memory.allocate(&plan(2 * PAGE)).unwrap());
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(2 * PAGE)).unwrap());
        memory.release_free();
        let _there = there.join().unwrap();
        let before = memory.statistics();
        let _more = memory.allocate(&plan(2 * PAGE)).unwrap();
        assert_eq!(before.allocations, 2, "an allocation lies in a window that is not listed");
        (before.windows, memory.statistics().allocations)
    });
}

const PAGE: u64 = 4096;
const SLAB: u64 = 2 << 20;

/// A pool whose windows have a frame table.
fn pool_with_frames() -> (Arc<SlabPool>, FramedMapper) {
    let options =
        SlabPoolOptions { window_size: 0, returns_memory: false, trap_freed_code: false, ..Default::default() };
    let mapper = FramedMapper::default();
    (Arc::new(SlabPool::with_mapper(mapper.clone(), options).unwrap()), mapper)
}

/// A function in one granule, with an entry in the frame table.
fn link(memory: &SlabPool) -> (Box<dyn Finalized>, Frame) {
    let mut plan = SegmentPlan { frame_count: 1, ..SegmentPlan::default() };
    plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: 64, align: 64, zero_fill: 0 };
    let code = memory.allocate(&plan).unwrap();
    let start = code.address(SegmentKind::Code);
    let frame = Frame { start, fde: ExecutorAddr::new(start.value() + 32) };
    (code.finalize(vec![frame]).unwrap(), frame)
}

fn is_listed(mapper: &FramedMapper, frame: Frame) -> bool {
    mapper.frame_of(frame.start) == (frame.start, frame.fde)
}

#[test]
fn frames_of_two_threads_that_grow_the_code_pool_at_once() {
    explore("frames_of_two_threads_that_grow_the_code_pool_at_once", None, 4, [[true, true]], || {
        let (memory, mapper) = pool_with_frames();
        let other = memory.clone();
        let there = thread::spawn(move || link(&other));
        let here = link(&memory);
        let there = there.join().unwrap();
        [here.1, there.1].map(|frame| is_listed(&mapper, frame))
    });
}

#[test]
fn frames_of_new_code_versus_freeing_code_at_its_address() {
    // The new code has the address of the old code, or another.
    explore("frames_of_new_code_versus_freeing_code_at_its_address", None, 3, [(false, true), (true, true)], || {
        let (memory, mapper) = pool_with_frames();
        let (old, frame) = link(&memory);
        let freer = thread::spawn(move || drop(old));
        let (_new, new_frame) = link(&memory);
        freer.join().unwrap();
        (new_frame.start == frame.start, is_listed(&mapper, new_frame))
    });
}
