//! [`Resident`]: the resident memory of this process, and its number of mappings.
//!
//! `bytes` is `Pss`: the memory that this process takes from the machine. `rss` is what `ps` shows: it counts a page twice that
//! is mapped twice, once writable and once executable.

#[derive(Clone, Copy)]
pub struct Resident {
    pub bytes: f64,
    pub rss: f64,
    pub mappings: f64,
}

impl Resident {
    /// Measures after the C library has returned its free memory to the kernel.
    pub fn measure() -> Result<Resident, String> {
        // SAFETY: returns free memory of the C library's heap to the kernel.
        unsafe { libc::malloc_trim(0) };
        let read = |path| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let mappings = read("/proc/self/maps")?.lines().count() as f64;
        let sums = read("/proc/self/smaps_rollup")?;
        let bytes = |name: &str| {
            let kilobytes = sums.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
            let kilobytes: Option<f64> = kilobytes.and_then(|text| text.trim().parse().ok());
            kilobytes.map(|kilobytes| kilobytes * 1024.0).ok_or_else(|| format!("no {name} in /proc/self/smaps_rollup"))
        };
        Ok(Resident { bytes: bytes("Pss:")?, rss: bytes("Rss:")?, mappings })
    }

    /// The growth in bytes since the measurement. Negative if there is less now.
    pub fn grown(&self) -> Result<f64, String> {
        Ok(Resident::measure()?.bytes - self.bytes)
    }
}
