//! What belongs to one thread: guards, with lookups under them, and entries of calls.
//!
//! The tables are shared, so each value knows the thread that made it, and every use compares threads first. A thread that ends
//! inside a guard leaks it: later removals then wait for ever, and name the guard.

use std::cell::{Cell, RefCell, RefMut};
use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::base::CallEntry;
use jittison::{Guard, Jit};

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::function::AnyFunction;
use crate::handle::{Held, Kind, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::Str;

/// `jittison_guard`.
pub(crate) type GuardHandle = Handle<Bound<Guard<'static>>>;
static GUARDS: Table<Bound<Guard<'static>>> = Table::new(Kind::Guard);

/// `jittison_call`.
pub(crate) type CallHandle = Handle<Bound<CallEntry>>;
static CALLS: Table<Bound<CallEntry>> = Table::new(Kind::Call);

/// Names a thread of the process, also while its thread-local variables are destroyed: `std::thread::current` panics then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(u64);

impl ThreadNumber {
    /// That of the calling thread.
    #[inline]
    pub(crate) fn current() -> ThreadNumber {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            /// Zero before the first use. It has no destructor, so it is there until the thread has ended.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        NUMBER.with(|number| {
            if number.get() == 0 {
                // Relaxed: the numbers only have to differ.
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            ThreadNumber(number.get())
        })
    }
}

/// A value that belongs to a thread, and its session.
pub(crate) struct Bound<T> {
    thread: ThreadNumber,
    /// `None` once it was left. Borrowed during a lookup, which may run code that tries to leave the guard.
    value: RefCell<Option<T>>,
    jit: Held<Jit>,
}

// SAFETY: C4 - other threads use `thread` and `jit` only, which every thread may use. They drop a `Bound` only after its own
// thread took the value out.
unsafe impl<T> Send for Bound<T> {}
// SAFETY: C4 - as above.
unsafe impl<T> Sync for Bound<T> {}

impl<T> Bound<T> {
    fn to_this_thread(value: T, jit: Held<Jit>) -> Bound<T> {
        Bound { thread: ThreadNumber::current(), value: RefCell::new(Some(value)), jit }
    }

    fn check_thread(&self) -> Result<(), Failure> {
        if self.thread == ThreadNumber::current() {
            return Ok(());
        }
        Err(Failure::Thread("it was entered by another thread; nothing was done; use it on that thread".into()))
    }

    /// The value, for a change.
    fn edit(&self) -> Result<RefMut<'_, Option<T>>, Failure> {
        self.check_thread()?;
        let is_used = |_| Failure::argument("a lookup of this thread uses the guard; nothing was done");
        self.value.try_borrow_mut().map_err(is_used)
    }

    /// Takes the value of a handle out of its table and drops it.
    fn leave(table: &'static Table<Bound<T>>, bits: u64) -> Result<(), Failure> {
        let held = table.get(bits)?;
        held.edit().map(drop)?;
        let Err(held) = held.drop_alone() else { return Ok(()) };
        if !held.retire() {
            return Err(table.refusal(bits));
        }
        // Another thread looks at the handle, and may be the last to use it: the value must not wait for it.
        let value = held.edit()?.take();
        // Runs what waited for it, so no borrow is held.
        drop(value);
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_enter(session: Session, out: *mut GuardHandle) -> *mut ErrorObject {
    let enter = || {
        let jit = SESSIONS.get(session.bits)?;
        // SAFETY: C4 - the lifetime is that of the session, which `Bound` owns until after the guard is dropped.
        let guard = unsafe { mem::transmute::<Guard<'_>, Guard<'static>>(jit.guard()) };
        GUARDS.insert(Bound::to_this_thread(guard, jit)).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", enter) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_leave(guard: GuardHandle) -> *mut ErrorObject {
    run(|| Bound::leave(&GUARDS, guard.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_refresh(guard: GuardHandle) -> *mut ErrorObject {
    run(|| {
        let entered = GUARDS.get(guard.bits)?;
        if let Some(guard) = &mut *entered.edit()? {
            guard.refresh();
        }
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
            let entered = GUARDS.get(guard.bits)?;
            entered.check_thread()?;
            Ok((entered, DYLIBS.get(dylib.bits)?, name))
        },
        |(entered, dylib, name)| {
            let guard = entered.value.borrow();
            let Some(guard) = &*guard else { return Err(Failure::argument("the guard was left")) };
            // SAFETY: C3 - the header states the promises.
            let symbol = unsafe { entered.jit.symbol::<AnyFunction>(guard, &dylib, name)? };
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
        CALLS.insert(Bound::to_this_thread(jit.session().enter_call(), jit)).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", enter) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_call_leave(call: CallHandle) -> *mut ErrorObject {
    run(|| Bound::leave(&CALLS, call.bits))
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
