//! [`SystemLoader`]: the same programs as shared libraries, with `dlopen` and `dlclose`.
//!
//! The additional work of an embedder is not measured: linking the object into a library, and writing the library to
//! a file. Names need not differ, because each library is looked up by its own handle. File names must differ,
//! because the loader identifies libraries by path.

use std::ffi::CString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::base::ExecutorAddr;

use super::corpus::{Instance, shared_library};
use super::host_functions as host;
use super::loader::Loader;
use crate::measure::scenario::to_text;
use crate::peers::system_library::{SystemLibrary, c_path};
use tempfile::TempDir;

pub struct SystemLoader {
    directory: TempDir,
    next_file: AtomicU64,
    /// The functions that all libraries call.
    _host: SystemLibrary,
}

/// A library in a file, which is removed with the value.
pub struct File {
    path: PathBuf,
    name: CString,
    entry: CString,
}

impl SystemLoader {
    /// Opens a library of the host's functions that all other libraries can see.
    pub fn new() -> Result<SystemLoader, String> {
        let directory = tempfile::tempdir().map_err(to_text)?;
        let path = directory.path().join("host.so");
        std::fs::write(&path, shared_library(&host_source())?).map_err(to_text)?;
        let host = SystemLibrary::open(&c_path(&path)?, libc::RTLD_GLOBAL)?;
        Ok(SystemLoader { directory, next_file: AtomicU64::new(0), _host: host })
    }
}

impl Loader for SystemLoader {
    type Ready = File;
    type Loaded = SystemLibrary;

    fn ready(&self, instance: Instance) -> Result<File, String> {
        let path = self.directory.path().join(format!("{}.so", self.next_file.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, &*instance.bytes).map_err(to_text)?;
        Ok(File { name: c_path(&path)?, entry: CString::new(instance.entry).map_err(to_text)?, path })
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

    fn reject(&self, ready: &File) -> Result<Duration, String> {
        let start = Instant::now();
        let opened = SystemLibrary::open(&ready.name, libc::RTLD_LOCAL);
        let duration = start.elapsed();
        match opened {
            Err(error) if error.contains("undefined symbol") => Ok(duration),
            Err(error) => Err(format!("unexpected error for a missing symbol: {error}")),
            Ok(_) => Err("a library with a missing symbol was opened".into()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The directory is removed in the end; a failure here does not matter.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// [`host::FUNCTIONS`] in C.
fn host_source() -> String {
    let mut text = String::new();
    for which in 0..host::FUNCTIONS.len() {
        let (name, by) = (host::name(which), which + 1);
        let rotated = format!("(x << {by} | x >> {})", 64 - by);
        let _ = writeln!(text, "unsigned long {name}(unsigned long x) {{ return {rotated} + {}ul; }}", host::ADDEND);
    }
    text
}
