//! [`Dylib`]: `LLVMOrcJITDylibRef` points to one.

use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, Weak};

use jittison::{Error, JitDylib};

use crate::entry::{run, run_or_report, text};
use crate::llvm::Opaque;
use crate::session::{PROCESS_SYMBOLS, Session};

/// A dylib and its session. The session owns it.
pub(crate) struct Dylib {
    pub(crate) dylib: JitDylib,
    session: Weak<Session>,
}

impl Dylib {
    pub(crate) fn new(dylib: JitDylib, session: Weak<Session>) -> Dylib {
        Dylib { dylib, session }
    }

    /// The dylib behind a pointer of the program.
    ///
    /// # Safety
    /// O1 for the pointer.
    pub(crate) unsafe fn of<'a>(dylib: *const Dylib) -> Result<&'a Dylib, Error> {
        // SAFETY: O1 - the caller promises it.
        unsafe { dylib.as_ref() }.ok_or_else(|| Error::other("the JITDylib is null"))
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, Error> {
        self.session.upgrade().ok_or_else(|| Error::other("the execution session has ended"))
    }
}

/// Creates a dylib that links against nothing.
fn create(session: &Session, name: &str) -> Result<*const Dylib, Error> {
    let dylib = session.jit()?.session().create_dylib(name)?;
    Ok(session.dylib(&dylib))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionCreateBareJITDylib(
    session: *const Session,
    name: *const c_char,
) -> *const Dylib {
    // SAFETY: O1 - the program promises both.
    let (session, name) = unsafe { (Session::of(session), text(name, "the name of a JITDylib")) };
    run_or_report(session.as_deref().ok(), ptr::null(), || create(session.as_deref().map_err(Clone::clone)?, name?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionCreateJITDylib(
    session: *const Session,
    result: *mut *const Dylib,
    name: *const c_char,
) -> Opaque {
    // SAFETY: O1 - the program promises all three.
    run(|| unsafe {
        *result = create(&*Session::of(session)?, text(name, "the name of a JITDylib")?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionGetJITDylibByName(
    session: *const Session,
    name: *const c_char,
) -> *const Dylib {
    // SAFETY: O1 - the program promises both.
    let (session, name) = unsafe { (Session::of(session), text(name, "the name of a JITDylib")) };
    run_or_report(session.as_deref().ok(), ptr::null(), || {
        let (session, name) = (session.as_deref().map_err(Clone::clone)?, name?);
        let jit = session.jit()?;
        if name == PROCESS_SYMBOLS {
            return Ok(session.dylib(jit.process_dylib()));
        }
        let is_wanted = |dylib: &JitDylib| dylib.name() == name && dylib != jit.process_dylib();
        Ok(jit
            .session()
            .dylibs()
            .iter()
            .find(|dylib| is_wanted(dylib))
            .map_or(ptr::null(), |dylib| session.dylib(dylib)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITDylibClear(dylib: *const Dylib) -> Opaque {
    // SAFETY: O1 - the program promises it.
    run(|| unsafe { Dylib::of(dylib) }?.dylib.clear().map(drop))
}
