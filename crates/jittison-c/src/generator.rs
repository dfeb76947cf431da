//! Generators of the embedder: a callback that defines what a lookup missed.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use jittison::session::{DefinitionGenerator, ReexportsGenerator, SuspendedLookup, Suspension, SymbolRequest};
use jittison::{Error, JitDylib};
use parking_lot::Mutex;

use crate::callbacks::{BorrowedDylib, Dropped, OwnedContext, outcome};
use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, read_options};
use crate::text::Str;

/// `jittison_generator`.
pub(crate) type GeneratorHandle = Handle<Arc<dyn DefinitionGenerator>>;
static GENERATORS: Table<Arc<dyn DefinitionGenerator>> = Table::new(Kind::Generator);

/// `jittison_request`.
#[repr(C)]
pub(crate) struct Request {
    pub(crate) name: Str,
    pub(crate) is_required: u32,
    reserved: u32,
}

/// `jittison_generator_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callbacks {
    size: usize,
    generate: Option<unsafe extern "C-unwind" fn(Dylib, *const Request, usize, *mut c_void) -> *mut ErrorObject>,
    dropped: Option<Dropped>,
}

struct Generator {
    callbacks: Callbacks,
    context: OwnedContext,
}

impl Generator {
    fn call(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let Some(generate) = self.callbacks.generate else { return Ok(()) };
        let dylib = BorrowedDylib::new(dylib)?;
        let request = |request: &SymbolRequest<'_>| Request {
            name: Str::of(request.name),
            is_required: request.required.into(),
            reserved: 0,
        };
        let requests: Vec<_> = missing.iter().map(request).collect();
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away.
        unsafe { outcome(generate(dylib.handle(), requests.as_ptr(), requests.len(), self.context.get())) }
    }
}

impl DefinitionGenerator for Generator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let _outer = Current::set(ptr::null());
        self.call(dylib, missing)
    }

    fn generate_or_suspend(
        &self,
        dylib: &JitDylib,
        missing: &[SymbolRequest<'_>],
        suspension: &Suspension,
    ) -> Result<(), Error> {
        let _outer = Current::set(suspension);
        self.call(dylib, missing)
    }
}

thread_local! {
    /// What captures the lookup whose generator this thread is in. Null outside of generators.
    static CURRENT: Cell<*const Suspension> = const { Cell::new(ptr::null()) };
}

/// Gives [`CURRENT`] back to the generator around this one.
struct Current(*const Suspension);

impl Current {
    fn set(suspension: *const Suspension) -> Current {
        Current(CURRENT.replace(suspension))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// `jittison_suspension`.
pub(crate) type SuspensionHandle = Handle<Mutex<Option<SuspendedLookup>>>;
/// `None` after it was resumed.
static SUSPENSIONS: Table<Mutex<Option<SuspendedLookup>>> = Table::new(Kind::Suspension);

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_suspend(out: *mut SuspensionHandle) -> *mut ErrorObject {
    let capture = || {
        // SAFETY: C6 - null, or set by a generator of this thread that has not returned; it lends the value until then.
        let current = unsafe { CURRENT.get().as_ref() };
        let current = current.ok_or_else(|| Failure::argument("no generator that may suspend runs on this thread"))?;
        let is_other = || Failure::argument("the lookup cannot be suspended, or is suspended already");
        let capture = || Ok(Mutex::new(Some(current.capture().ok_or_else(is_other)?)));
        SUSPENSIONS.insert_with(capture).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", capture) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_suspension_resume(
    suspension: SuspensionHandle,
    error: *mut ErrorObject,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C2 - the caller gives the error away.
        let cause = unsafe { outcome(error) };
        let held = SUSPENSIONS.get(suspension.bits)?;
        let taken = held.lock().take();
        taken.ok_or_else(|| Failure::argument("the lookup was resumed already"))?.resume(cause);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_suspension_release(suspension: SuspensionHandle) -> *mut ErrorObject {
    run(|| SUSPENSIONS.release(suspension.bits))
}

/// Names of `source` that the generator shows: all, or those that a callback wants.
type IsShown = unsafe extern "C-unwind" fn(Str, *mut c_void) -> bool;

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_create_reexports(
    dylib: Dylib,
    source: Dylib,
    is_shown: Option<IsShown>,
    dropped: Option<Dropped>,
    context: *mut c_void,
    out: *mut GeneratorHandle,
) -> *mut ErrorObject {
    let create = || {
        let (dylib, source) = (DYLIBS.get(dylib.bits)?, DYLIBS.get(source.bits)?);
        let context = OwnedContext::new(context, dropped);
        let filter = move |name: &str| match is_shown {
            // SAFETY: C5 - the caller promises the callback and its context.
            Some(is_shown) => unsafe { is_shown(Str::of(name), context.get()) },
            None => true,
        };
        let generator: Arc<dyn DefinitionGenerator> = Arc::new(ReexportsGenerator::new(&source, filter));
        add(&dylib, generator)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_create(
    dylib: Dylib,
    callbacks: *const c_void,
    context: *mut c_void,
    out: *mut GeneratorHandle,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        check_out(callbacks.cast_mut().cast::<usize>(), "callbacks")?;
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: Callbacks = unsafe { read_options(callbacks.cast())? };
        if callbacks.generate.is_none() {
            return Err(Failure::argument("a generator needs the callback `generate`"));
        }
        let dylib = DYLIBS.get(dylib.bits)?;
        let context = OwnedContext::new(context, callbacks.dropped);
        let generator: Arc<dyn DefinitionGenerator> = Arc::new(Generator { callbacks, context });
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || add(&dylib, generator)) }
    })
}

/// Adds a generator to a dylib, and makes a handle of it.
fn add(dylib: &JitDylib, generator: Arc<dyn DefinitionGenerator>) -> Result<GeneratorHandle, Failure> {
    let place = GENERATORS.reserve()?;
    dylib.add_generator(generator.clone());
    Ok(Handle::new(place.fill(generator)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_remove(
    generator: GeneratorHandle,
    dylib: Dylib,
    was_there: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(was_there, "was_there")?;
        let (generator, dylib) = (GENERATORS.get(generator.bits)?, DYLIBS.get(dylib.bits)?);
        let was = dylib.remove_generator(&generator);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(was_there, was) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_release(generator: GeneratorHandle) -> *mut ErrorObject {
    run(|| GENERATORS.release(generator.bits))
}
