//! What custom managers, generators and units have in common: a context that is given back, errors of callbacks, handles that
//! live as long as a callback.

use std::ffi::c_void;

use jittison::{Error, JitDylib};

use crate::dylib::{DYLIBS, Dylib};
use crate::error::{ErrorObject, Failure};
use crate::session::{Context, Handle};

/// Called once, when the library uses neither the callbacks nor the context any more.
pub(crate) type Dropped = unsafe extern "C-unwind" fn(*mut c_void);

/// The context of callbacks. Tells its owner when nothing uses it any more.
pub(crate) struct OwnedContext {
    context: Context,
    dropped: Option<Dropped>,
}

impl OwnedContext {
    pub(crate) fn new(context: *mut c_void, dropped: Option<Dropped>) -> OwnedContext {
        OwnedContext { context: Context(context), dropped }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.context.get()
    }
}

impl Drop for OwnedContext {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped {
            // SAFETY: C5 - the caller promises both until this call, which is the last one.
            unsafe { dropped(self.context.get()) };
        }
    }
}

/// The outcome of a callback that returns an error or null.
///
/// # Safety
/// C2: the error is one that this library made, and the callback gave it away.
pub(crate) unsafe fn outcome(error: *mut ErrorObject) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: C2 - the caller promises it.
    Err(unsafe { Box::from_raw(error) }.into_error())
}

/// A handle of a dylib that is valid during a callback.
pub(crate) struct BorrowedDylib(Dylib);

impl BorrowedDylib {
    pub(crate) fn new(dylib: &JitDylib) -> Result<BorrowedDylib, Error> {
        let insert = |dylib: JitDylib| DYLIBS.insert(dylib.into()).map(|bits| BorrowedDylib(Handle::new(bits)));
        insert(dylib.clone()).map_err(|failure: Failure| Error::other(failure))
    }

    pub(crate) fn handle(&self) -> Dylib {
        self.0
    }
}

impl Drop for BorrowedDylib {
    fn drop(&mut self) {
        // The callback may have released it against the rules.
        let _ = DYLIBS.take(self.0.bits);
    }
}
