//! [`Resident`]: what the kernel has backed with memory for this process, and in how many mappings.
//!
//! By `Pss`, not `VmRSS`: that counts a page twice that is mapped twice, once to be written and once to be executed.

#[derive(Clone, Copy)]
pub struct Resident {
    pub bytes: f64,
    pub mappings: f64,
}

impl Resident {
    /// After the allocator has returned what it can.
    pub fn measure() -> Result<Resident, String> {
        // SAFETY: gives free memory of the C library's heap back.
        unsafe { libc::malloc_trim(0) };
        let read = |path| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let mappings = read("/proc/self/maps")?.lines().count() as f64;
        let sums = read("/proc/self/smaps_rollup")?;
        let kilobytes = sums.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix("kB"));
        let kilobytes: f64 = kilobytes.and_then(|text| text.trim().parse().ok()).ok_or("no Pss")?;
        Ok(Resident { bytes: kilobytes * 1024.0, mappings })
    }

    /// How much more there is now, in bytes; less than zero if there is less.
    pub fn grown(&self) -> Result<f64, String> {
        Ok(Resident::measure()?.bytes - self.bytes)
    }
}
