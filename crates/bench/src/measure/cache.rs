//! [`evict`]: takes an object out of the processor's caches, as the object of a file or of another thread is not in them.

use std::arch::x86_64::{_mm_clflush, _mm_mfence};

const LINE: usize = 64;

/// Writes back and drops the cache lines of these bytes.
pub fn evict(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: an address within the slice; the instruction changes no memory.
        unsafe { _mm_clflush(line.as_ptr()) };
    }
    // SAFETY: every processor with this architecture has the instruction.
    unsafe { _mm_mfence() };
}
