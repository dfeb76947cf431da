//! [`Library`]: a shared library that the system's loader opened. Also the search of the entire process.
//!
//! A [`Library`] is closed when it is dropped. [`process_symbol`] searches the program and all its libraries.
//! [`thread_local_address`] finds the address of a thread-local variable in the calling thread, and checks the module number
//! first, because `__tls_get_addr` checks nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::os::address_space::program_range;
use crate::os::dynamic_symbols::exported_thread_local;
#[cfg(feature = "unstable")]
use crate::os::dynamic_symbols::exports;
use crate::sync::{StaticCell, StaticMutex};

unsafe extern "C" {
    /// glibc and musl have it; the crate `libc` declares it for glibc only.
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
}

/// The request number, which is the same in glibc and musl.
const RTLD_DI_LINKMAP: c_int = 2;

/// A library that the loader has opened.
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: O3 - the handle has no tie to a thread: the loader's functions may be called with it from any thread. `drop` runs
// once, on whichever thread owns the value.
unsafe impl Send for Library {}
// SAFETY: O3 - `&self` only passes the handle to the loader, which locks its own data; no method gives out access to memory
// that another thread could write. `drop` needs ownership, so the handle is open during every shared use.
unsafe impl Sync for Library {}

impl Library {
    /// Opens `path` and binds all its references. With `global`, later libraries and [`process_symbol`] find its symbols.
    /// Then the loader never unloads the library: whoever found a symbol may use it at any time, and holds no handle.
    ///
    /// # Errors
    /// The loader's error message.
    pub(crate) fn open(path: &CStr, global: bool) -> Result<Library, String> {
        let scope = if global { libc::RTLD_GLOBAL | libc::RTLD_NODELETE } else { libc::RTLD_LOCAL };
        // SAFETY: O2 - `path` is a C string that outlives the call. The constructors of the library run here; the embedder
        // chose the library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(|handle| Library { handle }).ok_or_else(loader_error)
    }

    /// The name of one thread-local variable that the library exports, if there is one.
    pub(crate) fn exported_thread_local(&self) -> Option<String> {
        let map = self.link_map().ok()?;
        // SAFETY: O5 - both values come from the loader's record of this library, which `self` keeps loaded.
        unsafe { exported_thread_local(map.load_bias, map.dynamic) }
    }

    /// Whether the library itself exports a symbol of this name.
    #[cfg(feature = "unstable")]
    pub(crate) fn exports(&self, name: &str) -> bool {
        // SAFETY: O5 - both values come from the loader's record of this library, which `self` keeps loaded.
        self.link_map().is_ok_and(|map| unsafe { exports(map.load_bias, map.dynamic, name) })
    }

    /// The address of the first byte of the library: the start of its first segment.
    ///
    /// # Errors
    /// The loader's error message.
    pub(crate) fn first_byte(&self) -> Result<u64, String> {
        let dynamic = self.link_map()?.dynamic;
        // SAFETY: O2 - `Dl_info` consists of integers and raw pointers, so zeroes are a value. The loader writes only to
        // `found`, which is local, and only compares the address `dynamic`.
        let (is_known, found) = unsafe {
            let mut found: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(dynamic, &mut found) != 0, found)
        };
        if is_known {
            Ok(found.dli_fbase as u64)
        } else {
            Err("the loader does not find the library at its own address".to_string())
        }
    }
}

impl Library {
    /// Opens a library that is loaded already. `None` if it is not.
    pub(crate) fn open_loaded(path: &CStr) -> Option<Library> {
        // SAFETY: O2 - `path` is a C string that outlives the call. `RTLD_NOLOAD` loads nothing, so no constructor runs.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(|handle| Library { handle })
    }

