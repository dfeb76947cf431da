//! The files that perf reads: [`CodeDump`] is a jitdump, [`NameMap`] is a perf map of names.
//!
//! This module opens both, and reopens them in a forked child, which must not write to a file of its parent. The caller
//! supplies the content. Each append is one write of complete records under a [`ForkLock`]. So no buffer has to be
//! flushed, neither at exit nor in a child. After a failed write, a file gets no more records, because perf could not
//! read them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, Result};
use crate::host::fork_lock::ForkLock;
use crate::os::{self, AppendFile};
use crate::sync::thread_id;

/// A file `jit-PID.dump` in its own directory. One page of the file is mapped executable, because perf learns the
/// file's name from such a mapping.
pub(super) struct CodeDump {
    base: PathBuf,
    header: fn(Stamp) -> Vec<u8>,
    open: ForkLock<OpenDump>,
}

struct OpenDump {
    process: u32,
    /// `None` after a failure.
    file: Option<AppendFile>,
    /// Number of the next function.
    next_number: u64,
}

/// Process, thread and time of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`, the clock of `perf record -k mono`.
    pub(crate) nanoseconds: u64,
}

impl Stamp {
    fn now(process: u32) -> Stamp {
        Stamp { process, thread: thread_id(), nanoseconds: os::monotonic_nanoseconds() }
    }
}

impl CodeDump {
    /// Creates the file in a new directory below `base`, and writes the bytes that `header` returns.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the text of the system.
    pub(super) fn create(base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<CodeDump> {
        let open = OpenDump::create(base, header)?;
        Ok(CodeDump { base: base.to_path_buf(), header, open: ForkLock::new(open) })
    }

    /// Appends the records of `count` functions. `records` gets the time and the number of the first function, and
    /// returns the bytes.
    pub(super) fn append(&self, count: u64, records: impl FnOnce(Stamp, u64) -> Vec<u8>) {
        let process = std::process::id();
        let mut open = self.open.lock();
        if open.process != process {
            let no_file = OpenDump { process, file: None, next_number: 0 };
            *open = OpenDump::create(&self.base, self.header).unwrap_or(no_file);
        }
        let OpenDump { file, next_number, .. } = &mut *open;
        let Some(open_file) = file else { return };
        let written = open_file.append(&records(Stamp::now(process), *next_number));
        *next_number += count;
        if written.is_err() {
            *file = None;
        }
    }
}

impl OpenDump {
    fn create(base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<OpenDump> {
        let process = std::process::id();
        let directory = new_directory(base, process).map_err(|problem| file_error(base, &problem))?;
        let path = directory.join(format!("jit-{process}.dump"));
        let create = || {
            let mut file = AppendFile::create(&path)?;
            file.append(&header(Stamp::now(process)))?;
            file.map_marker()?;
            Ok(file)
        };
        let file = create().map_err(|problem| file_error(&path, &problem))?;
        Ok(OpenDump { process, file: Some(file), next_number: 0 })
    }
}

/// Creates a new directory. perf prescribes the name of the dump, and writes one file per function beside it.
fn new_directory(base: &Path, process: u32) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let mut number = 0;
    loop {
        let path = base.join(format!("jittison-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => number += 1,
            result => return result.map(|()| path),
        }
    }
}

/// The file `/tmp/perf-PID.map`, where perf looks for names of functions in anonymous memory. Other code generators of the
/// process may also write to it.
pub(super) struct NameMap {
    open: ForkLock<OpenMap>,
}

struct OpenMap {
    process: u32,
    /// `None` after a failure.
    file: Option<AppendFile>,
}

impl NameMap {
    /// Opens the file.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the text of the system.
    pub(super) fn open() -> Result<NameMap> {
        Ok(NameMap { open: ForkLock::new(OpenMap::open()?) })
    }

    /// Appends lines.
    pub(super) fn append(&self, lines: &str) {
        let process = std::process::id();
        let mut open = self.open.lock();
        if open.process != process {
            *open = OpenMap::open().unwrap_or(OpenMap { process, file: None });
        }
        if open.file.as_mut().is_some_and(|file| file.append(lines.as_bytes()).is_err()) {
            open.file = None;
        }
    }
}

impl OpenMap {
    fn open() -> Result<OpenMap> {
        let process = std::process::id();
        // perf prescribes this path and ignores `TMPDIR`.
        let path = PathBuf::from(format!("/tmp/perf-{process}.map"));
        let file = AppendFile::open(&path).map_err(|problem| file_error(&path, &problem))?;
        Ok(OpenMap { process, file: Some(file) })
    }
}

fn file_error(path: &Path, problem: &io::Error) -> crate::error::Error {
    ErrorKind::File { path: path.display().to_string(), problem: problem.to_string() }.into()
}
