//! What the process has where in its address space: the program, its heap's end, what lies low.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// From the first to the last byte of the program's own segments; empty when the loader does not tell.
pub(crate) fn program_range() -> Range<u64> {
    let mut range = 0..0u64;
    // SAFETY: O2, O4 - the loader calls `first_segments` with `range`, which outlives the call, and keeps neither.
    unsafe { libc::dl_iterate_phdr(Some(first_segments), (&raw mut range).cast()) };
    range
}

/// The program comes first, so that the first call ends the search.
extern "C" fn first_segments(library: *mut libc::dl_phdr_info, _size: usize, range: *mut c_void) -> c_int {
    // SAFETY: O3 - the loader's record is readable during the call; `range` is the one that `program_range` passed.
    let (library, range) = unsafe { (&*library, &mut *range.cast::<Range<u64>>()) };
    // SAFETY: O3 - the loader's record counts its program headers.
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ends = loads.map(|load| {
        let start = library.dlpi_addr.wrapping_add(load.p_vaddr);
        start..start.wrapping_add(load.p_memsz)
    });
    *range = ends.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or(0..0);
    1
}

/// Where the heap below the libraries ends now; it grows upwards.
pub(crate) fn heap_end() -> u64 {
    // SAFETY: O4 - asks for the end, and moves it by nothing.
    let end = unsafe { libc::sbrk(0) };
    if end as isize == -1 { 0 } else { end as u64 }
}

/// What occupies most of the address space below `limit`, largest first, as text; empty when the kernel does not tell.
pub(crate) fn occupants_below(limit: u64) -> Vec<String> {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return Vec::new() };
    let mut found: Vec<(u64, String)> = maps.lines().filter_map(|line| occupant(line, limit)).collect();
    found.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    found.into_iter().take(4).map(|(_, text)| text).collect()
}

/// `start-end rights offset device inode name`.
fn occupant(line: &str, limit: u64) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let name = words.nth(4).unwrap_or("memory without a name");
    (start < limit).then(|| (end - start, format!("{name} at {start:#x} ({} KiB)", (end - start) >> 10)))
}
