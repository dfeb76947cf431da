//! [`llvm`]: the LLVM of the process, its version, and the functions of it that this library calls.
//!
//! The library that defines `LLVMContextCreate` is the LLVM of the process. It is found at the first call that needs it: in the
//! global scope, else among all loaded libraries. It stays loaded until the process ends. Functions of the ORC headers that
//! need no session come from the same library: a search by its handle does not find this library's own.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use jittison::Error;

/// A value of LLVM behind a pointer.
pub(crate) type Opaque = *mut c_void;

/// The function that says which library is LLVM.
const MARK: &CStr = c"LLVMContextCreate";

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of LLVM. One that is missing in this LLVM is `None`.
        #[allow(non_snake_case)]
        pub(crate) struct Llvm {
            /// The major version: 14 to 19.
            pub(crate) version: u32,
            $($name: Option<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?>,)*
        }

        impl Llvm {
            fn load(library: &Library) -> Llvm {
                Llvm {
                    version: library.version(),
                    // SAFETY: O4 - the address is null or that of the function of this name and type.
                    $($name: unsafe { mem::transmute::<*mut c_void, Option<_>>(library.find(concat!(stringify!($name), "\0"))) },)*
                }
            }

            $(
                /// The function, or an error that it is missing.
                #[allow(non_snake_case, clippy::type_complexity)]
                pub(crate) fn $name(&self) -> Result<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?, Error> {
                    self.$name.ok_or_else(|| missing(stringify!($name)))
                }
            )*
        }
    };
}

functions! {
    LLVMCreateStringError(*const c_char) -> Opaque;
    LLVMGetErrorMessage(Opaque) -> *mut c_char;
    LLVMDisposeErrorMessage(*mut c_char);
    LLVMCreateMessage(*const c_char) -> *mut c_char;
    LLVMDisposeMessage(*mut c_char);
    LLVMGetBufferStart(Opaque) -> *const u8;
    LLVMGetBufferSize(Opaque) -> usize;
    LLVMDisposeMemoryBuffer(Opaque);
    LLVMCreateMemoryBufferWithMemoryRangeCopy(*const c_char, usize, *const c_char) -> Opaque;
    LLVMGetDefaultTargetTriple() -> *mut c_char;
    LLVMGetHostCPUName() -> *mut c_char;
    LLVMGetHostCPUFeatures() -> *mut c_char;
    LLVMGetTargetFromTriple(*const c_char, *mut Opaque, *mut *mut c_char) -> c_int;
    LLVMCreateTargetMachine(Opaque, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int) -> Opaque;
    LLVMDisposeTargetMachine(Opaque);
    LLVMGetTargetMachineTriple(Opaque) -> *mut c_char;
    LLVMGetTargetMachineCPU(Opaque) -> *mut c_char;
    LLVMGetTargetMachineFeatureString(Opaque) -> *mut c_char;
    LLVMCreateTargetDataLayout(Opaque) -> Opaque;
    LLVMCopyStringRepOfTargetData(Opaque) -> *mut c_char;
    LLVMDisposeTargetData(Opaque);
    LLVMABISizeOfType(Opaque, Opaque) -> u64;
    LLVMTargetMachineEmitToMemoryBuffer(Opaque, Opaque, c_int, *mut *mut c_char, *mut Opaque) -> c_int;
    LLVMGetDataLayoutStr(Opaque) -> *const c_char;
    LLVMSetDataLayout(Opaque, *const c_char);
    LLVMGetModuleIdentifier(Opaque, *mut usize) -> *const u8;
    LLVMGetFirstFunction(Opaque) -> Opaque;
    LLVMGetNextFunction(Opaque) -> Opaque;
    LLVMGetFirstGlobal(Opaque) -> Opaque;
    LLVMGetNextGlobal(Opaque) -> Opaque;
    LLVMGetFirstGlobalAlias(Opaque) -> Opaque;
    LLVMGetNextGlobalAlias(Opaque) -> Opaque;
    LLVMGetFirstGlobalIFunc(Opaque) -> Opaque;
    LLVMGetNextGlobalIFunc(Opaque) -> Opaque;
    LLVMIsDeclaration(Opaque) -> c_int;
    LLVMGetLinkage(Opaque) -> c_int;
    LLVMGetVisibility(Opaque) -> c_int;
    LLVMIsThreadLocal(Opaque) -> c_int;
    LLVMGetValueName2(Opaque, *mut usize) -> *const u8;
    LLVMGlobalGetValueType(Opaque) -> Opaque;
    LLVMGetTypeKind(Opaque) -> c_int;
    LLVMCreateGDBRegistrationListener() -> Opaque;
    LLVMCreatePerfJITEventListener() -> Opaque;
    LLVMOrcCreateNewThreadSafeContext() -> Opaque;
    LLVMOrcThreadSafeContextGetContext(Opaque) -> Opaque;
    LLVMOrcDisposeThreadSafeContext(Opaque);
    LLVMOrcCreateNewThreadSafeModule(Opaque, Opaque) -> Opaque;
    LLVMOrcDisposeThreadSafeModule(Opaque);
    LLVMOrcThreadSafeModuleWithModuleDo(Opaque, unsafe extern "C-unwind" fn(Opaque, Opaque) -> Opaque, Opaque) -> Opaque;
    LLVMOrcCreateDumpObjects(*const c_char, *const c_char) -> Opaque;
    LLVMOrcDisposeDumpObjects(Opaque);
    LLVMOrcDumpObjects_CallOperator(Opaque, *mut Opaque) -> Opaque;
}

