//! [`InputFile`]: a regular file that is read. [`MappedFile`]: a regular file that is mapped, which is unsafe.
//!
//! Another process can shorten a file at any time. A read then returns fewer bytes, which is an error. An access to a mapping
//! raises SIGBUS, which ends the process. So safe code reads files, and [`MappedFile::open`] is unsafe.
//!
//! | what happens to the file | `read` | `read_at` |
//! |---|---|---|
//! | it shrinks, grows or is written during a read | error | error |
//! | it shrinks, grows or is written between two reads | – | error at the next read |
//! | another file takes its name | the bytes of the opened file | the bytes of the opened file |
//!
//! # Limits
//! A change is detected by the size and the modification time. A writer is not detected if it keeps the size and writes twice
//! within one tick of the file system's clock, or if it sets the clock back. [`InputFile::is_settled`] says whether the last
//! write is long enough ago.

use std::fmt::Display;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind};

/// A regular file, open for reading. A read never faults and never waits for another process, whatever happens to the file.
///
/// ```
/// # fn main() -> Result<(), jittison::Error> {
/// let file = jittison::InputFile::open("/proc/self/exe")?;
/// assert_eq!(&file.read_at(0..4)?, b"\x7fELF");
/// let problem = jittison::InputFile::open("/dev/null").unwrap_err();
/// assert!(problem.to_string().contains("/dev/null: it is a character device"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct InputFile {
    file: File,
    path: PathBuf,
    opened_as: FileState,
}

/// The metadata that changes when a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    size_bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileState {
    fn of(metadata: &Metadata) -> FileState {
        FileState { size_bytes: metadata.len(), modified_s: metadata.mtime(), modified_ns: metadata.mtime_nsec() }
    }
}

impl InputFile {
    /// Opens a file. Follows symbolic links.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the path: the text of the system, or the kind of the file if it is not a regular file. FIFOs,
    /// devices and sockets are not opened.
    pub fn open(path: impl AsRef<Path>) -> Result<InputFile, Error> {
        let path = path.as_ref();
        // Check the kind before the file is opened, because opening a device can have an effect.
        let named = std::fs::metadata(path).map_err(|problem| fault(path, problem))?;
        check_regular(path, named.file_type())?;
        // The path may name another file now. With these flags, `open` does not wait for the writer of a FIFO, and a terminal
        // does not become the controlling terminal of the process.
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
        let file = file.map_err(|problem| fault(path, problem))?;
        let opened = file.metadata().map_err(|problem| fault(path, problem))?;
        check_regular(path, opened.file_type())?;
        Ok(InputFile { file, path: path.to_path_buf(), opened_as: FileState::of(&opened) })
    }

    /// The path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when the file was opened. A file in `/proc` has size 0, whatever can be read from it.
    pub fn size_bytes(&self) -> u64 {
        self.opened_as.size_bytes
    }

    /// Whether any later write would change the modification time: the last write was more than two seconds ago, which is the
    /// coarsest tick of a file system's clock.
    pub fn is_settled(&self) -> bool {
        let modified = u64::try_from(self.opened_as.modified_s).unwrap_or(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        modified.checked_add(CLOCK_TICK_S).is_some_and(|settled| settled < now)
    }

    /// Reads the entire file, however often and by however many threads it is called.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: the text of the system; the file changed since it was opened; not enough memory.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let size_bytes = self.size_bytes();
        let mut bytes = Vec::new();
        self.reserve(&mut bytes, size_bytes)?;
        // Read no more than the size, because a file that always grows has no end.
        let limit = if size_bytes == 0 { MAX_UNSIZED_BYTES } else { size_bytes };
        // Not through `&File`, which reads from a position that all calls share.
        let start = OffsetReader { file: &self.file, offset: 0 };
        let read = start.take(limit).read_to_end(&mut bytes).map_err(|problem| fault(&self.path, problem))?;
        self.check_unchanged()?;
        if size_bytes == 0 && read as u64 == MAX_UNSIZED_BYTES {
            return Err(fault(
                &self.path,
                format!("its size is unknown, and it has {read} bytes or more, which is the limit for such a file"),
            ));
        }
        if size_bytes != 0 && read as u64 != size_bytes {
            return Err(fault(
                &self.path,
                format!("its size is {size_bytes} bytes, but only {read} bytes could be read"),
            ));
        }
        Ok(bytes)
    }

