//! [`CountingAllocator`]: counts the allocations of the calling thread, and their bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The number of allocations and reallocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// The system's allocator with counters for [`allocations`], [`allocated_bytes`] and [`live_bytes`]. A program installs it with the attribute `global_allocator`.
pub struct CountingAllocator;

/// The bytes that this thread has allocated so far.
pub fn allocated_bytes() -> u64 {
    ALLOCATED.get()
}

/// The bytes that this thread has allocated so far, without those that it has freed.
pub fn live_bytes() -> i64 {
    LIVE.get()
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = ALLOCATED.try_with(|count| count.set(count.get() + bytes as u64));
    let _ = LIVE.try_with(|count| count.set(count.get() + bytes as i64));
}

fn count_freed(bytes: usize) {
    let _ = LIVE.try_with(|count| count.set(count.get() - bytes as i64));
}

// SAFETY: each method calls the same method of the system's allocator. Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
