//! Measures of code memory: statistics of a session, use by a tracker or a dylib, the map.

use std::ffi::c_void;
use std::ptr;

use jittison::MemoryUsage;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::graph::read_pool;
use crate::json::to_json;
use crate::session::{SESSIONS, Session};
use crate::text::Text;
use crate::tracker::{TRACKERS, Tracker};

/// `jittison_memory_statistics`.
#[repr(C)]
struct Statistics {
    size: usize,
    reserved_bytes: u64,
    opened_bytes: u64,
    resident_bytes: u64,
    returned_bytes: u64,
    live_bytes: u64,
    free_bytes: u64,
    frame_table_bytes: u64,
    metadata_bytes: u64,
    allocations: u64,
    free_ranges: u64,
    windows: u64,
}

/// `jittison_memory_usage`.
#[repr(C)]
struct Usage {
    size: usize,
    allocations: u64,
    code_bytes: u64,
    read_only_bytes: u64,
    data_bytes: u64,
    reserved_bytes: u64,
    metadata_bytes: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_statistics_read(session: Session, out: *mut c_void) -> *mut ErrorObject {
    run(|| {
        let of = SESSIONS.get(session.bits)?.memory_statistics();
        let statistics = |size| Statistics {
            size,
            reserved_bytes: of.reserved_bytes,
            opened_bytes: of.opened_bytes,
            resident_bytes: of.resident_bytes,
            returned_bytes: of.returned_bytes,
            live_bytes: of.live_bytes,
            free_bytes: of.free_bytes,
            frame_table_bytes: of.frame_table_bytes,
            metadata_bytes: of.metadata_bytes,
            allocations: of.allocations as u64,
            free_ranges: of.free_ranges as u64,
            windows: of.windows as u64,
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, statistics) }
    })
}

/// `jittison_pool_statistics`.
#[repr(C)]
struct PoolNumbers {
    size: usize,
    reserved_bytes: u64,
    opened_bytes: u64,
    resident_bytes: u64,
    requested_bytes: u64,
    free_bytes: u64,
    largest_free: u64,
    fragmentation: f64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_pool_statistics(
    session: Session,
    pool: u32,
    out: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let of = SESSIONS.get(session.bits)?.memory_statistics().pools[read_pool(pool)?.index()];
        let numbers = |size| PoolNumbers {
            size,
            reserved_bytes: of.reserved,
            opened_bytes: of.opened,
            resident_bytes: of.resident,
            requested_bytes: of.requested,
            free_bytes: of.free,
            largest_free: of.largest_free,
            fragmentation: of.fragmentation(),
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, numbers) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_usage_of_tracker(
    session: Session,
    tracker: Tracker,
    out: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let usage = SESSIONS.get(session.bits)?.usage(&*TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, |size| Usage::new(usage, size)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_usage_of_dylib(
    session: Session,
    dylib: Dylib,
    out: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let usage = SESSIONS.get(session.bits)?.usage_of_dylib(&*DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, |size| Usage::new(usage, size)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_map_text(session: Session, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let map = SESSIONS.get(session.bits)?.memory_map();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&map.map(|map| map.to_text()).unwrap_or_default(), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_map_svg(session: Session, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let map = SESSIONS.get(session.bits)?.memory_map();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&map.map(|map| map.to_svg()).unwrap_or_default(), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_map_json(session: Session, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let map = SESSIONS.get(session.bits)?.memory_map();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&map.map(|map| to_json(&map)).unwrap_or_default(), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_memory_release_free(session: Session, bytes: *mut u64) -> *mut ErrorObject {
    run(|| {
        check_optional_out(bytes, "bytes")?;
        let released = SESSIONS.get(session.bits)?.release_free();
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(bytes, released.bytes) };
        Ok(())
    })
}

impl Usage {
    fn new(usage: MemoryUsage, size: usize) -> Usage {
        Usage {
            size,
            allocations: usage.allocations,
            code_bytes: usage.code,
            read_only_bytes: usage.read_only,
            data_bytes: usage.data,
            reserved_bytes: usage.reserved,
            metadata_bytes: usage.metadata,
        }
    }
}

/// Writes as much of a struct as the caller's version has, and zeros for fields that this version does not know. `make` gets
/// the caller's size.
///
/// # Safety
/// C1: `out` has as many bytes as its first field says.
pub(crate) unsafe fn put_sized<T>(out: *mut c_void, make: impl FnOnce(usize) -> T) -> Result<(), Failure> {
    // SAFETY: C1 - the caller promises it.
    let size = unsafe { check_sized(out, "out")? };
    let value = make(size);
    let known = size.min(size_of::<T>());
    // SAFETY: C1 - both have `known` bytes, as computed above, and do not overlap.
    unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast::<u8>(), known) };
    // SAFETY: C1 - the bytes behind the known ones are within `size`.
    unsafe { out.cast::<u8>().add(known).write_bytes(0, size - known) };
    Ok(())
}

/// The size that the caller gives to a struct.
///
/// # Safety
/// As [`put_sized`].
pub(crate) unsafe fn check_sized(out: *mut c_void, name: &str) -> Result<usize, Failure> {
    let size = out.cast::<usize>();
    check_out(size, name)?;
    // SAFETY: C1 - not null and aligned, as checked above; `size` is the first field of every version.
    let size = unsafe { size.read() };
    if size < size_of::<usize>() || size > MAX_SIZE {
        let problem = format!("the field `size` of `{name}` is {size}; set it to the size of the struct");
        return Err(Failure::argument(problem));
    }
    Ok(size)
}

/// Sizes above this are mistakes.
const MAX_SIZE: usize = 4096;
