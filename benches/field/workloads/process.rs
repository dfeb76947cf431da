//! What the kernel says of this process.

/// Bytes of memory that the kernel backs for this process, after the allocator has given back what it can: its proportional
/// set, since code memory is mapped twice and is to count once.
pub fn resident_bytes() -> u64 {
    // SAFETY: gives free memory of the C library's heap back.
    unsafe { libc::malloc_trim(0) };
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// How much more there is now than before, in bytes; less than zero if there is less.
pub fn grown_since(before: u64) -> f64 {
    resident_bytes() as f64 - before as f64
}
