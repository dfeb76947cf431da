//! Objects and archives that are given by path.
//!
//! Nothing here is mapped: another process may shorten a file while it is linked. Objects are read as a whole, since a link
//! needs nearly all of their bytes. Archives are read member by member, since a link needs few of theirs.

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
    /// Opens a file, as [`InputFile::open`] does. It is read here as a whole if it is small, or if it was written in the
    /// last two seconds, so that a further write might go unnoticed; on demand otherwise.
    ///
    /// # Errors
    /// As [`InputFile::open`] and [`InputFile::read`].
    pub fn open(path: impl AsRef<Path>) -> Result<FileBytes> {
        let file = InputFile::open(path)?;
        if file.size_bytes() <= MAX_WHOLE_BYTES || !file.is_settled() && file.size_bytes() <= MAX_OBJECT_BYTES {
            return Ok(FileBytes::InMemory(file.read()?.into()));
        }
        Ok(FileBytes::OnDemand(Arc::new(file)))
    }
}

/// Reads an object.
pub(super) fn read_object(path: &Path) -> Result<ObjectBuffer> {
    let file = InputFile::open(path)?;
    let size_bytes = file.size_bytes();
    if size_bytes > MAX_OBJECT_BYTES {
        let problem = format!("it is of {size_bytes} bytes, and objects of more than 4 GiB are not linked");
        return Err(ErrorKind::File { path: path.display().to_string(), problem }.into());
    }
    file.read().map(ObjectBuffer::from)
}

/// Opens an archive. Members of a thin one are read as objects are.
pub(super) fn open_archive(path: &Path) -> Result<Archive> {
    let own = path.to_path_buf();
    let open_file: Arc<OpenFile> =
        Arc::new(
            move |path| {
                if path == own { FileBytes::open(path) } else { Ok(FileBytes::InMemory(read_object(path)?)) }
            },
        );
    Archive::open(path, open_file)
}

/// Files up to this size are not kept open: a process has few descriptors, and reading them takes less than 50 µs.
const MAX_WHOLE_BYTES: u64 = 256 << 10;
/// More is refused as an object.
const MAX_OBJECT_BYTES: u64 = 4 << 30;
