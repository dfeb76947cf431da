//! The loader's functions on behalf of linked code, with the arguments that this code passed: handles, names, addresses.
//!
//! The error that `dlerror` reports is the loader's own. [`fail_search`] sets it by a search that fails, because no function
//! sets it directly: the loader's message ends with the name of the missing symbol.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::os::dynlib::process_symbol;

/// What `dladdr` reports (`Dl_info` of `<dlfcn.h>`): pointers of the loader, which are valid while it keeps the library.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AddressInfo {
    /// The path of the library.
    pub(crate) path: *const c_char,
    /// The address of its first byte.
    pub(crate) base: u64,
    /// The symbol that contains the address, or null.
    pub(crate) symbol: *const c_char,
    /// The address of that symbol, or zero.
    pub(crate) start: u64,
}

const _: () = assert!(size_of::<AddressInfo>() == size_of::<libc::Dl_info>());

/// The handles that stand for a search, and not for a library.
pub(crate) const SEARCH_DEFAULT: u64 = 0;
pub(crate) const SEARCH_NEXT: u64 = u64::MAX;

/// Whether this is the handle that `dlopen` returns for the program itself.
pub(crate) fn is_program_handle(handle: u64) -> bool {
    // SAFETY: O2 - a null path names the program. `RTLD_NOLOAD` loads nothing, so no constructor runs. O3 - a handle that is
    // opened here is closed once, here; the program stays loaded.
    unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if !program.is_null() {
            libc::dlclose(program);
        }
        !program.is_null() && program as u64 == handle
    }
}

/// Searches a library for a symbol, or for a version of it. Null, with an error for `dlerror`, if it is not found.
///
/// # Safety
/// `handle` is what `dlopen` has returned to the caller, or a constant of `<dlfcn.h>`.
pub(crate) unsafe fn symbol_in(handle: u64, name: &CStr, version: Option<&CStr>) -> *mut c_void {
    let handle = handle as *mut c_void;
    // SAFETY: O3 - the handle is open, by contract. O2 - the texts are C strings that outlive the call.
    unsafe {
        match (version, versioned_search()) {
            (Some(version), Some(search)) => search(handle, name.as_ptr(), version.as_ptr()),
            // musl ignores versions.
            _ => libc::dlsym(handle, name.as_ptr()),
        }
    }
}

/// The address of a version of a symbol that the program or one of its libraries exports.
pub(crate) fn process_symbol_version(name: &CStr, version: Option<&CStr>) -> Option<u64> {
    // SAFETY: O3 - the handle is the constant `RTLD_DEFAULT`, which names no library.
    let found = unsafe { symbol_in(SEARCH_DEFAULT, name, version) };
    (!found.is_null()).then_some(found as u64)
}

/// Makes `dlerror` of this thread report that a symbol is not found. `text` is its name, or its name and the reason.
pub(crate) fn fail_search(text: &str) {
    let text = text.replace('\0', " ");
    let is_found = |text: &str| CString::new(text).is_ok_and(|text| process_symbol(&text).is_some());
    if is_found(&text) {
        is_found(&format!("{text} (not in the link order)"));
    }
}

/// Makes `dlerror` of this thread report no error.
pub(crate) fn clear_loader_error() {
    // SAFETY: O2 - no pointer is passed, and the text is not read.
    unsafe { libc::dlerror() };
}

/// What the loader knows about an address. `None` if it is in no library.
pub(crate) fn locate_address(address: u64) -> Option<AddressInfo> {
    let mut info = AddressInfo { path: std::ptr::null(), base: 0, symbol: std::ptr::null(), start: 0 };
    // SAFETY: O2 - the loader only compares `address`. It writes to `info`, which is local and has the layout of `Dl_info`.
    let is_known = unsafe { libc::dladdr(address as *const c_void, (&raw mut info).cast()) } != 0;
    is_known.then_some(info)
}

type VersionedSearch = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// `dlvsym`, which musl does not have.
fn versioned_search() -> Option<VersionedSearch> {
    let address = process_symbol(c"dlvsym")?;
    // SAFETY: O2 - a C library that has the function declares it with this signature. Its library is never unloaded.
    Some(unsafe { std::mem::transmute::<usize, VersionedSearch>(address as usize) })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn error() -> Option<String> {
        // SAFETY: O2 - the text is valid until the next call of the loader in this thread, and is copied before.
        unsafe {
            let text = libc::dlerror();
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    #[cfg_attr(miri, ignore = "asks the loader")]
    #[test]
    fn a_failed_search_sets_an_error_for_the_calling_thread_until_it_is_read_or_cleared() {
        fail_search("absent_name");
        std::thread::scope(|scope| assert_eq!(scope.spawn(error).join().unwrap(), None));
        assert!(error().is_some_and(|text| text.contains("absent_name")));
        assert_eq!(error(), None);
        fail_search("malloc");
        assert!(error().is_some_and(|text| text.contains("malloc (not in the link order)")));
        fail_search("with\0null");
        clear_loader_error();
        assert_eq!(error(), None);
    }

    #[cfg_attr(miri, ignore = "asks the loader")]
    #[test]
    fn the_handle_of_the_program_is_known() {
        // SAFETY: O3 - the handle of the program is closed once.
        unsafe {
            let program = libc::dlopen(std::ptr::null(), libc::RTLD_NOW);
            assert!(is_program_handle(program as u64));
            libc::dlclose(program);
        }
        assert!(!is_program_handle(SEARCH_DEFAULT) && !is_program_handle(SEARCH_NEXT));
    }

    #[cfg_attr(miri, ignore = "asks the loader")]
    #[test]
    fn an_address_of_a_library_has_a_path_a_base_and_a_symbol() {
        let malloc = process_symbol(c"malloc").unwrap();
        let found = locate_address(malloc + 1).unwrap();
        assert!(!found.path.is_null() && !found.symbol.is_null() && found.base < malloc && found.start == malloc);
        assert!(locate_address(1).is_none());
    }
}