    /// The loader's record of the library.
    fn link_map(&self) -> Result<&LinkMap, String> {
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: O3 - `self` keeps the handle open. O2 - the loader writes one pointer to `map`, which is local.
        let status = unsafe { dlinfo(self.handle.as_ptr(), RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if status != 0 || map.is_null() {
            return Err(loader_error());
        }
        // SAFETY: O3 - the loader's record is readable while the library is open, and `self` keeps it open as long as the
        // reference lives.
        Ok(unsafe { &*map })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: O3 - `open` or `open_loaded` opened the handle. Only this `drop` closes it, and it runs once.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

/// Prevents the loader from unloading the shared library that contains this code. Does nothing where this code is in the
/// program itself.
pub(crate) fn prevent_unload() {
    static IS_DONE: StaticMutex<bool> = StaticMutex::new(false);
    static HERE: u8 = 0;
    // Release the lock before the loader is called: a thread that holds the loader's lock may be about to take this one.
    let is_done = std::mem::replace(&mut *IS_DONE.lock(), true);
    if is_done || program_range().contains(&(&raw const HERE as u64)) {
        return;
    }
    // SAFETY: O2 - `Dl_info` consists of integers and raw pointers, so zeroes are a value, and `found` is local. The name is
    // a C string of the loader, and lives as long as the library, which contains this running code. O3 - the handle is closed
    // once, here; `RTLD_NODELETE` remains in effect.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr((&raw const HERE).cast(), &mut found) != 0 && !found.dli_fname.is_null() {
            let handle = libc::dlopen(found.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
            if !handle.is_null() {
                libc::dlclose(handle);
            }
        }
    }
}

/// The address of a symbol that the program or one of its libraries exports.
pub(crate) fn process_symbol(name: &CStr) -> Option<u64> {
    // SAFETY: O2 - `name` is a C string that outlives the call.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    NonNull::new(address).map(|address| address.as_ptr() as u64)
}

/// As [`process_symbol`], for one version of the symbol. `None` if the loader knows no versions, as that of musl.
pub(crate) fn process_symbol_of_version(name: &CStr, version: &CStr) -> Option<u64> {
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    let find = process_symbol(c"dlvsym")?;
    // SAFETY: O2 - the C library declares the function with this signature. Both names are C strings that outlive the call.
    let address = unsafe {
        let find = std::mem::transmute::<usize, Find>(find as usize);
        find(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr())
    };
    NonNull::new(address).map(|address| address.as_ptr() as u64)
}

/// The address of a thread-local variable in the calling thread. `None` if no loaded library has that module number, or if the
/// TLS block of the library is not longer than `offset`.
///
/// `may_copy` gets the path of the library, which stays loaded during the call. If it returns false, the result is `None`, and
/// the loader makes no copy of the block for this thread. The program has the path that the loader reports for it.
pub(crate) fn thread_local_address(module: u64, offset: u64, may_copy: impl FnOnce(&CStr) -> bool) -> Option<u64> {
    let first = ThreadLocalBlock::of(module)?;
    // The program stays loaded. A library needs a handle, so that the loader does not give its number to another library.
    let _library = match first.is_program {
        true => None,
        false => Some(Library::open_loaded(&first.library)?),
    };
    let block = ThreadLocalBlock::of(module).filter(|block| block.library == first.library)?;
    if !may_copy(&block.library) {
        return None;
    }
    // SAFETY: O3 - `_library` keeps the library loaded; the second query found it under this number after the handle was
    // opened. `offset` is less than the size of its block.
    (offset < block.size_bytes).then(|| unsafe { thread_local_address_in(module, offset) }).flatten()
}

/// The alignment in bytes of the TLS block of a loaded library. Zero if no loaded library has that module number.
pub(crate) fn thread_local_alignment(module: u64) -> u64 {
    ThreadLocalBlock::of(module).map_or(0, |block| block.align)
}

/// As [`thread_local_address`], without the checks. `None` if the C library has no such function.
///
/// # Safety
/// - `module` is the number of a library that stays loaded during the call.
/// - `offset` is in the TLS block of that library, or is zero.
pub(crate) unsafe fn thread_local_address_in(module: u64, offset: u64) -> Option<u64> {
    let get_address = tls_get_addr()?;
    // SAFETY: O5 - the module is loaded during the call, by contract. O2 - the pair is a `tls_index` of the psABI, and the
    // function only reads it.
    Some(unsafe { get_address(&[module, offset]) as u64 })
}

type TlsGetAddr = unsafe extern "C" fn(*const [u64; 2]) -> *mut c_void;

/// `__tls_get_addr` of the C library.
#[cfg(target_env = "musl")]
fn tls_get_addr() -> Option<TlsGetAddr> {
    unsafe extern "C" {
        fn __tls_get_addr(variable: *const [u64; 2]) -> *mut c_void;
    }
    Some(__tls_get_addr)
}

/// `__tls_get_addr` of the C library. Found by name, because glibc's static library does not have it.
#[cfg(not(target_env = "musl"))]
fn tls_get_addr() -> Option<TlsGetAddr> {
    static FOUND: StaticCell<Option<u64>> = StaticCell::new();
    let address = (*FOUND.get_or_init(|| process_symbol(c"__tls_get_addr")))?;
    // SAFETY: O5 - the loader defines it and stays loaded. The psABI gives it this signature.
    Some(unsafe { std::mem::transmute::<*const c_void, TlsGetAddr>(address as *const c_void) })
}

/// The loader's description of a TLS block.
struct ThreadLocalBlock {
    size_bytes: u64,
    align: u64,
    /// The path of the library, as the loader has it.
    library: CString,
    /// Whether the block is the program's. The loader lists the program first.
    is_program: bool,
}

impl ThreadLocalBlock {
    fn of(module: u64) -> Option<ThreadLocalBlock> {
        let mut search = TlsSearch { module, seen: 0, found: None };
        // SAFETY: O2 - `search` outlives the call, and nothing else uses it meanwhile; the loader passes it to `visit` and
        // keeps neither pointer.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        search.found
    }
}

struct TlsSearch {
    module: u64,
    seen: usize,
    found: Option<ThreadLocalBlock>,
}

/// # Safety
/// - `library` is the loader's record of a loaded library.
/// - `search` is the pointer that [`ThreadLocalBlock::of`] passed.
unsafe extern "C" fn visit(library: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: O5 - inside the loader's callback, so the record is readable. O2 - `search` is the local of `of`, which waits
    // for this call and has no other reference in use.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<TlsSearch>()) };
    search.seen += 1;
    if library.dlpi_tls_modid as u64 != search.module || search.module == 0 {
        return 0;
    }
    // SAFETY: O5 - inside the loader's callback; the record counts `dlpi_phnum` program headers at `dlpi_phdr`.
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let block = headers.iter().find(|header| header.p_type == libc::PT_TLS);
    let (size_bytes, align) = block.map_or((0, 0), |block| (block.p_memsz, block.p_align));
    // SAFETY: O5 - inside the loader's callback; the name is null or a C string of the loader. It is copied.
    let name = unsafe { (!library.dlpi_name.is_null()).then(|| CStr::from_ptr(library.dlpi_name).to_owned()) };
    search.found =
        Some(ThreadLocalBlock { size_bytes, align, library: name.unwrap_or_default(), is_program: search.seen == 1 });
    1
}

/// The first fields of the loader's `struct link_map`, which are public and stable (`<link.h>`).
#[repr(C)]
struct LinkMap {
    load_bias: u64,
    _name: *const c_char,
    dynamic: *const c_void,
}

fn loader_error() -> String {
    // SAFETY: O2 - no pointer is passed. The loader returns null or a C string, which is valid until the next loader call of
    // this thread. The text is copied below, before such a call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    text.map_or_else(|| "the loader gave no reason".to_string(), |text| text.to_string_lossy().into_owned())
}
