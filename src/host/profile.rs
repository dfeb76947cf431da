//! The files that perf reads: [`CodeDump`] is a jitdump, [`NameMap`] is a perf map of names.
//!
//! This module opens both, and reopens them in a forked child, which must not write to a file of its parent. The caller
//! supplies the content. Each append is one write of complete records under a [`ForkLock`]. So no buffer has to be
//! flushed, neither at exit nor in a child. After a failed write, a file gets no more records, because perf could not
//! read them.

use std::fs::DirBuilder;
#[cfg(feature = "executor")]
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, Result};
use crate::host::fork_lock::ForkLock;
use crate::os::{self, AppendFile};
use crate::sync::thread_id;

/// A file `jit-PID.dump` in its own directory. One page of the file is mapped executable, because perf learns the
/// file's name from such a mapping.
pub(crate) struct CodeDump {
    base: PathBuf,
    header: fn(Stamp) -> Vec<u8>,
    /// The other process that runs the code. `None`: this one.
    runs_in: Option<u32>,
    open: ForkLock<OpenDump>,
}

struct OpenDump {
    /// The process that writes.
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
    /// A record of this time about `process`. Its thread is the one that links, or the first one of another process.
    fn now(process: u32) -> Stamp {
        let thread = if process == std::process::id() { thread_id() } else { process };
        Stamp { process, thread, nanoseconds: os::monotonic_nanoseconds() }
    }
}

impl CodeDump {
    /// Creates the file in a new directory below `base`, and writes the bytes that `header` returns.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the text of the system.
    pub(super) fn create(base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<CodeDump> {
        let open = OpenDump::create(base, header, std::process::id(), AppendFile::map_marker)?;
        Ok(CodeDump { base: base.to_path_buf(), header, runs_in: None, open: ForkLock::new(open) })
    }

    /// Creates the file for code of another process, where `map_marker` maps a page of it.
    ///
    /// # Errors
    /// As [`create`](Self::create), and those of `map_marker`.
    #[cfg(feature = "executor")]
    pub(crate) fn create_for(
        process: u32,
        base: &Path,
        header: fn(Stamp) -> Vec<u8>,
        map_marker: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<CodeDump> {
        let open = OpenDump::create(base, header, process, |file| map_marker(file.file()))?;
        Ok(CodeDump { base: base.to_path_buf(), header, runs_in: Some(process), open: ForkLock::new(open) })
    }

    /// The process that runs the code, as far as this one may say. A forked child says nothing about the executor of its parent.
    fn process(&self, is_forked: bool) -> Option<u32> {
        match self.runs_in {
            None => Some(std::process::id()),
            Some(process) => (!is_forked).then_some(process),
        }
    }

    /// Appends the records of `count` functions. `records` gets the time and the number of the first function, and
    /// returns the bytes.
    pub(super) fn append(&self, count: u64, records: impl FnOnce(Stamp, u64) -> Vec<u8>) {
        let writer = std::process::id();
        let mut open = self.open.lock();
        let is_forked = open.process != writer;
        let process = self.process(is_forked);
        if is_forked {
            let new = process.map(|process| OpenDump::create(&self.base, self.header, process, AppendFile::map_marker));
            *open = new.and_then(Result::ok).unwrap_or(OpenDump { process: writer, file: None, next_number: 0 });
        }
        let OpenDump { file, next_number, .. } = &mut *open;
        let (Some(open_file), Some(process)) = (&mut *file, process) else { return };
        let written = open_file.append(&records(Stamp::now(process), *next_number));
        *next_number += count;
        if written.is_err() {
            *file = None;
        }
    }
}

impl OpenDump {
    /// `process` runs the code.
    fn create(
        base: &Path,
        header: fn(Stamp) -> Vec<u8>,
        process: u32,
        map_marker: impl FnOnce(&mut AppendFile) -> io::Result<()>,
    ) -> Result<OpenDump> {
        let directory = new_directory(base, process).map_err(|problem| file_error(base, &problem))?;
        let path = directory.join(format!("jit-{process}.dump"));
        let create = || {
            let mut file = AppendFile::create(&path)?;
            file.append(&header(Stamp::now(process)))?;
            map_marker(&mut file)?;
            Ok(file)
        };
        let file = create().map_err(|problem| file_error(&path, &problem))?;
        Ok(OpenDump { process: std::process::id(), file: Some(file), next_number: 0 })
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
