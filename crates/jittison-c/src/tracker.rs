//! Trackers: creation, transfer, removal, absolute symbols.

use jittison::ResourceTracker;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, read_slice};

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
    let create = || TRACKERS.insert(DYLIBS.get(dylib.bits)?.create_tracker()?).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_default(dylib: Dylib, out: *mut Tracker) -> *mut ErrorObject {
    let find = || TRACKERS.insert(DYLIBS.get(dylib.bits)?.default_tracker()?).map(Handle::new);
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tracker_release(tracker: Tracker) -> *mut ErrorObject {
    run(|| TRACKERS.take(tracker.bits).map(drop))
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

/// The flags of a symbol, from `JITTISON_SYMBOL_…`.
pub(crate) fn read_flags(bits: u32) -> Result<SymbolFlags, Failure> {
    const FLAGS: [SymbolFlags; 3] = [SymbolFlags::EXPORTED, SymbolFlags::WEAK, SymbolFlags::CALLABLE];
    if bits >> FLAGS.len() != 0 {
        return Err(Failure::argument(format!("the symbol flags {bits:#x} have unknown bits")));
    }
    let is_set = |(index, _): &(usize, SymbolFlags)| bits >> index & 1 == 1;
    Ok(FLAGS.into_iter().enumerate().filter(is_set).fold(SymbolFlags::NONE, |all, (_, flag)| all | flag))
}
