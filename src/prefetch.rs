//! [`prefetch`], [`prefetch_at`], [`prefetch_to_write`]: ask the processor for memory that is needed soon.
//!
//! Where many modules live, what one of them left in the books is in no cache, and where it stands is known only once
//! something else has come that is in none either. Waiting for each in turn takes most of a removal. So whoever knows
//! several places asks for all of them, and waits once. A load whose value nobody needs would ask as well, but a lock that
//! is taken next would wait for it; what is asked for here, nothing waits for. Nor is it otherwise with memory that a link
//! takes over from a module that is gone: stores wait for nothing, but the next lock waits for all of them.
//!
//! # Invariants
//!
//! - **P1** A request changes nothing that a program can see, and never faults, whatever address it names.

/// Asks for all lines that a value has a part of.
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    each_line(std::ptr::from_ref(value).cast(), size_of_val(value), request);
}

/// As [`prefetch`], for this processor alone: of memory that is written next.
#[inline(always)]
pub(crate) fn prefetch_to_write(bytes: &[u8]) {
    each_line(bytes.as_ptr(), bytes.len(), request_to_write);
}

/// As [`prefetch`], of what is known by its address alone, and may be long gone.
#[inline(always)]
pub(crate) fn prefetch_at(address: usize, size: usize) {
    each_line(std::ptr::without_provenance(address), size, request);
}

#[inline(always)]
fn each_line(start: *const u8, size: usize, request: fn(*const u8)) {
    let (mut line, last) = (start, start.wrapping_add(size.saturating_sub(1)));
    while line < last {
        request(line);
        line = line.wrapping_add(LINE);
    }
    // Whatever the alignment.
    request(last);
}

#[inline(always)]
fn request(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: P1 - a request, which the processor may also ignore.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

#[inline(always)]
fn request_to_write(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: P1 - a request; processors that do not know this one take it as an instruction that does nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Bytes of a line of memory.
const LINE: usize = 64;
