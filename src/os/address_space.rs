//! What the process has where in its address space: the program, its heap's end, what lies low.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// From the first to the last byte of the program's own segments; empty when the loader does not tell.
pub(crate) fn program_range() -> Range<u64> {
    loaded_ranges().first().cloned().unwrap_or(0..0)
}

/// From the first to the last byte of the shared libraries that stand together with the C library; empty when the loader
/// does not tell.
pub(crate) fn library_range() -> Range<u64> {
    let own = loaded_ranges();
    let c_library = libc::dl_iterate_phdr as *const () as u64;
    // Windows of this crate are libraries for the loader, and stand where they were asked for.
    let near = |range: &&Range<u64>| range.end - range.start < 1 << 28 && range.start.abs_diff(c_library) < 1 << 30;
    own.iter().skip(1).filter(near).cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// What the loader has mapped, the program first.
fn loaded_ranges() -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    // SAFETY: O2, O4 - the loader calls `add_range` with `ranges`, which outlives the call, and keeps neither.
    unsafe { libc::dl_iterate_phdr(Some(add_range), (&raw mut ranges).cast()) };
    ranges
}

/// # Safety
/// The loader calls this, with its own record and with what `loaded_ranges` passed.
unsafe extern "C" fn add_range(library: *mut libc::dl_phdr_info, _size: usize, ranges: *mut c_void) -> c_int {
    // SAFETY: O5 - the loader's record is readable during the call; `ranges` is what `loaded_ranges` passed.
    let (library, ranges) = unsafe { (&*library, &mut *ranges.cast::<Vec<Range<u64>>>()) };
    // SAFETY: O5 - the loader's record counts its program headers.
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ends = loads.map(|load| {
        let start = library.dlpi_addr.wrapping_add(load.p_vaddr);
        start..start.wrapping_add(load.p_memsz)
    });
    ranges.extend(ends.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)));
    0
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
