//! The system's loader: opening libraries, finding their symbols.
//!
//! A [`Library`] is closed when it is dropped. Searching the whole process needs no library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::os::address_space::program_range;
use crate::os::dynamic_symbols::exported_thread_local;
use crate::sync::StaticMutex;

unsafe extern "C" {
    /// Of glibc and musl; `libc` names it for the first only.
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
}

/// The same number in both.
const RTLD_DI_LINKMAP: c_int = 2;

/// A library that the loader has opened.
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: O3 - the loader's functions may be called from any thread; the handle is only closed by `drop`.
unsafe impl Send for Library {}
// SAFETY: O3 - as above; shared use only reads.
unsafe impl Sync for Library {}

impl Library {
    /// Opens `path`, with all its references bound. `global` lets later libraries and [`process_symbol`] see its symbols.
    ///
    /// # Errors
    /// The loader's own words.
    pub(crate) fn open(path: &CStr, global: bool) -> Result<Library, String> {
        let scope = if global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
        // SAFETY: O2 - `path` is a C string. Constructors of the library run here: that is what opening means.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(|handle| Library { handle }).ok_or_else(loader_error)
    }

    /// The name of a thread-local variable that the library exports, if it exports any.
    pub(crate) fn exported_thread_local(&self) -> Option<String> {
        let map = self.link_map().ok()?;
        // SAFETY: O5 - the loader's record of this library, which is open.
        unsafe { exported_thread_local(map.load_bias, map.dynamic) }
    }

    /// The first byte that the loader mapped of the library: of its first segment.
    ///
    /// # Errors
    /// The loader's own words.
    pub(crate) fn first_byte(&self) -> Result<u64, String> {
        let dynamic = self.link_map()?.dynamic;
        // SAFETY: O2, O3 - plain words, for which zeroes are a value; the loader only compares the address, and writes
        // `found`.
        let (is_known, found) = unsafe {
            let mut found: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(dynamic, &mut found) != 0, found)
        };
        if is_known { Ok(found.dli_fbase as u64) } else { Err("the loader does not know its own library".to_string()) }
    }
}

impl Library {
    /// A further handle to a library that is loaded.
    fn hold(path: &CStr) -> Option<Library> {
        // SAFETY: O2 - `path` is a C string; nothing is loaded that was not.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(|handle| Library { handle })
    }

    /// The loader's record of the library.
    fn link_map(&self) -> Result<&LinkMap, String> {
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: O3 - the handle is open; the loader writes one pointer into `map`.
        let asked = unsafe { dlinfo(self.handle.as_ptr(), RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if asked != 0 || map.is_null() {
            return Err(loader_error());
        }
        // SAFETY: O3 - the loader's record of an open library is readable while the library is open.
        Ok(unsafe { &*map })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: O3 - opened by `open`, closed here and nowhere else.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

/// Has the shared library that this code is part of, if it is part of one, stay loaded when it is closed. The program
/// stays anyway.
pub(crate) fn stay_loaded() {
    static HAS_ASKED: StaticMutex<bool> = StaticMutex::new(false);
    static HERE: u8 = 0;
    // Not held while the loader is asked: whoever has its lock may be on the way here.
    let has_asked = std::mem::replace(&mut *HAS_ASKED.lock(), true);
    if has_asked || program_range().contains(&(&raw const HERE as u64)) {
        return;
    }
    // SAFETY: O2, O3 - plain words, for which zeroes are a value; the name is the loader's own, of a library that is loaded
    // as long as this code runs. The handle is closed here; what it asked for stays.
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
    // SAFETY: O2 - `name` is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    NonNull::new(address).map(|address| address.as_ptr() as u64)
}

/// The address of a thread-local variable in the calling thread. `None` if no library that is loaded has that module number,
/// or its block does not reach as far as `offset`.
pub(crate) fn thread_local_address(module: u64, offset: u64) -> Option<u64> {
    let first = ThreadLocalBlock::of(module)?;
    // The program stays loaded. Of a library, a handle keeps the loader from giving the number to another one.
    let _held = match first.is_program {
        true => None,
        false => Some(Library::hold(&first.library)?),
    };
    let held = ThreadLocalBlock::of(module).filter(|block| block.library == first.library)?;
    // SAFETY: O3, O5 - the number of a library that is held, and an offset in its block.
    (offset < held.size_bytes).then(|| unsafe { thread_local_address_in(module, offset) })
}

/// As [`thread_local_address`], without asking.
///
/// # Safety
/// - `module` is the number that the loader gave to a library that stays loaded meanwhile.
/// - `offset` lies in that library's block, or is zero.
pub(crate) unsafe fn thread_local_address_in(module: u64, offset: u64) -> u64 {
    unsafe extern "C" {
        fn __tls_get_addr(variable: *const [u64; 2]) -> *mut c_void;
    }
    // SAFETY: O5 - a pair as the psABI describes it, of a module that is loaded, by contract.
    unsafe { __tls_get_addr(&[module, offset]) as u64 }
}

/// What the loader says of a thread-local block.
struct ThreadLocalBlock {
    size_bytes: u64,
    /// The path by which the loader knows the library.
    library: CString,
    /// The first that the loader names.
    is_program: bool,
}

impl ThreadLocalBlock {
    fn of(module: u64) -> Option<ThreadLocalBlock> {
        let mut search = Search { module, seen: 0, found: None };
        // SAFETY: O2, O5 - the loader calls `visit` with `search`, which outlives the call, and keeps neither.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        search.found
    }
}

struct Search {
    module: u64,
    seen: usize,
    found: Option<ThreadLocalBlock>,
}

/// # Safety
/// The loader calls this, with its own record and with what [`ThreadLocalBlock::of`] passed.
unsafe extern "C" fn visit(library: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: O5 - the loader's record is readable during the call; `search` is what `of` passed.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search>()) };
    search.seen += 1;
    if library.dlpi_tls_modid as u64 != search.module || search.module == 0 {
        return 0;
    }
    // SAFETY: O5 - the loader's record counts its program headers.
    let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) };
    let size_bytes = headers.iter().find(|header| header.p_type == libc::PT_TLS).map_or(0, |block| block.p_memsz);
    // SAFETY: O5 - the loader's own C string, or none.
    let name = unsafe { (!library.dlpi_name.is_null()).then(|| CStr::from_ptr(library.dlpi_name).to_owned()) };
    search.found =
        Some(ThreadLocalBlock { size_bytes, library: name.unwrap_or_default(), is_program: search.seen == 1 });
    1
}

/// The head of the loader's `struct link_map`, which is public and stable (`<link.h>`).
#[repr(C)]
struct LinkMap {
    load_bias: u64,
    _name: *const c_char,
    dynamic: *const c_void,
}

fn loader_error() -> String {
    // SAFETY: O2 - the loader returns null or a C string that is valid until this thread's next loader call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    text.map_or_else(|| "the loader gave no reason".to_string(), |text| text.to_string_lossy().into_owned())
}
