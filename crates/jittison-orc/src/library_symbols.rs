//! [`LoadedLibrary`]: a shared library of the program's choice, and what its symbols are.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem;
use std::ptr;

use jittison::Error;

/// A library that stays loaded until the process ends, because code that was linked against it may stay so long.
pub(crate) struct LoadedLibrary(*mut c_void);

// SAFETY: a handle of the loader may be used by every thread.
unsafe impl Send for LoadedLibrary {}
// SAFETY: as above.
unsafe impl Sync for LoadedLibrary {}

unsafe extern "C" {
    /// As `dladdr`; `extra` receives the symbol of an ELF file for `RTLD_DL_SYMENT`.
    fn dladdr1(address: *const c_void, place: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int) -> c_int;
}

const RTLD_DL_SYMENT: c_int = 1;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;

impl LoadedLibrary {
    /// Opens a library as LLVM does: lazily, and for everybody.
    pub(crate) fn open(path: &CStr) -> Result<LoadedLibrary, Error> {
        // SAFETY: the path is a string. Constructors of the library run: the program asked for the library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: the message is of this thread's failure.
            let problem = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            return Err(Error::other(problem));
        }
        Ok(LoadedLibrary(handle))
    }

    /// The address of a symbol, and whether it is a function. `None` if the library lacks it, or if it is thread-local: its
    /// address would be that of this thread.
    pub(crate) fn find(&self, name: &str) -> Option<(u64, bool)> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: zeros are a value of the struct.
        let mut place: libc::Dl_info = unsafe { mem::zeroed() };
        let mut symbol: *mut c_void = ptr::null_mut();
        // SAFETY: both are valid for the call.
        if unsafe { dladdr1(address, &mut place, &mut symbol, RTLD_DL_SYMENT) } == 0 {
            return None;
        }
        // What an indirect function resolves to may have no symbol of its own.
        let is_named = place.dli_saddr == address && !symbol.is_null();
        // SAFETY: `dladdr1` returned the entry of the library's symbol table.
        let is_data = is_named
            && unsafe { [STT_NOTYPE, STT_OBJECT].contains(&((*symbol.cast::<libc::Elf64_Sym>()).st_info & 15)) };
        Some((address as u64, !is_data))
    }
}
