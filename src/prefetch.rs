//! [`prefetch`], [`prefetch_at`], [`prefetch_to_write`]: prefetch memory that the thread needs soon.
//!
//! With many live modules, the records of one module are in no cache. A removal follows a chain of pointers, and every load
//! misses. These cache misses are most of the time of a removal. So code that knows several addresses prefetches all of them
//! first and waits once.
//!
//! A plain load would also fetch the line, but the next lock instruction waits for all earlier loads. Nothing waits for a
//! prefetch. The same is true for memory that a link takes over from a removed module: a store does not wait for its line, but
//! the next lock instruction waits for all earlier stores. So the link prefetches that memory for writing.
//!
//! Under Miri the functions do nothing.

use crate::arch;

/// Prefetches all cache lines that a value is in.
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    each_line(std::ptr::from_ref(value).cast(), size_of_val(value), arch::prefetch_line);
}

/// As [`prefetch`], for memory that is written next: the line comes in exclusive state.
#[inline(always)]
pub(crate) fn prefetch_to_write(bytes: &[u8]) {
    each_line(bytes.as_ptr(), bytes.len(), arch::prefetch_line_to_write);
}

/// As [`prefetch`], for a range that is known by its address only. The memory may already be freed or unmapped.
#[inline(always)]
pub(crate) fn prefetch_at(address: usize, size: usize) {
    each_line(std::ptr::without_provenance(address), size, arch::prefetch_line);
}

#[inline(always)]
fn each_line(start: *const u8, size: usize, prefetch_line: fn(*const u8)) {
    let (mut line, last) = (start, start.wrapping_add(size.saturating_sub(1)));
    while line < last {
        prefetch_line(line);
        line = line.wrapping_add(LINE);
    }
    // The loop misses the last line where `start` is not aligned to a line.
    prefetch_line(last);
}

/// The size of a cache line in bytes.
pub(crate) const LINE: usize = 64;
