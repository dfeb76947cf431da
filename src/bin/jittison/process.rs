//! Reads the memory use and the threads of this process from `/proc`. Opens libraries by the names that users type.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jittison::host::LoadedLibrary;

/// The number of mappings of this process, and its resident bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Footprint {
    pub mappings: usize,
    pub resident_bytes: u64,
}

impl Footprint {
    /// Reads both from `/proc`; zeroes if it is not mounted.
    pub fn read() -> Footprint {
        let mappings = fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Footprint { mappings, resident_bytes: kibibytes.unwrap_or(0) * 1024 }
    }
}

/// The threads of a process that runs no program yet: its first one, and those of libraries that it was started with or of an
/// emulator.
pub struct FirstThreads {
    process: u32,
    threads: HashSet<OsString>,
}

impl FirstThreads {
    pub fn of(process: u32) -> FirstThreads {
        FirstThreads { process, threads: threads(process).map(|thread| thread.file_name()).collect() }
    }

    /// The number of further threads, besides those with which an executor and its controller serve each other. Waits a short time
    /// for threads that are ending.
    pub fn count_others(&self) -> usize {
        let started = Instant::now();
        let is_counted = |thread: &fs::DirEntry| {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            !self.threads.contains(&thread.file_name()) && !name.starts_with("jittison-lane")
        };
        loop {
            let others = threads(self.process).filter(is_counted).count();
            // The kernel lists a thread for a moment after it was joined.
            if others == 0 || started.elapsed() > MAX_WAIT {
                return others;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The threads of a process by their numbers; none if `/proc` is not mounted.
fn threads(process: u32) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten()
}

/// Opens a shared library by path, by file name, or by the bare name that linkers accept after `-l`.
pub fn open_library(name: &str) -> Result<LoadedLibrary, String> {
    check_sanitizer(name)?;
    let is_bare = !name.contains('/') && !name.contains(".so") && !Path::new(name).is_file();
    if !is_bare {
        return LoadedLibrary::open(name).map_err(|error| error.to_string());
    }
    // Without development packages there is only `libNAME.so.N`. In some systems `libm.so` is a linker script.
    let plain = format!("lib{name}.so");
    let first = match LoadedLibrary::open(&plain) {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    let numbered = (0..10).rev().map(|number| format!("{plain}.{number}"));
    numbered.into_iter().find_map(|name| LoadedLibrary::open(&name).ok()).ok_or_else(|| first.to_string())
}

/// Refuses the library of a sanitizer, unless the process was started with it: opened later, it ends the process or replaces only a
/// part of the allocator.
fn check_sanitizer(name: &str) -> Result<(), String> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let bare = file.strip_prefix("lib").unwrap_or(file);
    let is_of = |sanitizer: &&&str| {
        bare.strip_prefix(**sanitizer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    let Some(sanitizer) = SANITIZERS.iter().find(is_of) else { return Ok(()) };
    let is_loaded = fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(&format!("/lib{sanitizer}")));
    if is_loaded {
        return Ok(());
    }
    Err(format!(
        "lib{sanitizer}.so: the library of a sanitizer has to be the first that a process loads, and this process runs already; \
         nothing was run; compile without the sanitizer, or start jittison with LD_PRELOAD=\"lib{sanitizer}.so libstdc++.so.6\""
    ))
}

/// Sanitizers that replace the allocator.
const SANITIZERS: [&str; 8] =
    ["asan", "hwasan", "lsan", "tsan", "clang_rt.asan", "clang_rt.hwasan", "clang_rt.lsan", "clang_rt.tsan"];

const MAX_WAIT: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
