//! Prefetch instructions.

use std::arch::asm;

/// Prefetches the cache line at `address`, which may be unmapped.
#[inline(always)]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(not(miri))]
    // SAFETY: A1 - a prefetch never faults, so any address is allowed; it changes nothing, so no reference is violated.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(miri)]
    let _ = address;
}

/// As [`prefetch_line`], in exclusive state.
#[inline(always)]
pub(crate) fn prefetch_line_to_write(address: *const u8) {
    #[cfg(not(miri))]
    // SAFETY: A1 - as for `prefetch_line`.
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(miri)]
    let _ = address;
}
