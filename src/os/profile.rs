//! [`monotonic_nanoseconds`] and [`AppendFile`]: the clock and the files for profilers such as `perf`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::os::page_size::page_size;
use crate::os::vm::check_file_size_limit;

/// The current time in nanoseconds of the clock that `perf record -k mono` uses for its samples.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: O2 - the kernel writes one `timespec` to `time`, which is local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A file that is only written at its end.
pub(crate) struct AppendFile {
    file: File,
    _marker: Option<memmap2::Mmap>,
}

impl AppendFile {
    /// Creates a file. Fails if the path exists.
    pub(crate) fn create(path: &Path) -> io::Result<AppendFile> {
        let file = OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(path)?;
        Ok(AppendFile { file, _marker: None })
    }

    /// Opens a file in a directory that others may write to, or creates it. It follows no symbolic link and does not wait for
    /// the reader of a FIFO. It refuses a file of another user, who would learn the addresses of code from it.
    pub(crate) fn open(path: &Path) -> io::Result<AppendFile> {
        let mut options = OpenOptions::new();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        // SAFETY: O9 - takes no argument and cannot fail.
        let is_own = found.uid() == unsafe { libc::geteuid() };
        if !found.is_file() || !is_own {
            return Err(io::Error::other("it already exists, and is not a regular file of this user"));
        }
        Ok(AppendFile { file, _marker: None })
    }

    /// Maps a page of the file executable for the lifetime of this value. A profiler learns the path of the file from this
    /// mapping. The page is never executed.
    pub(crate) fn map_marker(&mut self) -> io::Result<()> {
        self._marker = Some(map_marker(&self.file)?);
        Ok(())
    }

    /// The file, for another process that maps the page.
    #[cfg(feature = "executor")]
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Appends all of `bytes`.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Ask the kernel for the size, because others may append to the same file.
        check_file_size_limit(self.file.metadata()?.len() + bytes.len() as u64)?;
        self.file.write_all(bytes)
    }
}

/// Maps a page of a file executable. A profiler of this process learns the path of the file from the mapping.
pub(crate) fn map_marker(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: O1 - the kernel chooses the address, so the mapping replaces nothing. No one reads or executes its bytes, so a change of
    // the file does no harm. O7 - `file` is open.
    unsafe { memmap2::MmapOptions::new().len(page_size() as usize).map_exec(file) }
}
