//! [`SystemLibrary`]: a shared library that the system's own loader has opened, for those who measure that.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr::NonNull;

use jittison::base::ExecutorAddr;

use crate::scenario::words;

/// Closed when it is dropped.
pub struct SystemLibrary(NonNull<libc::c_void>);

// SAFETY: a handle of the system's loader, which any thread may use.
unsafe impl Send for SystemLibrary {}
// SAFETY: as above.
unsafe impl Sync for SystemLibrary {}

impl SystemLibrary {
    /// Opens a library that was compiled here, with all its references bound. An error is the loader's own words.
    pub fn open(path: &CStr, scope: c_int) -> Result<SystemLibrary, String> {
        // SAFETY: a string that ends; our own library, which has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(SystemLibrary).ok_or_else(last_error)
    }

    pub fn symbol(&self, name: &CStr) -> Result<ExecutorAddr, String> {
        // SAFETY: a handle that is open, and a string that ends.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        if address.is_null() { Err(last_error()) } else { Ok(ExecutorAddr::new(address as u64)) }
    }
}

impl Drop for SystemLibrary {
    fn drop(&mut self) {
        // SAFETY: open, and closed once; nobody runs its code.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// A path as the loader takes it.
pub fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(words)
}

/// What the system's loader said last in this thread.
fn last_error() -> String {
    // SAFETY: a string of the loader's, or none, which is there until this thread's next call.
    let error = unsafe { libc::dlerror().as_ref().map(|error| CStr::from_ptr(error)) };
    error.map_or_else(|| "the loader does not say why".to_owned(), |error| error.to_string_lossy().into_owned())
}
