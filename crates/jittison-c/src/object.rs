//! What is added: objects from memory and from files, and static libraries.

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{put_if_wanted, run};
use crate::error::ErrorObject;
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
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises both.
        let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
        Ok(jit.add_object(&tracker, name, bytes)?)
    })
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
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises both.
        let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
        Ok(jit.link_object(&tracker, name, bytes)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_archive_add(
    session: Session,
    tracker: Tracker,
    path: Str,
    members: *mut usize,
) -> *mut ErrorObject {
    run(|| {
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
