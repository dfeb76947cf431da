//! Layers: [`ObjectLayer`], [`ObjectTransform`] and [`IrTransform`]. All object layers of a session link with its one linker.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Weak};

use jittison::{Error, Jit, ResourceTracker};
use parking_lot::Mutex;

use crate::callback_memory::{CallbackMemory, Callbacks};
use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, run_or_report};
use crate::llvm::{Opaque, llvm};
use crate::llvm_error::from_llvm;
use crate::object_file::{self, ObjectFile};
use crate::responsibility::Responsibility;
use crate::session::Session;
use crate::thread_safe::ThreadSafeModule;
use crate::tracker::Tracker;

/// `LLVMOrcObjectLayerRef` points to one.
pub(crate) struct ObjectLayer {
    session: Weak<Session>,
}

/// `LLVMOrcObjectTransformLayerTransformFunction`.
type TransformObject = unsafe extern "C-unwind" fn(*mut c_void, *mut Opaque) -> Opaque;
/// `LLVMOrcIRTransformLayerTransformFunction`.
type TransformModule = unsafe extern "C-unwind" fn(*mut c_void, *mut Opaque, *mut Responsibility) -> Opaque;

/// `LLVMOrcObjectTransformLayerRef` points to one.
#[derive(Default)]
pub(crate) struct ObjectTransform(Mutex<Option<(TransformObject, usize)>>);

/// The transform of an IR layer.
#[derive(Default)]
pub(crate) struct IrTransform(Mutex<Option<(TransformModule, usize)>>);

impl ObjectLayer {
    pub(crate) fn new(session: &Arc<Session>) -> ObjectLayer {
        ObjectLayer { session: Arc::downgrade(session) }
    }

    fn session(&self) -> Result<Arc<Session>, Error> {
        self.session.upgrade().ok_or_else(|| Error::other("the execution session has ended"))
    }
}

impl ObjectTransform {
    pub(crate) fn set(&self, transform: Option<TransformObject>, context: *mut c_void) {
        *self.0.lock() = transform.map(|transform| (transform, context as usize));
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Calls the transform of the program, which owns the object meanwhile.
    pub(crate) fn apply(&self, object: ObjectFile) -> Result<ObjectFile, Error> {
        let Some((transform, context)) = *self.0.lock() else { return Ok(object) };
        let mut buffer = object.into_raw();
        // SAFETY: O3, O2 - the program promises the callback. A failed one has taken the buffer, and what it left is owned.
        unsafe {
            let outcome = from_llvm(transform(context as *mut c_void, &mut buffer));
            let left = ObjectFile::from_raw(buffer);
            outcome?;
            left
        }
    }
}

impl IrTransform {
    pub(crate) fn set(&self, transform: Option<TransformModule>, context: *mut c_void) {
        *self.0.lock() = transform.map(|transform| (transform, context as usize));
    }

