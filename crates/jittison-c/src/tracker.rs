//! Trackers: creation, transfer, removal, absolute symbols.

use jittison::ResourceTracker;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, Text, read_slice};

/// `jittison_tracker`.
pub(crate) type Tracker = Handle<ResourceTracker>;
pub(crate) static TRACKERS: Table<ResourceTracker> = Table::new(Kind::Tracker);

/// `jittison_absolute_symbol`.
#[repr(C)]
struct AbsoluteSymbol {
    name: Str,
    address: u64,
    flags: u32,
    reserved: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_create(dylib: Dylib, out: *mut Tracker) -> *mut ErrorObject {
    let create = || TRACKERS.insert_with(|| Ok(DYLIBS.get(dylib.bits)?.create_tracker()?)).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_default(dylib: Dylib, out: *mut Tracker) -> *mut ErrorObject {
    let find = || TRACKERS.insert_with(|| Ok(DYLIBS.get(dylib.bits)?.default_tracker()?)).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_release(tracker: Tracker) -> *mut ErrorObject {
    run(|| TRACKERS.release(tracker.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_is_defunct(tracker: Tracker, out: *mut bool) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", || Ok(TRACKERS.get(tracker.bits)?.is_defunct())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_transfer(source: Tracker, destination: Tracker) -> *mut ErrorObject {
    run(|| Ok(TRACKERS.get(source.bits)?.transfer_to(&*TRACKERS.get(destination.bits)?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_remove(tracker: Tracker, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(vec![TRACKERS.get(tracker.bits)?.remove()?])) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_try_remove(tracker: Tracker, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(vec![TRACKERS.get(tracker.bits)?.try_remove()?])) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_remove_cascade(tracker: Tracker, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(vec![TRACKERS.get(tracker.bits)?.remove_cascade()?])) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_remove_all(
    trackers: *const Tracker,
    count: usize,
    removal: *mut Removal,
) -> *mut ErrorObject {
    let remove = || {
        // SAFETY: C1 - the caller promises it.
        let handles = unsafe { read_slice(trackers, count, "trackers")? };
        let trackers = handles.iter().map(|handle| TRACKERS.get(handle.bits)).collect::<Result<Vec<_>, _>>()?;
        Ok(ResourceTracker::remove_all(trackers.iter().map(|tracker| &**tracker))?)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, remove) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_remove_now(
    session: Session,
    tracker: Tracker,
    removal: *mut Removal,
) -> *mut ErrorObject {
    let remove = || {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C3 - the header states the promises.
        Ok(vec![unsafe { jit.remove_now(&tracker)? }])
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, remove) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_define_absolute(
    tracker: Tracker,
    symbols: *const AbsoluteSymbol,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        let tracker = TRACKERS.get(tracker.bits)?;
        // SAFETY: C1 - the caller promises it.
        let symbols = unsafe { read_slice(symbols, count, "symbols")? };
        let read = |symbol: &AbsoluteSymbol| {
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { symbol.name.read("the name of a symbol")? };
            let flags = read_flags(symbol.flags)? | SymbolFlags::ABSOLUTE;
            Ok((Name::new(name), ExecutorAddr::new(symbol.address), flags))
        };
        let symbols = symbols.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        Ok(tracker.define_absolute(symbols)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_name(tracker: Tracker, out: *mut *mut Text) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { Text::give(&TRACKERS.get(tracker.bits)?.key().to_string(), out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_dylib(tracker: Tracker, out: *mut Dylib) -> *mut ErrorObject {
    let find = || DYLIBS.insert(TRACKERS.get(tracker.bits)?.dylib().into()).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_dependencies(
    tracker: Tracker,
    out: *mut Tracker,
    capacity: usize,
    count: *mut usize,
) -> *mut ErrorObject {
    let find = || Ok(TRACKERS.get(tracker.bits)?.dependencies());
    // SAFETY: C1 - the caller promises both.
    run(|| unsafe { give_list(&TRACKERS, out, capacity, count, find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_dependents(
    tracker: Tracker,
    out: *mut Tracker,
    capacity: usize,
    count: *mut usize,
) -> *mut ErrorObject {
    let find = || Ok(TRACKERS.get(tracker.bits)?.dependents());
    // SAFETY: C1 - the caller promises both.
    run(|| unsafe { give_list(&TRACKERS, out, capacity, count, find) })
}

/// Writes handles of the first `capacity` values, and the number of all.
///
/// # Safety
/// C1 for `out`, which has `capacity` places, and for `count`.
unsafe fn give_list<T>(
    table: &'static Table<T>,
    out: *mut Handle<T>,
    capacity: usize,
    count: *mut usize,
    find: impl FnOnce() -> Result<Vec<T>, Failure>,
) -> Result<(), Failure> {
    check_out(count, "count")?;
    if capacity > 0 {
        check_out(out, "out")?;
    }
    let found = find()?;
    let number = found.len();
    let places = table.reserve_many(number.min(capacity))?;
    for (position, (place, value)) in places.into_iter().zip(found).enumerate() {
        let handle = Handle::new(place.fill(value));
        // SAFETY: C1 - the caller promises `capacity` places.
        unsafe { out.add(position).write(handle) };
    }
    // SAFETY: C1 - the caller promises it.
    unsafe { put(count, "count", || Ok(number)) }
}

/// The flags in the order of `JITTISON_SYMBOL_…`.
const FLAGS: [SymbolFlags; 7] = [
    SymbolFlags::EXPORTED,
    SymbolFlags::WEAK,
    SymbolFlags::CALLABLE,
    SymbolFlags::SIDE_EFFECTS_ONLY,
    SymbolFlags::ABSOLUTE,
    SymbolFlags::COMMON,
    SymbolFlags::THREAD_LOCAL,
];
/// How many of them a caller may set.
const SETTABLE: usize = 4;

/// The flags of a symbol, from `JITTISON_SYMBOL_…`.
pub(crate) fn read_flags(bits: u32) -> Result<SymbolFlags, Failure> {
    if bits >> SETTABLE != 0 {
        return Err(Failure::argument(format!("the symbol flags {bits:#x} have bits that a caller cannot set")));
    }
    let is_set = |(index, _): &(usize, SymbolFlags)| bits >> index & 1 == 1;
    Ok(FLAGS.into_iter().enumerate().filter(is_set).fold(SymbolFlags::NONE, |all, (_, flag)| all | flag))
}

/// The flags of a symbol, as `JITTISON_SYMBOL_…`.
pub(crate) fn show_flags(flags: SymbolFlags) -> u32 {
    FLAGS.into_iter().enumerate().map(|(index, flag)| u32::from(flags.contains(flag)) << index).sum()
}
