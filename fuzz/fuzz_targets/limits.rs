//! What one input may take. The time that counts is this thread's own, and the peak of memory the input's: neither depends
//! on what else the machine does, or on what the fuzzer keeps.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

pub struct Limits {
    start_ns: u64,
    start_kib: u64,
}

impl Limits {
    pub fn start() -> Limits {
        forget_peak();
        Limits { start_ns: thread_ns(), start_kib: peak_kib() }
    }

    /// Panics when a small input took more than a small input may.
    pub fn check(self, size_bytes: usize) {
        if size_bytes > SMALL_BYTES {
            return;
        }
        let took_ms = (thread_ns() - self.start_ns) / 1_000_000;
        assert!(took_ms <= LARGEST_MS, "slow: {size_bytes} bytes took {took_ms} ms");
        let grown = peak_kib().saturating_sub(self.start_kib);
        assert!(grown <= LARGEST_KIB, "large: with {size_bytes} bytes the process grew by {grown} KiB");
    }
}

fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and `time` is there to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn peak_kib() -> u64 {
    // SAFETY: zero is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is there to be written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_maxrss as u64
}

/// The peak is what is resident now (proc(5), `/proc/pid/clear_refs`).
fn forget_peak() {
    static CLEAR_REFS: LazyLock<Option<File>> =
        LazyLock::new(|| File::options().write(true).open("/proc/self/clear_refs").ok());
    // Where that is not allowed, only the largest input is seen.
    if let Some(file) = &*CLEAR_REFS {
        let _ = file.write_at(b"5", 0);
    }
}

const SMALL_BYTES: usize = 64 << 10;
const LARGEST_MS: u64 = 1000;
const LARGEST_KIB: u64 = 256 << 10;
