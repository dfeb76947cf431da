//! [`SystemLibrary`]: a shared library that the system's loader has opened. [`build_shared_object`] makes one from
//! an object.

use std::ffi::{CStr, CString, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

use jittison::base::ExecutorAddr;

use crate::measure::scenario::to_text;

/// Closed when it is dropped.
pub struct SystemLibrary(NonNull<libc::c_void>);

// SAFETY: any thread may use a handle of the system's loader.
unsafe impl Send for SystemLibrary {}
// SAFETY: as above.
unsafe impl Sync for SystemLibrary {}

impl SystemLibrary {
    /// Opens a library that this program compiled, and binds all its references. The error is the loader's message.
    pub fn open(path: &CStr, scope: c_int) -> Result<SystemLibrary, String> {
        // SAFETY: a terminated string; the library is ours and has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(SystemLibrary).ok_or_else(last_error)
    }

    pub fn symbol(&self, name: &CStr) -> Result<ExecutorAddr, String> {
        // SAFETY: an open handle and a terminated string.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        if address.is_null() { Err(last_error()) } else { Ok(ExecutorAddr::new(address as u64)) }
    }
}

impl Drop for SystemLibrary {
    fn drop(&mut self) {
        // SAFETY: the handle is open and is closed once; no thread runs the library's code.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// A path in the form that the loader takes.
pub fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(to_text)
}

/// Links an object into a shared object with gcc.
pub fn build_shared_object(directory: &Path, name: &str, object: &[u8]) -> Result<PathBuf, String> {
    let (from, to) = (directory.join(format!("{name}.o")), directory.join(format!("{name}.so")));
    std::fs::write(&from, object).map_err(|error| format!("{}: {error}", from.display()))?;
    let status = Command::new("gcc").args(["-shared", "-o"]).arg(&to).arg(&from).status();
    let is_linked = status.is_ok_and(|status| status.success());
    is_linked.then_some(to).ok_or_else(|| format!("gcc cannot link {name} into a shared object"))
}

/// The loader's last error message in this thread.
fn last_error() -> String {
    // SAFETY: null, or a string of the loader that is valid until this thread's next call.
    let error = unsafe { libc::dlerror().as_ref().map(|error| CStr::from_ptr(error)) };
    error.map_or_else(|| "the loader gave no reason".to_owned(), |error| error.to_string_lossy().into_owned())
}
