//! Lookups of addresses, and owned functions.

use std::ffi::c_void;

use jittison::Function;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, run, run_linked_code};
use crate::error::ErrorObject;
use crate::handle::{Kind, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::Str;

/// The signature is the caller's affair, so the handle has none.
pub(crate) type AnyFunction = unsafe extern "C-unwind" fn();
/// `jittison_function`.
pub(crate) type FunctionHandle = Handle<Function<AnyFunction>>;
pub(crate) static FUNCTIONS: Table<Function<AnyFunction>> = Table::new(Kind::Function);

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_address_lookup(
    session: Session,
    dylib: Dylib,
    name: Str,
    out: *mut u64,
) -> *mut ErrorObject {
    let find = || {
        let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        Ok(jit.address_of(&dylib, name)?.value())
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_function_lookup(
    session: Session,
    dylib: Dylib,
    name: Str,
    out: *mut FunctionHandle,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(out, "out")?;
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { name.read("name")? };
            Ok((SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?, name))
        },
        |(jit, dylib, name)| {
            // SAFETY: C3 - the header states the promises.
            let function = unsafe { jit.lookup_in::<AnyFunction>(&dylib, name)? };
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || FUNCTIONS.insert(function).map(Handle::new)) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_function_address(function: FunctionHandle, out: *mut *mut c_void) -> *mut ErrorObject {
    let find = || Ok(FUNCTIONS.get(function.bits)?.address().value() as usize as *mut c_void);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_function_clone(function: FunctionHandle, out: *mut FunctionHandle) -> *mut ErrorObject {
    let clone = || FUNCTIONS.insert((*FUNCTIONS.get(function.bits)?).clone()).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", clone) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_function_release(function: FunctionHandle) -> *mut ErrorObject {
    run(|| FUNCTIONS.take(function.bits).map(drop))
}
