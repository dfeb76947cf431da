//! What belongs to one thread: guards, with lookups under them, and entries of calls.
//!
//! Only the thread that entered a guard uses it: `owned_slot.rs` compares threads first. A thread that ends inside a guard leaks
//! it: later removals then wait for ever, and name the guard.

use std::ffi::c_void;
use std::mem;

use jittison::base::CallEntry;
use jittison::{Guard, Jit};

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, run, run_linked_code};
use crate::error::ErrorObject;
use crate::function::AnyFunction;
use crate::handle::{Held, Kind, OwnedTable, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::Str;

/// `jittison_guard`.
pub(crate) type GuardHandle = Handle<Bound<Guard<'static>>>;
static GUARDS: OwnedTable<Bound<Guard<'static>>> = Table::owned(Kind::Guard);

/// `jittison_call`.
pub(crate) type CallHandle = Handle<Bound<CallEntry>>;
static CALLS: OwnedTable<Bound<CallEntry>> = Table::owned(Kind::Call);

/// A value that belongs to a thread, and its session. The value is dropped first.
pub(crate) struct Bound<T> {
    value: T,
    jit: Held<Jit>,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_enter(session: Session, out: *mut GuardHandle) -> *mut ErrorObject {
    let enter = || {
        let jit = SESSIONS.get(session.bits)?;
        // SAFETY: C4 - the lifetime is that of the session, which `Bound` owns until after the guard is dropped.
        let guard = unsafe { mem::transmute::<Guard<'_>, Guard<'static>>(jit.guard()) };
        Ok(Bound { value: guard, jit })
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", || GUARDS.insert_owned(enter).map(Handle::new)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_leave(guard: GuardHandle) -> *mut ErrorObject {
    // The drop runs what waited for the guard. The handle has ended then.
    run(|| GUARDS.release_owned(guard.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_refresh(guard: GuardHandle) -> *mut ErrorObject {
    run(|| {
        GUARDS.borrow_mut(guard.bits)?.value.refresh();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_guard_lookup(
    guard: GuardHandle,
    dylib: Dylib,
    name: Str,
    out: *mut *mut c_void,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(out, "out")?;
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { name.read("name")? };
            // What the lookup runs cannot leave the guard, because it is borrowed.
            Ok((GUARDS.borrow(guard.bits)?, DYLIBS.get(dylib.bits)?, name))
        },
        |(guard, dylib, name)| {
            // SAFETY: C3 - the header states the promises.
            let symbol = unsafe { guard.jit.symbol::<AnyFunction>(&guard.value, &dylib, name)? };
            let address = symbol.address().value() as usize as *mut c_void;
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(address)) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_call_enter(session: Session, out: *mut CallHandle) -> *mut ErrorObject {
    let enter = || {
        let jit = SESSIONS.get(session.bits)?;
        Ok(Bound { value: jit.session().enter_call(), jit })
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", || CALLS.insert_owned(enter).map(Handle::new)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_call_leave(call: CallHandle) -> *mut ErrorObject {
    run(|| CALLS.release_owned(call.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_call_pass_quiescent_state(session: Session) -> *mut ErrorObject {
    run(|| {
        let jit = SESSIONS.get(session.bits)?;
        // SAFETY: C3 - the header states the promises.
        unsafe { jit.pass_quiescent_state() };
        Ok(())
    })
}