    /// Calls the transform of the program, which owns the module meanwhile.
    pub(crate) fn apply(
        &self,
        module: ThreadSafeModule,
        responsibility: &mut Responsibility,
    ) -> Result<ThreadSafeModule, Error> {
        let Some((transform, context)) = *self.0.lock() else { return Ok(module) };
        let mut module = module.into_raw();
        // SAFETY: O3, O2 - as for an object. The callback borrows the responsibility.
        unsafe {
            let outcome = from_llvm(transform(context as *mut c_void, &mut module, responsibility));
            let left = ThreadSafeModule::from_raw(module);
            outcome?;
            left
        }
    }
}

/// Adds an object under a tracker.
pub(crate) fn add_object(jit: &Jit, tracker: &ResourceTracker, object: &ObjectFile) -> Result<(), Error> {
    jit.add_object(tracker, "object", object.bytes()?)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcObjectLayerAddObjectFile(
    layer: *const ObjectLayer,
    dylib: *const Dylib,
    object: Opaque,
) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the object away, and promises the others.
        let (object, layer, dylib) = unsafe { (ObjectFile::from_raw(object)?, &*layer, Dylib::of(dylib)?) };
        add_object(layer.session()?.jit()?, &dylib.dylib.default_tracker()?, &object)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcObjectLayerAddObjectFileWithRT(
    layer: *const ObjectLayer,
    tracker: *const Tracker,
    object: Opaque,
) -> Opaque {
    run(|| {
        // SAFETY: O2, O1 - the program gives the object away, and promises the others.
        let (object, layer, tracker) = unsafe { (ObjectFile::from_raw(object)?, &*layer, Tracker::of(tracker)?) };
        add_object(layer.session()?.jit()?, &tracker.tracker, &object)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcObjectLayerEmit(
    layer: *const ObjectLayer,
    responsibility: *mut Responsibility,
    object: Opaque,
) {
    // SAFETY: O1 - the program promises it.
    let session = unsafe { &*layer }.session().ok();
    run_or_report(session.as_deref(), (), || {
        // SAFETY: O2 - the program gives both away.
        let (responsibility, object) = unsafe { (*Box::from_raw(responsibility), ObjectFile::from_raw(object)?) };
        let session = session.as_deref().ok_or_else(|| Error::other("the execution session has ended"))?;
        object_file::emit(session.jit()?, responsibility.into_unresolved()?, "object", object.bytes()?);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeObjectLayer(layer: *mut ObjectLayer) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(layer) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcObjectTransformLayerSetTransform(
    layer: *const ObjectTransform,
    transform: Option<TransformObject>,
    context: *mut c_void,
) {
    // SAFETY: O1 - the program promises it.
    unsafe { &*layer }.set(transform, context);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(
    session: *const Session,
) -> *mut ObjectLayer {
    // SAFETY: O1 - the program promises it.
    run_or_report(None, ptr::null_mut(), || Ok(give(ObjectLayer::new(&unsafe { Session::of(session) }?))))
}

/// Links into memory that the callbacks allocate.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
    session: *const Session,
    context: *mut c_void,
    create_context: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    notify_terminating: unsafe extern "C-unwind" fn(*mut c_void),
    allocate_code: unsafe extern "C-unwind" fn(*mut c_void, usize, u32, u32, *const c_char) -> *mut u8,
    allocate_data: unsafe extern "C-unwind" fn(*mut c_void, usize, u32, u32, *const c_char, c_int) -> *mut u8,
    finalize: unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_char) -> c_int,
    destroy: unsafe extern "C-unwind" fn(*mut c_void),
) -> *mut ObjectLayer {
    // SAFETY: O1 - the program promises it.
    let session = unsafe { Session::of(session) };
    run_or_report(session.as_deref().ok(), ptr::null_mut(), || {
        let session = session.as_ref().map_err(Clone::clone)?;
        let context = context as usize;
        let callbacks =
            Callbacks { context, create_context, notify_terminating, allocate_code, allocate_data, finalize, destroy };
        session.set_memory(Arc::new(CallbackMemory::new(callbacks)))?;
        Ok(give(ObjectLayer::new(session)))
    })
}

/// The listeners of LLVM for gdb and perf become jittison's own support for them. A listener that the program made gets no
/// events: it is an object of C++.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcRTDyldObjectLinkingLayerRegisterJITEventListener(
    layer: *const ObjectLayer,
    listener: Opaque,
) {
    // SAFETY: O1 - the program promises it.
    let session = unsafe { &*layer }.session();
    run_or_report(session.as_deref().ok(), (), || {
        let (session, llvm) = (session.as_deref().map_err(Clone::clone)?, llvm()?);
        // SAFETY: O4 - each returns the one listener of its kind, or null.
        let (gdb, perf) = unsafe {
            (
                llvm.LLVMCreateGDBRegistrationListener()?(),
                llvm.LLVMCreatePerfJITEventListener().map_or(ptr::null_mut(), |perf| perf()),
            )
        };
        match listener {
            listener if listener.is_null() => Err(Error::other("the JIT event listener is null")),
            listener if listener == gdb => session.debug(),
            listener if listener == perf => session.profile(),
            _ => Err(Error::other("only LLVM's JIT event listeners for gdb and perf get events of linked code")),
        }
    });
}
