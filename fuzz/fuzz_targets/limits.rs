//! [`Limits`]: the time and the memory that one small input may take.
//!
//! The time is the CPU time of this thread, so other load on the machine does not change it. The memory is the growth
//! of the peak during the input, so memory that the fuzzer holds does not count.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// The CPU time and the resident memory at the start of an input.
pub struct Limits {
    start_ns: u64,
    start_kib: u64,
}

impl Limits {
    pub fn start() -> Limits {
        reset_peak();
        Limits { start_ns: thread_ns(), start_kib: peak_kib() }
    }

    /// Panics if an input of at most [`SMALL_BYTES`] took more time or memory than allowed.
    pub fn check(self, size_bytes: usize) {
        if size_bytes > SMALL_BYTES {
            return;
        }
        let took_ms = (thread_ns() - self.start_ns) / 1_000_000;
        assert!(took_ms <= MAX_MS, "slow: an input of {size_bytes} bytes took {took_ms} ms");
        let grown = peak_kib().saturating_sub(self.start_kib);
        assert!(grown <= MAX_KIB, "large: an input of {size_bytes} bytes made the process grow by {grown} KiB");
    }
}

fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, and the pointer is to one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn peak_kib() -> u64 {
    // SAFETY: all fields of `rusage` are integers, so zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `rusage`, and the pointer is to one.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_maxrss as u64
}

/// Resets the peak to the resident memory of this moment (proc(5), `/proc/pid/clear_refs`).
fn reset_peak() {
    static CLEAR_REFS: LazyLock<Option<File>> =
        LazyLock::new(|| File::options().write(true).open("/proc/self/clear_refs").ok());
    // If the system does not allow it, the peak never falls, and only an input that exceeds all earlier ones is found.
    if let Some(file) = &*CLEAR_REFS {
        let _ = file.write_at(b"5", 0);
    }
}

const SMALL_BYTES: usize = 64 << 10;
const MAX_MS: u64 = 1000;
const MAX_KIB: u64 = 256 << 10;
