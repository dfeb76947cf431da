//! Queries of the address space: where the program, the libraries and the heap are, and what occupies low addresses.
//!
//! The answers help to place code memory near the code that it calls. They are snapshots: another thread may map or unmap at
//! any time. Nothing here changes a mapping.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// The range from the first to the last byte of the program's segments. Empty when the loader lists no program.
pub(crate) fn program_range() -> Range<u64> {
    loaded_ranges().first().cloned().unwrap_or(0..0)
}

/// The range from the first to the last byte of the shared libraries that are near the C library. Empty when the loader lists
/// none.
pub(crate) fn library_range() -> Range<u64> {
    let ranges = loaded_ranges();
    let c_library = libc::dl_iterate_phdr as *const () as u64;
    // A window of this crate is a library to the loader, too. It does not count if it is large or far from the C library.
    let near = |range: &&Range<u64>| range.end - range.start < 1 << 28 && range.start.abs_diff(c_library) < 1 << 30;
    ranges.iter().skip(1).filter(near).cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// The ranges of everything that the loader has mapped. The program is the first.
fn loaded_ranges() -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    // SAFETY: O2 - `ranges` outlives the call, and nothing else uses it meanwhile; the loader passes it to `add_range` and
    // keeps neither pointer. `add_range` has the declared signature, and an `extern "C"` function does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(add_range), (&raw mut ranges).cast()) };
    ranges
}

/// # Safety
/// - `library` is the loader's record of a loaded library.
/// - `ranges` is the pointer that `loaded_ranges` passed.
unsafe extern "C" fn add_range(library: *mut libc::dl_phdr_info, _size: usize, ranges: *mut c_void) -> c_int {
    // SAFETY: O5 - inside the loader's callback, so the record is readable. O2 - `ranges` is the vector of `loaded_ranges`,
    // which waits for this call and has no other reference in use.
    let (library, ranges) = unsafe { (&*library, &mut *ranges.cast::<Vec<Range<u64>>>()) };
    // SAFETY: O5 - inside the loader's callback; the record counts `dlpi_phnum` program headers at `dlpi_phdr`.
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ends = loads.map(|load| {
        let start = library.dlpi_addr.wrapping_add(load.p_vaddr);
        start..start.wrapping_add(load.p_memsz)
    });
    ranges.extend(ends.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)));
    0
}

/// The current end of the `brk` heap, which grows upwards. 0 when the kernel has none.
pub(crate) fn heap_end() -> u64 {
    // SAFETY: O9 - an increment of 0 returns the end and does not move it.
    let end = unsafe { libc::sbrk(0) };
    if end as isize == -1 { 0 } else { end as u64 }
}

/// Describes the four largest mappings below `limit`, the largest first. Empty when `/proc/self/maps` cannot be read.
pub(crate) fn mappings_below(limit: u64) -> Vec<String> {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return Vec::new() };
    let mut largest: Vec<(u64, String)> = Vec::new();
    for found in maps.lines().filter_map(|line| describe_mapping(line, limit)) {
        let at = largest.partition_point(|(size, _)| *size >= found.0);
        largest.insert(at, found);
        largest.truncate(4);
    }
    largest.into_iter().map(|(_, text)| text).collect()
}

/// Parses a line of `/proc/self/maps`: `start-end rights offset device inode name`. Returns the size and the description.
fn describe_mapping(line: &str, limit: u64) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let name = words.nth(4).unwrap_or("anonymous memory");
    (start < limit).then(|| (end - start, format!("{name} at {start:#x} ({} KiB)", (end - start) >> 10)))
}
