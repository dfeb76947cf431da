//! [`Lljit`]: `LLVMOrcLLJITRef` points to one, and `LLVMOrcLLJITBuilderRef` to a [`Builder`].

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

use jittison::{Error, ResourceTracker};

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, text};
use crate::ir_module::IrLayer;
use crate::layers::{ObjectLayer, ObjectTransform, add_object};
use crate::llvm::Opaque;
use crate::names::{self, Entry, Interned};
use crate::object_file::ObjectFile;
use crate::session::Session;
use crate::target_machine::TargetMachineBuilder;
use crate::thread_safe::ThreadSafeModule;
use crate::tracker::Tracker;

/// `LLVMOrcLLJITBuilderObjectLinkingLayerCreatorFunction`.
type CreateLayer = unsafe extern "C-unwind" fn(*mut c_void, *const Session, *const c_char) -> *mut ObjectLayer;

/// What an `LLJIT` is made of.
#[derive(Default)]
pub(crate) struct Builder {
    machine: Option<TargetMachineBuilder>,
    layer: Option<(CreateLayer, usize)>,
}

/// A session with everything that links and compiles for it.
pub(crate) struct Lljit {
    session: Arc<Session>,
    modules: Arc<IrLayer>,
    objects: Box<ObjectLayer>,
    main: *const Dylib,
    triple: CString,
    layout: CString,
}

impl Builder {
    fn build(self) -> Result<Lljit, Error> {
        let machine = self.machine.map_or_else(TargetMachineBuilder::of_host, Ok)?;
        let triple = machine.triple().to_owned();
        let machine = machine.build()?;
        let layout = machine.data_layout()?;
        let session = Session::new();
        let objects = match self.layer {
            None => Box::new(ObjectLayer::new(&session)),
            Some((create, context)) => {
                // SAFETY: O3, O2 - the program promises the callback, and gives the layer away.
                let layer = unsafe { create(context as *mut c_void, Arc::as_ptr(&session), triple.as_ptr()) };
                if layer.is_null() {
                    return Err(Error::other("the creator of the object linking layer returned null"));
                }
                // SAFETY: O2 - this library made it.
                unsafe { Box::from_raw(layer) }
            }
        };
        let main = session.dylib(session.jit()?.main_dylib());
        let modules = IrLayer::new(&session, machine);
        Ok(Lljit { session, modules, objects, main, triple, layout })
    }
}

impl Lljit {
    /// Adds an object under a tracker. A transform gets it now, and not when it is linked: its symbols are those of what the
    /// transform returns.
    fn add_object(&self, tracker: &ResourceTracker, object: ObjectFile) -> Result<(), Error> {
        add_object(self.session.jit()?, tracker, &self.modules.objects.apply(object)?)
    }