    /// Reads the bytes of a range.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: the text of the system; the range is not in the file; the file changed since it was opened; not
    /// enough memory.
    pub fn read_at(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let size_bytes = self.size_bytes();
        if range.start > range.end || range.end > size_bytes {
            let problem = format!("bytes {:#x} to {:#x} are not within its {size_bytes} bytes", range.start, range.end);
            return Err(fault(&self.path, problem));
        }
        let mut bytes = Vec::new();
        self.reserve(&mut bytes, range.end - range.start)?;
        bytes.resize((range.end - range.start) as usize, 0);
        let read = self.file.read_exact_at(&mut bytes, range.start);
        // Check first: a read of a file that was shortened fails, too, and its error says less.
        self.check_unchanged()?;
        read.map_err(|problem| fault(&self.path, problem))?;
        Ok(bytes)
    }

    fn reserve(&self, bytes: &mut Vec<u8>, size_bytes: u64) -> Result<(), Error> {
        let reserved = usize::try_from(size_bytes).ok().filter(|size| bytes.try_reserve_exact(*size).is_ok());
        let problem = || fault(&self.path, format!("not enough memory for {size_bytes} bytes of it"));
        reserved.map(|_| ()).ok_or_else(problem)
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        let now = self.file.metadata().map_err(|problem| fault(&self.path, problem))?;
        if FileState::of(&now) == self.opened_as {
            return Ok(());
        }
        let (then, now) = (self.opened_as.size_bytes, now.len());
        let sizes = if then == now { String::new() } else { format!(": it had {then} bytes and has {now} bytes now") };
        let problem = format!("it was changed since it was opened{sizes}; open it again when its writer has finished");
        Err(fault(&self.path, problem))
    }
}

/// Reads a file from an offset of its own.
struct OffsetReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for OffsetReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A regular file, mapped read-only. Use it for files that no one changes: nothing is copied, and pages that are not accessed
/// are not read. Use [`InputFile`] where the file may change.
#[derive(Debug)]
pub struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// As [`InputFile::open`], and the text of the system when it refuses the mapping.
    ///
    /// # Safety
    /// Until the value, and every [`ObjectBuffer`](crate::link::ObjectBuffer) made of it, is dropped:
    /// - No one shortens the file: not this process, not another process, not another machine on a shared file system. An
    ///   access past the end raises SIGBUS.
    /// - No one writes to the file. Its bytes are behind a `&[u8]`, and must not change.
    /// - The device or server of the file stays readable. An access to a page that cannot be read raises SIGBUS.
    ///
    /// Replacing the file with `rename`, or removing it, does not affect the mapping. A memfd with `F_SEAL_SHRINK` and
    /// `F_SEAL_WRITE` meets all three conditions.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<MappedFile, Error> {
        let InputFile { file, path, .. } = InputFile::open(path)?;
        // SAFETY: O1 - the kernel chooses the address, so the mapping replaces nothing; `map` owns it and lends its bytes.
        // The first two clauses of `# Safety` exclude a change of the bytes. O7 - `file` is open during the call.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) };
        Ok(MappedFile { map: map.map_err(|problem| fault(&path, problem))? })
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

fn check_regular(path: &Path, kind: FileType) -> Result<(), Error> {
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_block_device() => "a block device",
        _ => "of an unknown kind",
    };
    Err(fault(path, format!("it is {found}, but only a regular file can be read")))
}

fn fault(path: &Path, problem: impl Display) -> Error {
    ErrorKind::File { path: path.display().to_string(), problem: problem.to_string() }.into()
}

/// The coarsest tick of a modification time in seconds: that of FAT.
const CLOCK_TICK_S: u64 = 2;
/// The limit for a file with size 0, such as a file in `/proc`.
const MAX_UNSIZED_BYTES: u64 = 64 << 20;
