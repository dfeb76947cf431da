//! What a profiler's files are made of: a clock that the kernel stamps samples with, and files that only grow.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::os::vm::check_file_size_limit;

/// Nanoseconds of the clock that `perf record -k mono` stamps samples with.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: O4 - the kernel writes only into `time`, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A file that is written at its end.
pub(crate) struct GrowingFile {
    file: File,
    _shown: Option<memmap2::Mmap>,
}

impl GrowingFile {
    /// Makes a file that was not there.
    pub(crate) fn create(path: &Path) -> io::Result<GrowingFile> {
        let file = OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(path)?;
        Ok(GrowingFile { file, _shown: None })
    }

    /// Goes on with a file that may be there, in a directory that others write to: never through a symbolic link, and with
    /// no file of anybody else's, who would come to know where code is. A pipe is not waited for.
    pub(crate) fn open(path: &Path) -> io::Result<GrowingFile> {
        let mut options = OpenOptions::new();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        // SAFETY: O4 - takes nothing and cannot fail.
        let is_own = found.uid() == unsafe { libc::geteuid() };
        if !found.is_file() || !is_own {
            return Err(io::Error::other("it is there already, and no file of this user"));
        }
        Ok(GrowingFile { file, _shown: None })
    }

    /// Has a page of the file mapped executable as long as this lives: the mapping is what a profiler sees of the file's
    /// name. Nobody executes it.
    pub(crate) fn show(&mut self) -> io::Result<()> {
        // SAFETY: O1 - a fresh private mapping at an address of the kernel's choice, which nobody reads.
        let shown = unsafe { memmap2::MmapOptions::new().len(4096).map_exec(&self.file) }?;
        self._shown = Some(shown);
        Ok(())
    }

    /// Writes all of `bytes` behind what is there.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Asked of the kernel: others may append to the same file.
        check_file_size_limit(self.file.metadata()?.len() + bytes.len() as u64)?;
        self.file.write_all(bytes)
    }
}
