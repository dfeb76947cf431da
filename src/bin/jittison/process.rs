//! What the kernel says of this process, and libraries opened by the names that users give them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jittison::host::LoadedLibrary;

/// Mappings of this process, and bytes of it in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Footprint {
    pub mappings: usize,
    pub resident_bytes: u64,
}

impl Footprint {
    /// As of now; zeroes where `/proc` is not to be had.
    pub fn now() -> Footprint {
        let mappings = fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Footprint { mappings, resident_bytes: kibibytes.unwrap_or(0) * 1024 }
    }
}

/// How many threads of this process are left beside the one that asks, once those that are ending have had time to.
pub fn other_threads() -> usize {
    let started = Instant::now();
    loop {
        let others = fs::read_dir("/proc/self/task").map_or(0, |threads| threads.count().saturating_sub(1));
        // A thread that was joined stays listed for a moment.
        if others == 0 || started.elapsed() > PATIENCE {
            return others;
        }
    }
}

/// Opens a library by path, by file name, or by the bare name that linkers take behind `-l`.
pub fn open_library(name: &str) -> Result<LoadedLibrary, String> {
    let is_bare = !name.contains('/') && !name.contains(".so") && !Path::new(name).is_file();
    if !is_bare {
        return LoadedLibrary::open(name).map_err(|error| error.to_string());
    }
    // Systems without development files, and those where libm.so is a linker script, have numbered ones only.
    let plain = format!("lib{name}.so");
    let first = match LoadedLibrary::open(&plain) {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    let numbered = (0..10).rev().map(|number| format!("{plain}.{number}"));
    numbered.into_iter().find_map(|name| LoadedLibrary::open(&name).ok()).ok_or_else(|| first.to_string())
}

const PATIENCE: Duration = Duration::from_millis(20);
