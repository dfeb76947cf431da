//! Generators: `LLVMOrcDefinitionGeneratorRef` points to one. They are made without a session, and get one with their dylib.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{DefinitionGenerator, RequiredState, Suspension, SymbolFlags, SymbolRequest};
use jittison::{Error, JitDylib};

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, run_or_report, text};
use crate::layers::ObjectLayer;
use crate::layouts::LookupElement;
use crate::library_symbols::LoadedLibrary;
use crate::llvm::{self, Opaque};
use crate::llvm_error::from_llvm;
use crate::lookup_state::LookupState;
use crate::names::{Entry, Interned};
use crate::session::Session;

/// A generator of the program that no dylib has yet.
pub(crate) enum Generator {
    /// Symbols of the process.
    Process(Shown),
    Library(LoadedLibrary, Shown),
    StaticLibrary(PathBuf),
    Custom(Arc<Custom>),
}

/// `LLVMOrcCAPIDefinitionGeneratorTryToGenerateFunction`. The sixth argument says which symbols the lookup sees.
type Generate = unsafe extern "C-unwind" fn(
    *const Custom,
    *mut c_void,
    *mut *const LookupState,
    c_int,
    *const Dylib,
    c_int,
    *const LookupElement,
    usize,
) -> Opaque;
/// `LLVMOrcDisposeCAPIDefinitionGeneratorFunction`.
type Dispose = unsafe extern "C-unwind" fn(*mut c_void);
/// `LLVMOrcSymbolPredicate`.
type Predicate = unsafe extern "C-unwind" fn(*mut c_void, *const Entry) -> c_int;

/// A generator whose definitions a callback makes.
pub(crate) struct Custom {
    generate: Generate,
    context: usize,
    dispose: Option<Dispose>,
    session: OnceLock<Weak<Session>>,
}

/// jittison does not tell a generator who asks, so a callback is told the widest question.
const STATIC_LOOKUP: c_int = 0;
const ALL_SYMBOLS: c_int = 1;

impl Custom {
    fn call(
        &self,
        dylib: &JitDylib,
        missing: &[SymbolRequest<'_>],
        suspension: Option<&Suspension>,
    ) -> Result<(), Error> {
        let session = self.session.get().and_then(Weak::upgrade);
        let session = session.ok_or_else(|| Error::other("the execution session has ended"))?;
        let dylib = session.dylib(dylib);
        let names = missing.iter().map(|request| Interned::of(request.name)).collect::<Result<Vec<_>, _>>()?;
        let element = |(name, request): (&Interned, &SymbolRequest<'_>)| LookupElement {
            name: name.as_raw(),
            flags: c_int::from(!request.required),
        };
        let elements: Vec<_> = names.iter().zip(missing).map(element).collect();
        let context = self.context as *mut c_void;
        LookupState::run(suspension, |state| {
            // SAFETY: O3, O2 - the program promises the callback and the error that it gives away. The names stay until then.
            unsafe {
                let (elements, count) = (elements.as_ptr(), elements.len());
                from_llvm((self.generate)(self, context, state, STATIC_LOOKUP, dylib, ALL_SYMBOLS, elements, count))
            }
        })
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        if let Some(dispose) = self.dispose {
            // SAFETY: O3 - the program promises it; this is the last call.
            unsafe { dispose(self.context as *mut c_void) };
        }
    }
}

/// A custom generator of a dylib.
struct OfProgram(Arc<Custom>);

impl DefinitionGenerator for OfProgram {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        self.0.call(dylib, missing, None)
    }

    fn generate_or_suspend(
        &self,
        dylib: &JitDylib,
        missing: &[SymbolRequest<'_>],
        suspension: &Suspension,
    ) -> Result<(), Error> {
        self.0.call(dylib, missing, Some(suspension))
    }
}

/// Which names a generator shows: those that begin with the prefix, if there is one, and that the filter wants.
pub(crate) struct Shown {
    prefix: u8,
    filter: Option<(Predicate, usize)>,
}

impl Shown {
    fn new(prefix: c_char, filter: Option<Predicate>, context: *mut c_void) -> Shown {
        Shown { prefix: prefix as u8, filter: filter.map(|filter| (filter, context as usize)) }
    }

    /// The names to search, each with the name without its prefix.
    fn select<'a>(&self, missing: &[SymbolRequest<'a>]) -> Result<Vec<(&'a str, &'a str)>, Error> {
        let mut selected = Vec::with_capacity(missing.len());
        for SymbolRequest { name, .. } in missing {
            let plain = if self.prefix == 0 { Some(*name) } else { name.strip_prefix(char::from(self.prefix)) };
            let Some(plain) = plain.filter(|plain| !plain.is_empty()) else { continue };
            if self.is_wanted(name)? {
                selected.push((*name, plain));
            }
        }
        Ok(selected)
    }

    fn is_wanted(&self, name: &str) -> Result<bool, Error> {
        let Some((filter, context)) = self.filter else { return Ok(true) };
        let interned = Interned::of(name)?;
        // SAFETY: O3 - the program promises the callback and its context. The name stays until it returns.
        Ok(unsafe { filter(context as *mut c_void, interned.as_raw()) } != 0)
    }
}

