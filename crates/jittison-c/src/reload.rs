//! Reloaders: programs whose objects are replaced while they run.

use std::ffi::c_void;
use std::time::Duration;

use jittison::Reloader;

use crate::entry::{check_optional_out, put, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::json::{diff_to_json, reloads_to_json};
use crate::memory::{check_sized, put_sized};
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, Text, read_slice};
use crate::tracker::{TRACKERS, Tracker};

/// `jittison_reloader`.
pub(crate) type ReloaderHandle = Handle<Reloader>;
static RELOADERS: Table<Reloader> = Table::new(Kind::Reloader);

/// `jittison_reload`.
#[repr(C)]
struct Reload {
    size: usize,
    version: u64,
    code_bytes_before: u64,
    code_bytes: u64,
    retired_in_memory: u64,
    read_ns: u64,
    link_ns: u64,
    commit_ns: u64,
    is_changed: bool,
    stays: bool,
}

impl Reload {
    fn new(size: usize, of: &jittison::Reload) -> Reload {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Reload {
            size,
            version: of.version,
            code_bytes_before: of.code_bytes_before,
            code_bytes: of.code_bytes,
            retired_in_memory: of.retired_in_memory as u64,
            read_ns: nanoseconds(of.read_time),
            link_ns: nanoseconds(of.link_time),
            commit_ns: nanoseconds(of.commit_time),
            is_changed: !of.diff.is_empty(),
            stays: of.stays,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reloader_create(
    session: Session,
    tracker: Tracker,
    out: *mut ReloaderHandle,
) -> *mut ErrorObject {
    let create = || {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        RELOADERS.insert_with(|| Ok(Reloader::new(&jit, &tracker)?)).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reloader_release(reloader: ReloaderHandle) -> *mut ErrorObject {
    run(|| RELOADERS.release(reloader.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reloader_add_object(
    reloader: ReloaderHandle,
    name: Str,
    bytes: *const u8,
    size: usize,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises both.
        let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
        Ok(RELOADERS.get(reloader.bits)?.add_object(name, bytes)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reloader_link(reloader: ReloaderHandle) -> *mut ErrorObject {
    run(|| Ok(RELOADERS.get(reloader.bits)?.link()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reloader_objects(reloader: ReloaderHandle, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let objects = RELOADERS.get(reloader.bits)?.objects();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&objects.join("\n"), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_reloader_reload(
    reloader: ReloaderHandle,
    name: Str,
    bytes: *const u8,
    size: usize,
    facts: *mut c_void,
    changes: *mut *mut Text,
    retired: *mut Removal,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            if !facts.is_null() {
                // SAFETY: C1 - the caller promises it.
                unsafe { check_sized(facts, "facts")? };
            }
            check_optional_out(changes, "changes")?;
            // SAFETY: C1 - the caller promises both.
            let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
            Ok((RELOADERS.get(reloader.bits)?, name, bytes))
        },
        |(reloader, name, bytes)| {
            let reload = || {
                // SAFETY: C3 - the header states the promises.
                let done = unsafe { reloader.reload(name, bytes)? };
                // SAFETY: C1 - the caller promises all three.
                unsafe { tell(&done, facts, changes)? };
                Ok(done.retired)
            };
            // SAFETY: C1 - the caller promises it.
            unsafe { give(retired, reload) }
        },
    )
}

/// `jittison_reload_object`.
#[repr(C)]
struct Object {
    name: Str,
    bytes: *const u8,
    size: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_reloader_reload_all(
    reloader: ReloaderHandle,
    objects: *const Object,
    count: usize,
    changes: *mut *mut Text,
    retired: *mut Removal,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_optional_out(changes, "changes")?;
            // SAFETY: C1 - the caller promises it.
            let objects = unsafe { read_slice(objects, count, "objects")? };
            let read = |object: &Object| {
                // SAFETY: C1 - the caller promises both.
                Ok(unsafe { (object.name.read("name")?, read_slice(object.bytes, object.size, "bytes")?) })
            };
            let objects = objects.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
            Ok((RELOADERS.get(reloader.bits)?, objects))
        },
        |(reloader, objects)| {
            let reload = || {
                // SAFETY: C3 - the header states the promises.
                let done = unsafe { reloader.reload_all(objects)? };
                if !changes.is_null() {
                    // SAFETY: C1 - the caller promises it.
                    unsafe { Text::give(&reloads_to_json(&done), changes)? };
                }
                Ok(done.into_iter().flat_map(|reload| reload.retired).collect())
            };
            // SAFETY: C1 - the caller promises it.
            unsafe { give(retired, reload) }
        },
    )
}

/// Writes what a reload did.
///
/// # Safety
/// C1 for both out-parameters, which may be null.
unsafe fn tell(done: &jittison::Reload, facts: *mut c_void, changes: *mut *mut Text) -> Result<(), Failure> {
    if !facts.is_null() {
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(facts, |size| Reload::new(size, done))? };
    }
    if !changes.is_null() {
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&diff_to_json(&done.diff), changes)? };
    }
    Ok(())
}
