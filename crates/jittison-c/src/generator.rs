//! Generators of the embedder: a callback that defines what a lookup missed.

use std::ffi::c_void;
use std::sync::Arc;

use jittison::session::{DefinitionGenerator, SymbolRequest};
use jittison::{Error, JitDylib};

use crate::callbacks::{BorrowedDylib, Dropped, OwnedContext, outcome};
use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, read_options};
use crate::text::Str;

/// `jittison_generator`.
pub(crate) type GeneratorHandle = Handle<Arc<dyn DefinitionGenerator>>;
static GENERATORS: Table<Arc<dyn DefinitionGenerator>> = Table::new(Kind::Generator);

/// `jittison_request`.
#[repr(C)]
struct Request {
    name: Str,
    is_required: u32,
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

impl DefinitionGenerator for Generator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let Some(generate) = self.callbacks.generate else { return Ok(()) };
        let dylib = BorrowedDylib::new(dylib)?;
        let request = |request: &SymbolRequest<'_>| Request {
            name: Str { data: request.name.as_ptr().cast(), length: request.name.len() },
            is_required: request.required.into(),
            reserved: 0,
        };
        let requests: Vec<_> = missing.iter().map(request).collect();
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away.
        unsafe { outcome(generate(dylib.handle(), requests.as_ptr(), requests.len(), self.context.get())) }
    }
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
        dylib.add_generator(generator.clone());
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || GENERATORS.insert(generator).map(Handle::new)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_remove(
    generator: GeneratorHandle,
    dylib: Dylib,
    was_there: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        let (generator, dylib) = (GENERATORS.get(generator.bits)?, DYLIBS.get(dylib.bits)?);
        let was = dylib.remove_generator(&generator);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(was_there, was) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_generator_release(generator: GeneratorHandle) -> *mut ErrorObject {
    run(|| GENERATORS.take(generator.bits).map(drop))
}