/// The LLVM of the process.
///
/// # Errors
/// No loaded library has LLVM's functions. A later call searches again.
pub(crate) fn llvm() -> Result<&'static Llvm, Error> {
    static FOUND: OnceLock<Llvm> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let library = Library::search().ok_or_else(|| Error::other("no loaded library has LLVM's C API"))?;
    Ok(FOUND.get_or_init(|| Llvm::load(&library)))
}

/// The major version of the LLVM of the process, or the newest that this library knows.
pub(crate) fn version() -> u32 {
    llvm().map_or(19, |llvm| llvm.version)
}

#[cold]
fn missing(name: &str) -> Error {
    Error::other(format!("the LLVM of this process has no function `{name}`"))
}

/// A loaded library, by a handle of `dlopen`.
struct Library(Opaque);

impl Library {
    fn search() -> Option<Library> {
        // SAFETY: the name is a string of C.
        let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARK.as_ptr()) };
        Library::of_address(global).or_else(|| loaded_libraries().into_iter().find_map(|path| Library::of_path(&path)))
    }

    /// The library that contains an address.
    fn of_address(address: *mut c_void) -> Option<Library> {
        if address.is_null() {
            return None;
        }
        // SAFETY: zeros are a value of the struct.
        let mut place: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: the struct is valid for the call.
        if unsafe { libc::dladdr(address, &mut place) } == 0 {
            return None;
        }
        // SAFETY: `dladdr` sets a string of the loader, which stays as long as the library. The program itself has no name
        // by which it could be opened, and is opened by null.
        let opened = [place.dli_fname, ptr::null()]
            .map(|name| unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) });
        opened.into_iter().find(|handle| !handle.is_null()).map(Library)
    }

    /// The library that a loaded library takes LLVM's functions from.
    fn of_path(path: &CStr) -> Option<Library> {
        // SAFETY: the path is a string of C.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle was opened above.
        let found = Library::of_address(unsafe { libc::dlsym(handle, MARK.as_ptr()) });
        // SAFETY: as above. The handle of what was found is another one.
        unsafe { libc::dlclose(handle) };
        found
    }

    /// The address of a function. Null if it is missing, or if this library's own one hides it.
    fn find(&self, name: &'static str) -> *mut c_void {
        // SAFETY: the handle is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        if is_own(found) { ptr::null_mut() } else { found }
    }

    /// `LLVMGetVersion` exists since 16, and what tells 15 from 14 is a function that 15 added.
    fn version(&self) -> u32 {
        let get_version = self.find("LLVMGetVersion\0");
        if get_version.is_null() {
            return if self.find("LLVMOrcLookupStateContinueLookup\0").is_null() { 14 } else { 15 };
        }
        let mut parts = [0; 3];
        // SAFETY: O4 - the function has this type.
        unsafe {
            let get_version: unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint) = mem::transmute(get_version);
            get_version(&mut parts[0], &mut parts[1], &mut parts[2]);
        }
        parts[0]
    }
}

/// Whether an address is in this library.
fn is_own(address: *mut c_void) -> bool {
    let base_of = |address: *mut c_void| {
        // SAFETY: zeros are a value of the struct.
        let mut place: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: the struct is valid for the call.
        let is_found = unsafe { libc::dladdr(address, &mut place) } != 0;
        is_found.then_some(place.dli_fbase)
    };
    !address.is_null() && base_of(address) == base_of(is_own as *mut c_void)
}

/// The paths of all loaded libraries, without the program itself.
fn loaded_libraries() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, paths: *mut c_void) -> c_int {
        // SAFETY: the loader lends the struct and the name; the last argument is the vector below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*paths.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut paths = Vec::<CString>::new();
    // SAFETY: the vector lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut paths).cast()) };
    paths
}
