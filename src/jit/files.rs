//! Objects and archives that are given by path.
//!
//! Nothing is mapped here, because another process may shorten a file during a link, and an access to the mapping would then
//! end the process. An object is read entirely: a link needs nearly all of its bytes. An archive is read member by member: a
//! link needs few of its members. A file that changes between two reads is an error.

use std::ops::Range;
use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::link::{Archive, FileBytes, ObjectBuffer, OpenFile, ReadAt};
use crate::os::InputFile;
use crate::sync::Arc;

impl ReadAt for InputFile {
    fn size_bytes(&self) -> u64 {
        InputFile::size_bytes(self)
    }

    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer> {
        InputFile::read_at(self, range).map(ObjectBuffer::from)
    }
}

impl FileBytes {
    /// Opens a file, as [`InputFile::open`] does. Small files are read entirely here. So is a file of at most 4 GiB that was
    /// written in the last two seconds, because its modification time may not show a further write. Other files are read
    /// on demand.
    ///
    /// # Errors
    /// As [`InputFile::open`] and [`InputFile::read`].
    pub fn open(path: impl AsRef<Path>) -> Result<FileBytes> {
        let file = InputFile::open(path)?;
        if file.size_bytes() <= MAX_READ_AT_OPEN_BYTES || !file.is_settled() && file.size_bytes() <= MAX_OBJECT_BYTES {
            return Ok(FileBytes::InMemory(file.read()?.into()));
        }
        Ok(FileBytes::OnDemand(Arc::new(file)))
    }
}

/// Reads an object file.
pub(super) fn read_object(path: &Path) -> Result<ObjectBuffer> {
    let file = InputFile::open(path)?;
    let size_bytes = file.size_bytes();
    if size_bytes > MAX_OBJECT_BYTES {
        let problem = format!("it has {size_bytes} bytes, but objects of more than 4 GiB cannot be linked");
        return Err(ErrorKind::File { path: path.display().to_string(), problem }.into());
    }
    file.read().map(ObjectBuffer::from)
}

/// Opens an archive. The members of a thin archive are files of their own, which are read as objects are.
pub(super) fn open_archive(path: &Path) -> Result<Archive> {
    let archive_path = path.to_path_buf();
    let open_file: Arc<OpenFile> = Arc::new(move |path| {
        if path == archive_path { FileBytes::open(path) } else { Ok(FileBytes::InMemory(read_object(path)?)) }
    });
    Archive::open(path, open_file)
}

/// Files up to this size are read entirely and closed, because a process may have few descriptors.
const MAX_READ_AT_OPEN_BYTES: u64 = 256 << 10;
/// The greatest size of an object.
const MAX_OBJECT_BYTES: u64 = 4 << 30;
