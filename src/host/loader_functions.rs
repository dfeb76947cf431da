//! The functions that linked code calls in place of the loader's `dlsym`, `dlvsym` and `dladdr`.
//!
//! The loader does not know linked objects. It answers for the shared object that the return address is in: that is the
//! window, which has no symbols. So the references of linked code lead here, through code of the object that adds one
//! argument: the address of a word with the number of the object's scope (`loader_scopes.rs`).
//!
//! | call of linked code | answer |
//! |---|---|
//! | `dlsym` with `RTLD_DEFAULT` or the handle of `dlopen(NULL)` | the search of the object's view |
//! | `dlsym` with `RTLD_NEXT` | the same, after the object's dylib |
//! | `dlsym` with any other handle | the loader's |
//! | `dlvsym` | likewise, with the version |
//! | `dladdr` of linked code or data | module, base, symbol |
//! | `dladdr` of any other address | the loader's |
//!
//! A search that finds nothing leaves an error of the loader, for `dlerror`.
//!
//! A panic of the view is an error of the search. An exception of an initialiser that the search runs ends the process, because
//! callers of these functions expect none.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::base::{ExecutorAddr, catch};
use crate::host::exit_handlers::read_word;
use crate::host::loader_scopes::{LoaderScope, ScopeEntry, SymbolSearch, ViewedSymbol};
use crate::host::thread_locals;
use crate::os::{self, AddressInfo};
use crate::sync::Arc;

/// The address of the `dlsym` that linked code calls.
pub(super) fn dlsym_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_dlsym as *const () as u64)
}

/// `void *dlsym(void *handle, const char *name)`, with the word of the object.
///
/// # Safety
/// Only linked code calls this, as its `dlsym`, with the address of its own word.
unsafe extern "C" fn capture_dlsym(handle: *mut c_void, name: *const c_char, word: *const u64) -> *mut c_void {
    // SAFETY: H7 - linked code passes a C string, as to `dlsym`, and a handle that it may pass there. H2 - it passes the
    // address of its own word, and is held while it calls this function.
    unsafe { search(handle as u64, CStr::from_ptr(name), None, word) }
}

/// The address of the `dlvsym` that linked code calls.
pub(super) fn dlvsym_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_dlvsym as *const () as u64)
}

/// `void *dlvsym(void *handle, const char *name, const char *version)`, with the word of the object.
///
/// # Safety
/// As for [`capture_dlsym`].
unsafe extern "C" fn capture_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    word: *const u64,
) -> *mut c_void {
    // SAFETY: H7, H2 - as in `capture_dlsym`; the version is a C string, too.
    unsafe { search(handle as u64, CStr::from_ptr(name), Some(CStr::from_ptr(version)), word) }
}

/// # Safety
/// - `handle` is one that linked code may pass to `dlsym`.
/// - `word` is as for [`read_word`].
unsafe fn search(handle: u64, name: &CStr, version: Option<&CStr>, word: *const u64) -> *mut c_void {
    let search = match handle {
        os::SEARCH_DEFAULT => SymbolSearch::Default,
        os::SEARCH_NEXT => SymbolSearch::Next,
        handle if os::is_program_handle(handle) => SymbolSearch::Default,
        // SAFETY: H7 - linked code got the handle from `dlopen`.
        handle => return unsafe { os::symbol_in(handle, name, version) },
    };
    // SAFETY: H2 - by contract.
    let scope = unsafe { open_scope(word) };
    let found = match &scope {
        Some(scope) => find(scope, search, name, version),
        None => Err("the calling object is being removed".to_string()),
    };
    let problem = match found {
        Ok(Some(address)) => {
            os::clear_loader_error();
            return address.value() as *mut c_void;
        }
        Ok(None) => String::new(),
        Err(problem) => format!(" ({problem})"),
    };
    let version = version.map(|version| format!(", version {}", version.to_string_lossy())).unwrap_or_default();
    os::fail_search(&format!("{}{version}{problem}", name.to_string_lossy()));
    std::ptr::null_mut()
}

/// The address of a symbol in the calling thread. `None` if it is not found.
///
/// # Errors
/// The reason why a definition that was found cannot be used.
fn find(
    scope: &ScopeEntry,
    search: SymbolSearch,
    name: &CStr,
    version: Option<&CStr>,
) -> Result<Option<ExecutorAddr>, String> {
    let found = catch(|| scope.view.find_symbol(search, name, version));
    match found.unwrap_or_else(|panic| Err(format!("the search panicked: {panic}")))? {
        None => Ok(None),
        Some(ViewedSymbol::Address(address)) => Ok(Some(address)),
        Some(ViewedSymbol::ThreadLocal(variable)) => match thread_locals::address_in_this_thread(variable) {
            Some(address) => Ok(Some(address)),
            None => Err("a thread-local variable that has no address yet".to_string()),
        },
    }
}

/// The address of the `dladdr` that linked code calls.
pub(super) fn dladdr_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_dladdr as *const () as u64)
}

/// `int dladdr(const void *address, Dl_info *info)`, with the word of the object. Zero if nothing is known about the address.
///
/// # Safety
/// As for [`capture_dlsym`].
unsafe extern "C" fn capture_dladdr(address: *const c_void, info: *mut AddressInfo, word: *const u64) -> c_int {
    let known = os::locate_address(address as u64);
    // The loader knows no symbol in a window, so this is no linked code.
    let has_symbol = known.is_some_and(|known| !known.symbol.is_null());
    // SAFETY: H2 - linked code passes the address of its own word, and is held while it calls this function.
    let scope = if has_symbol { None } else { unsafe { open_scope(word) } };
    let viewed = scope.and_then(|scope| describe(&scope, ExecutorAddr::new(address as u64), known));
    let Some(answer) = viewed.or(known) else { return 0 };
    // SAFETY: H7 - linked code passes a `Dl_info` to write to.
    unsafe { info.write(answer) };
    1
}

/// What the view of an object knows about an address. `known` is what the loader knows.
fn describe(scope: &ScopeEntry, address: ExecutorAddr, known: Option<AddressInfo>) -> Option<AddressInfo> {
    let viewed = catch(|| scope.view.locate(address)).ok().flatten()?;
    let symbol = viewed.symbol.map(|(name, start)| (scope.text(&name).cast(), start.value()));
    let (symbol, start) = symbol.unwrap_or((std::ptr::null(), 0));
    let base = known.map_or(viewed.base.value(), |known| known.base);
    Some(AddressInfo { path: scope.text(&viewed.module).cast(), base, symbol, start })
}

/// The scope of the calling object. `None` once it is closed.
///
/// # Safety
/// As for [`read_word`].
unsafe fn open_scope(word: *const u64) -> Option<Arc<ScopeEntry>> {
    // SAFETY: H2 - by contract.
    let number = unsafe { read_word(word) }?;
    LoaderScope::find(number)
}
