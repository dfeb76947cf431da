//! The files that profilers read: [`CodeDump`] is perf's jitdump, [`NameMap`] its map of names.
//!
//! This file opens them, and opens others in a forked child, which must not write into its parent's. What stands in them
//! is the business of who appends. Each append is one write of whole records under a lock, so that nothing is left to be
//! written at exit, or by a child. A file that refuses a write gets no more: what would follow could not be read.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, Result};
use crate::host::fork_lock::ForkLock;
use crate::os::{self, GrowingFile};
use crate::sync::thread_id;

/// A file `jit-PID.dump`, in a directory of its own. perf sees it by a page of it that is mapped executable.
pub(crate) struct CodeDump {
    base: PathBuf,
    header: fn(Stamp) -> Vec<u8>,
    open: ForkLock<OpenDump>,
}

struct OpenDump {
    process: u32,
    /// `None` when the file refused.
    file: Option<GrowingFile>,
    next_number: u64,
}

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    /// Nanoseconds of the clock of `perf record -k mono`.
    pub(crate) nanoseconds: u64,
}

impl Stamp {
    fn now(process: u32) -> Stamp {
        Stamp { process, thread: thread_id(), nanoseconds: os::monotonic_nanoseconds() }
    }
}

impl CodeDump {
    /// Makes the file, in a new directory below `base`, with the header that `header` gives.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn create(base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<CodeDump> {
        let open = OpenDump::create(base, header)?;
        Ok(CodeDump { base: base.to_path_buf(), header, open: ForkLock::new(open) })
    }

    /// Appends what `records` makes of the moment and of the number of the first record, for `count` records.
    pub(crate) fn append(&self, count: u64, records: impl FnOnce(Stamp, u64) -> Vec<u8>) {
        let process = std::process::id();
        let mut open = self.open.lock();
        if open.process != process {
            let refused = OpenDump { process, file: None, next_number: 0 };
            *open = OpenDump::create(&self.base, self.header).unwrap_or(refused);
        }
        let OpenDump { file, next_number, .. } = &mut *open;
        let Some(growing) = file else { return };
        let written = growing.append(&records(Stamp::now(process), *next_number));
        *next_number += count;
        if written.is_err() {
            *file = None;
        }
    }
}

impl OpenDump {
    fn create(base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<OpenDump> {
        let process = std::process::id();
        let directory = new_directory(base, process).map_err(|problem| refused(base, &problem))?;
        let path = directory.join(format!("jit-{process}.dump"));
        let make = || {
            let mut file = GrowingFile::create(&path)?;
            file.append(&header(Stamp::now(process)))?;
            file.show()?;
            Ok(file)
        };
        let file = make().map_err(|problem| refused(&path, &problem))?;
        Ok(OpenDump { process, file: Some(file), next_number: 0 })
    }
}

/// A directory that was not there: perf puts a file beside the dump for each function, and the dump's own name is given.
fn new_directory(base: &Path, process: u32) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let mut number = 0;
    loop {
        let path = base.join(format!("jittison-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| path),
        }
    }
}

/// The file `/tmp/perf-PID.map`, where perf looks for names of anonymous memory. Other code generators of the process
/// may write there, too.
pub(crate) struct NameMap {
    open: ForkLock<OpenMap>,
}

struct OpenMap {
    process: u32,
    file: Option<GrowingFile>,
}

impl NameMap {
    /// Opens the file.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open() -> Result<NameMap> {
        Ok(NameMap { open: ForkLock::new(OpenMap::open()?) })
    }

    /// Appends lines.
    pub(crate) fn append(&self, lines: &str) {
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
        // The name is perf's, whatever TMPDIR says.
        let path = PathBuf::from(format!("/tmp/perf-{process}.map"));
        let file = GrowingFile::open(&path).map_err(|problem| refused(&path, &problem))?;
        Ok(OpenMap { process, file: Some(file) })
    }
}

fn refused(path: &Path, problem: &io::Error) -> crate::error::Error {
    ErrorKind::File { path: path.display().to_string(), problem: problem.to_string() }.into()
}
