//! Prefetch instructions.

/// Prefetches the cache line at `address`, which may be unmapped.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(not(miri))]
    // SAFETY: A1 - a prefetch never faults, so any address is allowed; it changes nothing, so no reference is violated.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(miri)]
    let _ = address;
}

/// As [`prefetch_line`], in exclusive state. A processor without `prefetchw` executes it as an instruction that does
/// nothing.
#[inline(always)]
pub(crate) fn prefetch_line_to_write(address: *const u8) {
    #[cfg(not(miri))]
    // SAFETY: A1 - as for `prefetch_line`.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast());
    }
    #[cfg(miri)]
    let _ = address;
}
