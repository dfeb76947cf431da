//! [`SystemLoader`]: the same programs as shared libraries, by `dlopen` and `dlclose`.
//!
//! What an embedder of it does beside that is not measured, and would be more: linking a library of the object, and writing it to
//! a file. Names need not differ, as each library is looked up by its own handle; files have to, since the loader knows
//! libraries again by their path.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::base::ExecutorAddr;

use super::corpus::{Instance, Scratch, shared_library};
use super::host::{self, words};
use super::loader::Loader;

pub const WHO: &str = "dlopen";

pub struct SystemLoader {
    directory: Scratch,
    next_file: AtomicU64,
    /// What all libraries call.
    _host: Library,
}

/// A library in a file, removed with the value.
pub struct File {
    path: PathBuf,
    name: CString,
    entry: CString,
}

/// A library that is open.
pub struct Library(NonNull<c_void>);

// SAFETY: a handle of the system's loader, which any thread may use.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl SystemLoader {
    /// With a library of the host's functions, in sight of all others.
    pub fn new() -> Result<SystemLoader, String> {
        let directory = Scratch::new()?;
        let path = directory.path("host.so");
        std::fs::write(&path, shared_library(&host_source())?).map_err(words)?;
        let host = open(&c_string(&path)?, libc::RTLD_GLOBAL)?;
        Ok(SystemLoader { directory, next_file: AtomicU64::new(0), _host: host })
    }
}

impl Loader for SystemLoader {
    type Ready = File;
    type Loaded = Library;

    fn ready(&self, instance: Instance) -> Result<File, String> {
        let path = self.directory.path(&format!("{}.so", self.next_file.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, &*instance.bytes).map_err(words)?;
        Ok(File { name: c_string(&path)?, entry: CString::new(instance.entry).map_err(words)?, path })
    }

    fn load(&self, ready: &File) -> Result<(ExecutorAddr, Library), String> {
        let library = open(&ready.name, libc::RTLD_LOCAL)?;
        // SAFETY: a handle that is open, and a string that ends.
        let address = unsafe { libc::dlsym(library.0.as_ptr(), ready.entry.as_ptr()) };
        if address.is_null() {
            return Err(last_error());
        }
        Ok((ExecutorAddr::new(address as u64), library))
    }

    fn unload(&self, loaded: Library) -> Result<(), String> {
        drop(loaded);
        Ok(())
    }

    fn cancel(&self, _: &File, _: bool) -> Result<Option<Duration>, String> {
        Ok(None)
    }

    fn refuse(&self, ready: &File) -> Result<Duration, String> {
        let start = Instant::now();
        let opened = open(&ready.name, libc::RTLD_LOCAL);
        let took = start.elapsed();
        match opened {
            Err(error) if error.contains("undefined symbol") => Ok(took),
            Err(error) => Err(format!("not the error of a missing symbol: {error}")),
            Ok(_) => Err("a library with a missing symbol was opened".into()),
        }
    }
}

fn open(name: &CStr, scope: c_int) -> Result<Library, String> {
    // SAFETY: a string that ends; our own library, which has no initialisers.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
    NonNull::new(handle).map(Library).ok_or_else(last_error)
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: open, and closed once; nobody runs its code.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // What cannot be removed goes with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What the system's loader said last in this thread.
fn last_error() -> String {
    // SAFETY: a string of the loader's, or none, which is there until this thread's next call.
    let error = unsafe { libc::dlerror().as_ref().map(|error| CStr::from_ptr(error)) };
    error.map_or_else(|| "the loader does not say why".to_owned(), |error| error.to_string_lossy().into_owned())
}

fn c_string(path: &std::path::Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(words)
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
