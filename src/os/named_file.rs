//! [`NamedFile`]: a small file with a name, for those who must be told a path.
//!
//! The loader opens libraries by path only. Where no path leads to a file without a name (no `/proc`), a small file in
//! a directory for temporary files is given to it, and loses its name at once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::os::vm::check_file_size_limit;

/// A file that only this user can open, and that loses its name when dropped.
pub(crate) struct NamedFile {
    file: Option<File>,
    path: PathBuf,
}

impl NamedFile {
    /// Writes a new file of that name into the first directory that takes it.
    ///
    /// # Errors
    /// What each directory said.
    pub(crate) fn create(name: &str, bytes: &[u8]) -> Result<NamedFile, String> {
        let mut problems = Vec::new();
        for dir in directories() {
            match create_in(&dir, name, bytes) {
                Ok(file) => return Ok(file),
                Err(error) => problems.push(format!("{}: {error}", dir.display())),
            }
        }
        Err(problems.join("; "))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the name away. Whoever keeps the file keeps its inode from being used again.
    pub(crate) fn unlink(mut self) -> Option<File> {
        self.file.take()
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// In memory first. The loader maps nothing of the file executable, so that a directory mounted `noexec` will do.
fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")];
    directories.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    directories.retain(|dir| dir.is_absolute());
    directories
}

fn create_in(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<NamedFile> {
    check_file_size_limit(bytes.len() as u64)?;
    let path = dir.join(name);
    // Made here or not at all: nobody else's file or link is followed, and nobody else can write it.
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    let mut named = NamedFile { file: Some(file), path };
    if let Some(file) = &mut named.file {
        file.write_all(bytes)?;
    }
    Ok(named)
}
