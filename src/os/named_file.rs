//! [`NamedFile`]: a small temporary file with a path.
//!
//! The loader opens libraries by path only. A memfd has a path in `/proc`. Where `/proc` is missing, the caller writes a
//! `NamedFile` into a directory for temporary files, lets the loader open it, and removes its name at once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::os::vm::check_file_size_limit;

/// A file that only this user can open. Its name is removed when the value is dropped.
pub(crate) struct NamedFile {
    file: Option<File>,
    path: PathBuf,
}

impl NamedFile {
    /// Writes a new file with this name into the first of the directories where that succeeds. `parts` are offsets and bytes; holes are between them.
    ///
    /// # Errors
    /// The text of the system for each directory.
    pub(crate) fn create(name: &str, parts: &[(u64, &[u8])]) -> Result<NamedFile, String> {
        let mut problems = Vec::new();
        for dir in directories() {
            match create_in(&dir, name, parts) {
                Ok(file) => return Ok(file),
                Err(error) => problems.push(format!("{}: {error}", dir.display())),
            }
        }
        Err(problems.join("; "))
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name and returns the file. While the file is open, the file system does not use its inode number again.
    pub(crate) fn unlink(mut self) -> Option<File> {
        self.file.take()
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The directories to try, one in memory first. A directory that is mounted `noexec` is usable, because the loader maps no
/// part of the file executable.
fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")];
    directories.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    directories.retain(|dir| dir.is_absolute());
    directories
}

fn create_in(dir: &Path, name: &str, parts: &[(u64, &[u8])]) -> io::Result<NamedFile> {
    check_file_size_limit(parts.iter().map(|(offset, bytes)| offset + bytes.len() as u64).max().unwrap_or(0))?;
    let path = dir.join(name);
    // `create_new` opens no existing file and follows no link, and mode 0600 lets no other user write it.
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    let named = NamedFile { file: Some(file), path };
    if let Some(file) = &named.file {
        parts.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))?;
    }
    Ok(named)
}
