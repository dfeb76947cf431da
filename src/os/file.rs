//! [`InputFile`]: a regular file that is read. [`MappedFile`]: one that is mapped, under the caller's word.
//!
//! Anybody who may write a file may shorten it at any time. A read then returns fewer bytes, which is an error; an access to
//! a mapping raises SIGBUS, which ends the process. So safe code reads, and a mapping needs a promise.
//!
//! | what happens to the file | `read` | `read_at` |
//! |---|---|---|
//! | it shrinks, grows or is written while it is read | error | error |
//! | it does so between two reads | – | error at the next read |
//! | another file takes its name | the bytes that were there | the bytes that were there |
//!
//! A change is noticed by the size and the modification time. A writer that keeps the size and writes twice within one
//! tick of the file system's clock, or sets the clock back, is not noticed. So [`InputFile::is_settled`] says whether the
//! last write is long enough ago.

use std::fmt::Display;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind};

/// A regular file, open for reading. Whatever other processes do to the file, no read faults or waits for them.
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
    opened_as: State,
}

/// What tells a file that was changed from one that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    size_bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl State {
    fn of(metadata: &Metadata) -> State {
        State { size_bytes: metadata.len(), modified_s: metadata.mtime(), modified_ns: metadata.mtime_nsec() }
    }
}

impl InputFile {
    /// Opens a file. Follows symbolic links.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the path: what the system says, or what the path leads to if that is no regular file.
    /// FIFOs, devices and sockets are not opened.
    pub fn open(path: impl AsRef<Path>) -> Result<InputFile, Error> {
        let path = path.as_ref();
        // Before it is opened: opening a device may already do something.
        let named = std::fs::metadata(path).map_err(|problem| fault(path, problem))?;
        check_regular(path, named.file_type())?;
        // The path may lead elsewhere by now. The flags keep `open` from waiting for a FIFO's writer, and a terminal from
        // becoming the process's own.
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
        let file = file.map_err(|problem| fault(path, problem))?;
        let opened = file.metadata().map_err(|problem| fault(path, problem))?;
        check_regular(path, opened.file_type())?;
        Ok(InputFile { file, path: path.to_path_buf(), opened_as: State::of(&opened) })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How large it was when it was opened. Files of `/proc` are of size 0, whatever can be read from them.
    pub fn size_bytes(&self) -> u64 {
        self.opened_as.size_bytes
    }

    /// Whether a later write would change the modification time: the last one was more than two seconds ago, which is the
    /// coarsest clock of a file system.
    pub fn is_settled(&self) -> bool {
        let modified = u64::try_from(self.opened_as.modified_s).unwrap_or(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        modified.checked_add(CLOCK_TICK_S).is_some_and(|settled| settled < now)
    }

    /// All bytes, to the end.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: what the system says; when the file is changed meanwhile; when there is no memory for it.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let size_bytes = self.size_bytes();
        let mut bytes = Vec::new();
        self.reserve(&mut bytes, size_bytes)?;
        // Not beyond the size: a file that grows all the time has no end.
        let limit = if size_bytes == 0 { MAX_UNSIZED_BYTES } else { size_bytes };
        let read = (&self.file).take(limit).read_to_end(&mut bytes).map_err(|problem| fault(&self.path, problem))?;
        self.check_unchanged()?;
        if size_bytes == 0 && read as u64 == MAX_UNSIZED_BYTES {
            return Err(fault(&self.path, format!("it does not say its size, and has more than {read} bytes")));
        }
        if size_bytes != 0 && read as u64 != size_bytes {
            return Err(fault(&self.path, format!("its size is {size_bytes} bytes, and {read} could be read")));
        }
        Ok(bytes)
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: what the system says; when the range does not lie in the file; when the file was changed since it
    /// was opened; when there is no memory for it.
    pub fn read_at(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let size_bytes = self.size_bytes();
        if range.start > range.end || range.end > size_bytes {
            let problem = format!("bytes {:#x} to {:#x} do not lie within its {size_bytes}", range.start, range.end);
            return Err(fault(&self.path, problem));
        }
        let mut bytes = Vec::new();
        self.reserve(&mut bytes, range.end - range.start)?;
        bytes.resize((range.end - range.start) as usize, 0);
        let read = self.file.read_exact_at(&mut bytes, range.start);
        // First: what was shortened ends early, and says less.
        self.check_unchanged()?;
        read.map_err(|problem| fault(&self.path, problem))?;
        Ok(bytes)
    }

    fn reserve(&self, bytes: &mut Vec<u8>, size_bytes: u64) -> Result<(), Error> {
        let reserved = usize::try_from(size_bytes).ok().filter(|size| bytes.try_reserve_exact(*size).is_ok());
        let problem = || fault(&self.path, format!("there is no memory for its {size_bytes} bytes"));
        reserved.map(|_| ()).ok_or_else(problem)
    }

    fn check_unchanged(&self) -> Result<(), Error> {
        let now = self.file.metadata().map_err(|problem| fault(&self.path, problem))?;
        if State::of(&now) == self.opened_as {
            return Ok(());
        }
        let (then, now) = (self.opened_as.size_bytes, now.len());
        let sizes = if then == now { String::new() } else { format!(": it was of {then} bytes and is of {now} bytes") };
        let problem = format!("it was changed since it was opened{sizes}; open it again when its writer is done");
        Err(fault(&self.path, problem))
    }
}

/// A regular file, mapped read-only. For files that nobody changes: nothing is copied, and pages that nobody looks at are
/// not read. Where that is not sure, use [`InputFile`].
#[derive(Debug)]
pub struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// As [`InputFile::open`]; what the system says when it refuses the mapping.
    ///
    /// # Safety
    /// Until the value, and every [`ObjectBuffer`](crate::link::ObjectBuffer) made of it, is dropped:
    /// - Nobody shortens the file: neither this process, nor another, nor another machine on a shared file system. An access
    ///   beyond the end raises SIGBUS.
    /// - Nobody writes to the file. Its bytes are behind a `&[u8]`, and may not change.
    /// - The device or server that holds the file can be read. An access to a page that cannot be read raises SIGBUS.
    ///
    /// A file that is replaced by `rename`, or removed, stays what it was. A memfd with `F_SEAL_SHRINK` and `F_SEAL_WRITE` meets
    /// all three.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<MappedFile, Error> {
        let InputFile { file, path, .. } = InputFile::open(path)?;
        // SAFETY: O1 - a fresh mapping at an address of the kernel's choice. By contract nobody shortens or writes the file.
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
    Err(fault(path, format!("it is {found}, and only regular files are read")))
}

fn fault(path: &Path, problem: impl Display) -> Error {
    ErrorKind::File { path: path.display().to_string(), problem: problem.to_string() }.into()
}

/// FAT keeps modification times in steps of two seconds.
const CLOCK_TICK_S: u64 = 2;
/// What is read of a file that says that it is empty.
const MAX_UNSIZED_BYTES: u64 = 64 << 20;