    /// The address of a symbol of the main dylib. Initialisers that wait run.
    fn lookup(&self, name: &str) -> Result<u64, Error> {
        let jit = self.session.jit()?;
        let address = jit.address_of(jit.main_dylib(), name)?;
        // SAFETY: O5 - the code may run. The handle is dropped and never called.
        unsafe { jit.lookup_in::<unsafe extern "C" fn()>(jit.main_dylib(), name)? };
        Ok(address.value())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateLLJITBuilder() -> *mut Builder {
    give(Builder::default())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeLLJITBuilder(builder: *mut Builder) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(builder) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
    builder: *mut Builder,
    machine: *mut TargetMachineBuilder,
) {
    // SAFETY: O1, O2 - the program promises the one, and gives the other away. Null is the host.
    unsafe {
        let machine = (!machine.is_null()).then(|| *Box::from_raw(machine));
        (*builder).machine = machine;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(
    builder: *mut Builder,
    create: Option<CreateLayer>,
    context: *mut c_void,
) {
    // SAFETY: O1 - the program promises it.
    unsafe { (*builder).layer = create.map(|create| (create, context as usize)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateLLJIT(result: *mut *mut Lljit, builder: *mut Builder) -> Opaque {
    run(|| {
        // SAFETY: O2 - the program gives it away. Null is the default.
        let builder = if builder.is_null() { Builder::default() } else { *unsafe { Box::from_raw(builder) } };
        let made = give(builder.build()?);
        // SAFETY: O1 - the program promises it.
        unsafe { *result = made };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeLLJIT(jit: *mut Lljit) -> Opaque {
    run(|| {
        if jit.is_null() {
            return Ok(());
        }
        // SAFETY: O2 - the program gives it away.
        let jit = unsafe { Box::from_raw(jit) };
        let outcome = jit.session.end();
        drop(jit);
        names::clear_dead();
        outcome
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetExecutionSession(jit: *const Lljit) -> *const Session {
    // SAFETY: O1 - the program promises it.
    Arc::as_ptr(&unsafe { &*jit }.session)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetMainJITDylib(jit: *const Lljit) -> *const Dylib {
    // SAFETY: O1 - the program promises it.
    unsafe { &*jit }.main
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetTripleString(jit: *const Lljit) -> *const c_char {
    // SAFETY: O1 - the program promises it.
    unsafe { &*jit }.triple.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetDataLayoutStr(jit: *const Lljit) -> *const c_char {
    // SAFETY: O1 - the program promises it.
    unsafe { &*jit }.layout.as_ptr()
}

/// ELF has no prefix.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetGlobalPrefix(_jit: *const Lljit) -> c_char {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITMangleAndIntern(_jit: *const Lljit, name: *const c_char) -> *const Entry {
    // SAFETY: O1 - the program promises a string. What follows its first byte is one too.
    let name = unsafe {
        let whole = CStr::from_ptr(name);
        // This byte says that the name is mangled already.
        if whole.to_bytes().starts_with(b"\x01") { CStr::from_ptr(name.add(1)) } else { whole }
    };
    Interned::new(name).into_raw()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITAddObjectFile(jit: *const Lljit, dylib: *const Dylib, object: Opaque) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the object away, and promises the others.
        let (object, jit, dylib) = unsafe { (ObjectFile::from_raw(object)?, &*jit, Dylib::of(dylib)?) };
        jit.add_object(&dylib.dylib.default_tracker()?, object)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITAddObjectFileWithRT(
    jit: *const Lljit,
    tracker: *const Tracker,
    object: Opaque,
) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the object away, and promises the others.
        let (object, jit, tracker) = unsafe { (ObjectFile::from_raw(object)?, &*jit, Tracker::of(tracker)?) };
        jit.add_object(&tracker.tracker, object)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITAddLLVMIRModule(jit: *const Lljit, dylib: *const Dylib, module: Opaque) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the module away, and promises the others.
        let (module, jit, dylib) = unsafe { (ThreadSafeModule::from_raw(module)?, &*jit, Dylib::of(dylib)?) };
        jit.modules.add(&dylib.dylib.default_tracker()?, module, &jit.layout)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITAddLLVMIRModuleWithRT(
    jit: *const Lljit,
    tracker: *const Tracker,
    module: Opaque,
) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the module away, and promises the others.
        let (module, jit, tracker) = unsafe { (ThreadSafeModule::from_raw(module)?, &*jit, Tracker::of(tracker)?) };
        jit.modules.add(&tracker.tracker, module, &jit.layout)
    })
}

/// The address of a thread-local variable is that of the calling thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITLookup(jit: *const Lljit, result: *mut u64, name: *const c_char) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises all three.
        let (jit, result, name) = unsafe {
            *result = 0;
            (&*jit, &mut *result, text(name, "the name of a symbol")?)
        };
        *result = jit.lookup(name)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetObjLinkingLayer(jit: *const Lljit) -> *const ObjectLayer {
    // SAFETY: O1 - the program promises it.
    &*unsafe { &*jit }.objects
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetObjTransformLayer(jit: *const Lljit) -> *const ObjectTransform {
    // SAFETY: O1 - the program promises it.
    &unsafe { &*jit }.modules.objects
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITGetIRTransformLayer(jit: *const Lljit) -> *const IrLayer {
    // SAFETY: O1 - the program promises it.
    Arc::as_ptr(&unsafe { &*jit }.modules)
}

/// Since LLVM 18.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLLJITEnableDebugSupport(jit: *const Lljit) -> Opaque {
    // SAFETY: O1 - the program promises it.
    run(|| unsafe { &*jit }.session.debug())
}
