//! Stubs: functions that jump to a target, which can be changed while threads call them.

use jittison::Stub;
use jittison::base::ExecutorAddr;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker};

/// `jittison_stub`.
pub(crate) type StubHandle = Handle<Stub>;
static STUBS: Table<Stub> = Table::new(Kind::Stub);

/// `jittison_stub_definition`.
#[repr(C)]
struct Definition {
    name: Str,
    target: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_stub_create(
    session: Session,
    tracker: Tracker,
    stubs: *const Definition,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises it.
        let stubs = unsafe { read_slice(stubs, count, "stubs")? };
        let read = |stub: &Definition| {
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { stub.name.read("the name of a stub")? };
            Ok((name, ExecutorAddr::new(stub.target)))
        };
        let stubs = stubs.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        Ok(jit.create_stubs(&tracker, &stubs)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_stub_find(
    session: Session,
    dylib: Dylib,
    name: Str,
    out: *mut StubHandle,
) -> *mut ErrorObject {
    let find = || {
        let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        STUBS.insert(jit.stub(&dylib, name)?).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_stub_redirect(stub: StubHandle, target: u64) -> *mut ErrorObject {
    run(|| {
        let stub = STUBS.get(stub.bits)?;
        // SAFETY: C3 - the header states the promises.
        unsafe { stub.redirect(ExecutorAddr::new(target)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_stub_release(stub: StubHandle) -> *mut ErrorObject {
    run(|| STUBS.release(stub.bits))
}
