//! Tickets of removals. One ticket stands for all trackers that one call removed.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jittison::Error;
use parking_lot::Mutex;

use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Context, Handle, SESSIONS, Session};
use crate::text::Text;

/// `jittison_removal`.
pub(crate) type Removal = Handle<Ticket>;
pub(crate) type Ticket = Vec<jittison::Removal>;
static REMOVALS: Table<Ticket> = Table::new(Kind::Removal);

/// Called once, with the error of the managers or null, when a removal is complete. The callee owns the error.
type OnComplete = unsafe extern "C-unwind" fn(*mut ErrorObject, *mut c_void);

/// Removes, and gives the ticket to a caller that wants it. Without a place for the ticket, `remove` is not called.
///
/// # Safety
/// C1 for `out`, which may be null.
pub(crate) unsafe fn give(out: *mut Removal, remove: impl FnOnce() -> Result<Ticket, Failure>) -> Result<(), Failure> {
    if out.is_null() {
        return remove().map(drop);
    }
    // SAFETY: C1 - the caller promises it.
    unsafe { put(out, "removal", || REMOVALS.insert_with(remove).map(Handle::new)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_pending(
    session: Session,
    out: *mut Removal,
    count: *mut usize,
) -> *mut ErrorObject {
    let pending = || {
        check_optional_out(count, "count")?;
        let jit = SESSIONS.get(session.bits)?;
        let place = REMOVALS.reserve()?;
        let pending = jit.session().pending_removals();
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(count, pending.len()) };
        Ok(Handle::new(place.fill(pending)))
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", pending) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_release(removal: Removal) -> *mut ErrorObject {
    run(|| REMOVALS.release(removal.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_is_complete(removal: Removal, out: *mut bool) -> *mut ErrorObject {
    let is_complete = || Ok(REMOVALS.get(removal.bits)?.iter().all(jittison::Removal::is_complete));
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", is_complete) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_wait(
    removal: Removal,
    timeout_ms: u64,
    is_complete: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        match timeout_ms {
            FOREVER => check_optional_out(is_complete, "is_complete")?,
            _ => check_out(is_complete, "is_complete")?,
        }
        let ticket = REMOVALS.get(removal.bits)?;
        // A time that no clock reaches is no deadline.
        let deadline = match timeout_ms {
            FOREVER => None,
            timeout_ms => Instant::now().checked_add(Duration::from_millis(timeout_ms)),
        };
        let all = wait(&ticket, deadline)?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(is_complete, all) };
        Ok(())
    })
}

/// `JITTISON_FOREVER`.
const FOREVER: u64 = u64::MAX;

/// Waits for all removals, then returns the first error.
fn wait(ticket: &Ticket, deadline: Option<Instant>) -> Result<bool, Error> {
    let outcomes: Vec<_> = ticket
        .iter()
        .map(|removal| match deadline {
            None => removal.wait().map(|()| true),
            Some(deadline) => removal.wait_until(deadline),
        })
        .collect();
    outcomes.into_iter().try_fold(true, |all, outcome| Ok(all & outcome?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_on_complete(
    removal: Removal,
    callback: Option<OnComplete>,
    context: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let callback = callback.ok_or_else(|| Failure::argument("the callback is null"))?;
        let ticket = REMOVALS.get(removal.bits)?;
        let context = Context(context);
        call_when_complete(&ticket, move |outcome: Result<(), Error>| {
            let error = outcome.map_or_else(|error| Failure::from(error).into_raw(), |()| std::ptr::null_mut());
            // SAFETY: C5 - the caller promises both until this call, which is the only one.
            unsafe { callback(error, context.get()) };
        });
        Ok(())
    })
}

/// Calls `body` when the last removal of the ticket is complete, with the first error.
fn call_when_complete(ticket: &Ticket, body: impl FnOnce(Result<(), Error>) + Send + 'static) {
    if ticket.is_empty() {
        return body(Ok(()));
    }
    let shared = Arc::new((AtomicUsize::new(ticket.len()), Mutex::new((Some(body), Ok(())))));
    for removal in ticket {
        let shared = shared.clone();
        removal.on_complete(move |outcome| {
            let (left, state) = &*shared;
            if let Err(error) = outcome {
                let first = &mut state.lock().1;
                if first.is_ok() {
                    *first = Err(error);
                }
            }
            // AcqRel pairs with itself: the last one sees the errors of all. The lock orders them as well.
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                let (body, outcome) = {
                    let mut state = state.lock();
                    (state.0.take(), std::mem::replace(&mut state.1, Ok(())))
                };
                if let Some(body) = body {
                    body(outcome);
                }
            }
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_bytes(removal: Removal, out: *mut u64) -> *mut ErrorObject {
    let bytes = || Ok(REMOVALS.get(removal.bits)?.iter().map(jittison::Removal::bytes).sum());
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_obstacles(removal: Removal, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let ticket = REMOVALS.get(removal.bits)?;
        let lines: Vec<_> = ticket.iter().flat_map(jittison::Removal::obstacles).collect();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&lines.join("\n"), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_age_ms(removal: Removal, out: *mut u64) -> *mut ErrorObject {
    let age = || {
        let ages = REMOVALS.get(removal.bits)?.iter().filter_map(jittison::Removal::age).max();
        Ok(ages.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", age) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_removal_blockers(
    removal: Removal,
    handles: *mut usize,
    dependants: *mut usize,
    guards: *mut usize,
) -> *mut ErrorObject {
    run(|| {
        for (out, name) in [(handles, "handles"), (dependants, "dependants"), (guards, "guards")] {
            check_optional_out(out, name)?;
        }
        let ticket = REMOVALS.get(removal.bits)?;
        let blockers = ticket.iter().map(jittison::Removal::blockers);
        let (held, dependent) =
            blockers.fold((0, 0), |(held, dependent), (more, others)| (held + more, dependent + others));
        let guarding = ticket.iter().map(|removal| removal.guards().len()).sum();
        // SAFETY: C1 - the caller promises them.
        unsafe {
            put_if_wanted(handles, held);
            put_if_wanted(dependants, dependent);
            put_if_wanted(guards, guarding);
        }
        Ok(())
    })
}
