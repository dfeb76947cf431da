//! Lookups of addresses, and owned functions.

use std::ffi::c_void;

use jittison::Function;
use jittison::base::ExecutorAddr;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, Text};

/// The caller knows the signature. The handle has none.
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
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        dylib.with_session(session, |jit| Ok(jit.address_of(&dylib, name)?.value()))
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_address_locate(
    session: Session,
    address: u64,
    function: *mut *mut Text,
    object: *mut *mut Text,
    dylib: *mut *mut Text,
    offset: *mut u64,
) -> *mut ErrorObject {
    run(|| {
        // First all: after an error the caller owns no text.
        for (out, name) in [(function, "function"), (object, "object"), (dylib, "dylib")] {
            check_optional_out(out, name)?;
        }
        check_optional_out(offset, "offset")?;
        let located = SESSIONS.get(session.bits)?.locate(&[ExecutorAddr::new(address)]);
        let located = located.into_iter().flatten().next();
        let found = located.ok_or_else(|| Failure::argument(format!("no linked code is at {address:#x}")))?;
        let (name, from_start) = match &found.function {
            Some((name, offset)) => (name.as_str(), *offset),
            None => ("", found.offset),
        };
        for (text, out) in [(name, function), (&found.object, object), (&found.dylib, dylib)] {
            if !out.is_null() {
                // SAFETY: C1 - the caller promises it.
                unsafe { Text::give(text, out)? };
            }
        }
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(offset, from_start) };
        Ok(())
    })
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
            Ok((DYLIBS.get(dylib.bits)?, name, FUNCTIONS.reserve()?))
        },
        |(dylib, name, place)| {
            dylib.with_session(session, |jit| {
                // SAFETY: C3 - the header states the promises.
                match unsafe { jit.lookup_in::<AnyFunction>(&dylib, name) } {
                    // SAFETY: C1 - the caller promises it.
                    Ok(function) => unsafe { put(out, "out", || Ok(Handle::new(place.fill(function)))) },
                    Err(error) => Err(Failure::from(error)),
                }
            })
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
    run(|| FUNCTIONS.release(function.bits))
}
