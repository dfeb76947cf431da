//! What is added: objects from memory and from files, and static libraries.

use jittison::{Jit, ResourceTracker};

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::session::{SESSIONS, Session};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker};

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_object_add(
    session: Session,
    tracker: Tracker,
    name: Str,
    bytes: *const u8,
    size: usize,
) -> *mut ErrorObject {
    let give = |jit: &Jit, tracker: &ResourceTracker, name: &str, bytes: &[u8]| jit.add_object(tracker, name, bytes);
    // SAFETY: C1 - the caller promises both.
    run(|| unsafe { give_object(session, tracker, (name, bytes, size), give) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_object_add_file(session: Session, tracker: Tracker, path: Str) -> *mut ErrorObject {
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises it.
        let path = unsafe { path.read("path")? };
        Ok(jit.add_object_file(&tracker, path)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_object_link(
    session: Session,
    tracker: Tracker,
    name: Str,
    bytes: *const u8,
    size: usize,
) -> *mut ErrorObject {
    let give = |jit: &Jit, tracker: &ResourceTracker, name: &str, bytes: &[u8]| jit.link_object(tracker, name, bytes);
    // SAFETY: C1 - the caller promises both.
    run(|| unsafe { give_object(session, tracker, (name, bytes, size), give) })
}

/// Reads the name and the bytes of an object, and gives the object to a session.
///
/// # Safety
/// C1 for the name and the bytes.
unsafe fn give_object(
    session: Session,
    tracker: Tracker,
    (name, bytes, size): (Str, *const u8, usize),
    give: impl FnOnce(&Jit, &ResourceTracker, &str, &[u8]) -> jittison::error::Result<()>,
) -> Result<(), Failure> {
    let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
    // SAFETY: C1 - the caller promises both.
    let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
    Ok(give(&jit, &tracker, name, bytes)?)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_archive_add(
    session: Session,
    tracker: Tracker,
    path: Str,
    members: *mut usize,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(members, "members")?;
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises it.
        let path = unsafe { path.read("path")? };
        let count = jit.add_archive_whole(&tracker, path)?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(members, count) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_archive_link(session: Session, dylib: Dylib, path: Str) -> *mut ErrorObject {
    run(|| {
        let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        let path = unsafe { path.read("path")? };
        Ok(jit.link_static_library(&dylib, path)?)
    })
}
