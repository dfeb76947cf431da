//! What needs no session and is handed to LLVM: thread-safe contexts and modules, and dumps of objects.
//!
//! So a program may make a thread-safe module in C++ and add it here, and a transform may open it there.

use std::ffi::c_char;
use std::ptr;

use jittison::Error;

use crate::entry::run_or_report;
use crate::llvm::{Opaque, llvm};
use crate::llvm_error::{from_llvm, to_llvm};

/// A function that a module is given to, with a context.
type Operation = unsafe extern "C-unwind" fn(Opaque, Opaque) -> Opaque;

/// A thread-safe module, which is disposed of with it.
pub(crate) struct ThreadSafeModule(Opaque);

// SAFETY: O4 - LLVM's type may be used by every thread; its context has a lock.
unsafe impl Send for ThreadSafeModule {}

impl ThreadSafeModule {
    /// # Safety
    /// O2: the module is given away.
    pub(crate) unsafe fn from_raw(module: Opaque) -> Result<ThreadSafeModule, Error> {
        if module.is_null() {
            Err(Error::other("the thread-safe module is null"))
        } else {
            Ok(ThreadSafeModule(module))
        }
    }

    /// Gives the module away.
    pub(crate) fn into_raw(self) -> Opaque {
        let module = self.0;
        std::mem::forget(self);
        module
    }

    /// Calls `body` with the module, under the lock of its context.
    pub(crate) fn with<R>(&self, body: impl FnOnce(Opaque) -> Result<R, Error>) -> Result<R, Error> {
        struct Call<F, R>(Option<F>, Option<Result<R, Error>>);

        unsafe extern "C-unwind" fn call<F: FnOnce(Opaque) -> Result<R, Error>, R>(
            context: Opaque,
            module: Opaque,
        ) -> Opaque {
            // SAFETY: the context is the value below, which this thread waits with.
            let call = unsafe { &mut *context.cast::<Call<F, R>>() };
            let body = call.0.take();
            call.1 = body.map(|body| {
                // A panic must not pass through frames of LLVM.
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(module)));
                caught.unwrap_or_else(|_| Err(Error::other("a panic in jittison")))
            });
            ptr::null_mut()
        }

        fn operation<F: FnOnce(Opaque) -> Result<R, Error>, R>(_: &Call<F, R>) -> Operation {
            call::<F, R>
        }

        let with_module = llvm()?.LLVMOrcThreadSafeModuleWithModuleDo()?;
        let mut state = Call(Some(body), None);
        let operation = operation(&state);
        // SAFETY: O4 - the function calls `call` once, before it returns.
        unsafe { from_llvm(with_module(self.0, operation, (&raw mut state).cast()))? };
        state.1.unwrap_or_else(|| Err(Error::other("LLVM did not open the module")))
    }
}

impl Drop for ThreadSafeModule {
    fn drop(&mut self) {
        if let Ok(dispose) = llvm().and_then(|llvm| llvm.LLVMOrcDisposeThreadSafeModule()) {
            // SAFETY: O2, O4 - it is owned, and disposed of once.
            unsafe { dispose(self.0) };
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateNewThreadSafeContext() -> Opaque {
    // SAFETY: O4.
    run_or_report(None, ptr::null_mut(), || Ok(unsafe { llvm()?.LLVMOrcCreateNewThreadSafeContext()?() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcThreadSafeContextGetContext(context: Opaque) -> Opaque {
    // SAFETY: O1, O4.
    run_or_report(None, ptr::null_mut(), || Ok(unsafe { llvm()?.LLVMOrcThreadSafeContextGetContext()?(context) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeThreadSafeContext(context: Opaque) {
    run_or_report(None, (), || {
        // SAFETY: O2, O4.
        unsafe { llvm()?.LLVMOrcDisposeThreadSafeContext()?(context) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateNewThreadSafeModule(module: Opaque, context: Opaque) -> Opaque {
    // SAFETY: O1, O2, O4.
    run_or_report(None, ptr::null_mut(), || Ok(unsafe { llvm()?.LLVMOrcCreateNewThreadSafeModule()?(module, context) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeThreadSafeModule(module: Opaque) {
    run_or_report(None, (), || {
        // SAFETY: O2, O4.
        unsafe { llvm()?.LLVMOrcDisposeThreadSafeModule()?(module) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcThreadSafeModuleWithModuleDo(
    module: Opaque,
    operation: Operation,
    context: Opaque,
) -> Opaque {
    match llvm().and_then(|llvm| llvm.LLVMOrcThreadSafeModuleWithModuleDo()) {
        // SAFETY: O1, O3, O4.
        Ok(with_module) => unsafe { with_module(module, operation, context) },
        Err(error) => to_llvm(&error),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateDumpObjects(directory: *const c_char, name: *const c_char) -> Opaque {
    // SAFETY: O1, O4.
    run_or_report(None, ptr::null_mut(), || Ok(unsafe { llvm()?.LLVMOrcCreateDumpObjects()?(directory, name) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeDumpObjects(dump: Opaque) {
    run_or_report(None, (), || {
        // SAFETY: O2, O4.
        unsafe { llvm()?.LLVMOrcDisposeDumpObjects()?(dump) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDumpObjects_CallOperator(dump: Opaque, object: *mut Opaque) -> Opaque {
    match llvm().and_then(|llvm| llvm.LLVMOrcDumpObjects_CallOperator()) {
        // SAFETY: O1, O4.
        Ok(call) => unsafe { call(dump, object) },
        Err(error) => to_llvm(&error),
    }
}
