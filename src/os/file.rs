//! [`MappedFile`]: a file's bytes without copying them.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// A file, mapped read-only.
#[derive(Debug)]
pub struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// Whoever shortens the file while it is mapped makes reads of the lost part fault, as with any mapped file.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> Result<MappedFile, Error> {
        let fail = |problem: std::io::Error| ErrorKind::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        let file = File::open(path).map_err(fail)?;
        // SAFETY: O1 - a fresh private mapping at an address of the kernel's choice. That its bytes do not change under
        // the reader is the caller's care; the linker never relies on reading the same byte twice for memory safety.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.map_err(fail)?;
        Ok(MappedFile { map })
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}
