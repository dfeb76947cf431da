//! [`SystemLoader`]: the same programs as shared libraries, by `dlopen` and `dlclose`.
//!
//! What an embedder of it does beside that is not measured, and would be more: linking a library of the object, and writing it to
//! a file. Names need not differ, as each library is looked up by its own handle; files have to, since the loader knows
//! libraries again by their path.

use std::ffi::CString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::base::ExecutorAddr;

use super::corpus::{Instance, shared_library};
use super::host;
use super::loader::Loader;
use crate::scenario::words;
use crate::scratch::Scratch;
use crate::system_library::{SystemLibrary, c_path};

pub struct SystemLoader {
    directory: Scratch,
    next_file: AtomicU64,
    /// What all libraries call.
    _host: SystemLibrary,
}

/// A library in a file, removed with the value.
pub struct File {
    path: PathBuf,
    name: CString,
    entry: CString,
}

impl SystemLoader {
    /// With a library of the host's functions, in sight of all others.
    pub fn new() -> Result<SystemLoader, String> {
        let directory = Scratch::new()?;
        let path = directory.path("host.so");
        std::fs::write(&path, shared_library(&host_source())?).map_err(words)?;
        let host = SystemLibrary::open(&c_path(&path)?, libc::RTLD_GLOBAL)?;
        Ok(SystemLoader { directory, next_file: AtomicU64::new(0), _host: host })
    }
}

impl Loader for SystemLoader {
    type Ready = File;
    type Loaded = SystemLibrary;

    fn ready(&self, instance: Instance) -> Result<File, String> {
        let path = self.directory.path(&format!("{}.so", self.next_file.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, &*instance.bytes).map_err(words)?;
        Ok(File { name: c_path(&path)?, entry: CString::new(instance.entry).map_err(words)?, path })
    }

    fn load(&self, ready: &File) -> Result<(ExecutorAddr, SystemLibrary), String> {
        let library = SystemLibrary::open(&ready.name, libc::RTLD_LOCAL)?;
        Ok((library.symbol(&ready.entry)?, library))
    }

    fn unload(&self, loaded: SystemLibrary) -> Result<(), String> {
        drop(loaded);
        Ok(())
    }

    fn cancel(&self, _: &File, _: bool) -> Result<Option<Duration>, String> {
        Ok(None)
    }

    fn refuse(&self, ready: &File) -> Result<Duration, String> {
        let start = Instant::now();
        let opened = SystemLibrary::open(&ready.name, libc::RTLD_LOCAL);
        let took = start.elapsed();
        match opened {
            Err(error) if error.contains("undefined symbol") => Ok(took),
            Err(error) => Err(format!("not the error of a missing symbol: {error}")),
            Ok(_) => Err("a library with a missing symbol was opened".into()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // What cannot be removed goes with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// [`host::FUNCTIONS`] in C.
fn host_source() -> String {
    let mut text = String::new();
    for which in 0..host::FUNCTIONS.len() {
        let (name, by) = (host::name(which), which + 1);
        let turned = format!("(x << {by} | x >> {})", 64 - by);
        let _ = writeln!(text, "unsigned long {name}(unsigned long x) {{ return {turned} + {}ul; }}", host::ADDEND);
    }
    text
}