/// Symbols of the process. The dylib of process symbols finds them, and knows functions from data.
struct OfProcess {
    process: JitDylib,
    shown: Shown,
}

impl DefinitionGenerator for OfProcess {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let selected = self.shown.select(missing)?;
        let requests: Vec<_> = selected.iter().map(|(_, plain)| SymbolRequest::weak(plain)).collect();
        let results = self.process.lookup(&requests, RequiredState::Ready)?;
        let found = selected.iter().zip(results).filter(|(_, result)| !result.address.is_null());
        dylib.define_absolute(found.map(|((name, _), result)| (Name::new(name), result.address, result.flags)))
    }
}

/// Symbols of one library.
struct OfLibrary {
    library: LoadedLibrary,
    shown: Shown,
}

impl DefinitionGenerator for OfLibrary {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let selected = self.shown.select(missing)?;
        let find = |(name, plain): &(&str, &str)| {
            let (address, is_function) = self.library.find(plain)?;
            // Weak, because another thread may define the same name at the same time.
            let flags = SymbolFlags::EXPORTED | SymbolFlags::WEAK;
            let flags = if is_function { flags | SymbolFlags::CALLABLE } else { flags };
            Some((Name::new(name), ExecutorAddr::new(address), flags))
        };
        dylib.define_absolute(selected.iter().filter_map(find).collect::<Vec<_>>())
    }
}

impl Generator {
    /// Gives the generator to a dylib.
    fn add_to(self, dylib: &Dylib, session: &Arc<Session>) -> Result<(), Error> {
        let jit = session.jit()?;
        let generator: Arc<dyn DefinitionGenerator> = match self {
            Generator::Process(shown) => Arc::new(OfProcess { process: jit.process_dylib().clone(), shown }),
            Generator::Library(library, shown) => Arc::new(OfLibrary { library, shown }),
            Generator::StaticLibrary(path) => return jit.link_static_library(&dylib.dylib, path),
            Generator::Custom(custom) => {
                let _ = custom.session.set(Arc::downgrade(session));
                Arc::new(OfProgram(custom))
            }
        };
        dylib.dylib.add_generator(generator);
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateCustomCAPIDefinitionGenerator(
    generate: Generate,
    context: *mut c_void,
    dispose: Option<Dispose>,
) -> *mut Generator {
    // LLVM 14 has no third argument, so its register holds anything.
    let dispose = if llvm::version() >= 15 { dispose } else { None };
    let custom = Custom { generate, context: context as usize, dispose, session: OnceLock::new() };
    give(Generator::Custom(Arc::new(custom)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
    result: *mut *mut Generator,
    prefix: c_char,
    filter: Option<Predicate>,
    context: *mut c_void,
) -> Opaque {
    run(|| {
        let made = give(Generator::Process(Shown::new(prefix, filter, context)));
        // SAFETY: O1 - the program promises it.
        unsafe { *result = made };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateDynamicLibrarySearchGeneratorForPath(
    result: *mut *mut Generator,
    path: *const c_char,
    prefix: c_char,
    filter: Option<Predicate>,
    context: *mut c_void,
) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises the string.
        let library = LoadedLibrary::open(unsafe { CStr::from_ptr(path) })?;
        let made = give(Generator::Library(library, Shown::new(prefix, filter, context)));
        // SAFETY: O1 - the program promises it.
        unsafe { *result = made };
        Ok(())
    })
}

/// The triple is not read: a member for another machine is refused when it is linked.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateStaticLibrarySearchGeneratorForPath(
    result: *mut *mut Generator,
    _layer: *const ObjectLayer,
    path: *const c_char,
    _triple: *const c_char,
) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises the string.
        let path = PathBuf::from(unsafe { text(path, "the path of a static library") }?);
        check_archive(&path)?;
        let made = give(Generator::StaticLibrary(path));
        // SAFETY: O1 - the program promises it.
        unsafe { *result = made };
        Ok(())
    })
}

/// Checks that a file is an archive, because adding it to a dylib returns no error.
fn check_archive(path: &std::path::Path) -> Result<(), Error> {
    use std::io::Read;
    let failure = |error: std::io::Error| Error::other(format!("cannot read `{}`: {error}", path.display()));
    let mut magic = [0; 8];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).map_err(failure)?;
    let is_archive = [b"!<arch>\n", b"!<thin>\n"].contains(&&magic);
    if is_archive { Ok(()) } else { Err(Error::other(format!("`{}` is no static library", path.display()))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITDylibAddGenerator(dylib: *const Dylib, generator: *mut Generator) {
    // SAFETY: O1 - the program promises it.
    let dylib = unsafe { Dylib::of(dylib) };
    let session = dylib.as_ref().ok().and_then(|dylib| dylib.session().ok());
    run_or_report(session.as_deref(), (), || {
        // SAFETY: O2 - the program gives it away.
        let generator = *unsafe { Box::from_raw(generator) };
        let dylib = dylib?;
        generator.add_to(dylib, &dylib.session()?)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeDefinitionGenerator(generator: *mut Generator) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(generator) };
}
