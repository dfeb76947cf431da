//! Guards, and lookups under them.
//!
//! A guard belongs to the thread that entered it. The table is shared, so each entry knows its thread, and every use compares
//! threads first. A thread that ends inside a guard leaks it: later removals then wait for ever, and name the guard.

use std::cell::{RefCell, RefMut};
use std::ffi::c_void;
use std::mem;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use jittison::{Guard, Jit};

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, put, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::function::AnyFunction;
use crate::handle::{Kind, Table};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::Str;

/// `jittison_guard`.
pub(crate) type GuardHandle = Handle<Entered>;
static GUARDS: Table<Entered> = Table::new(Kind::Guard);

/// A guard, its thread and its session.
pub(crate) struct Entered {
    thread: ThreadId,
    /// `None` once the guard was left. Borrowed during a lookup, which may run code that tries to leave the guard.
    guard: RefCell<Option<Guard<'static>>>,
    jit: Arc<Jit>,
}

// SAFETY: C4 - other threads use `thread` and `jit` only, which every thread may use. They drop an entry only after its own
// thread took the guard out.
unsafe impl Send for Entered {}
// SAFETY: C4 - as above.
unsafe impl Sync for Entered {}

impl Entered {
    fn on_this_thread(jit: Arc<Jit>) -> Entered {
        let guard = jit.guard();
        // SAFETY: C4 - the lifetime is that of the session, which `jit` owns until after the guard is dropped.
        let guard = unsafe { mem::transmute::<Guard<'_>, Guard<'static>>(guard) };
        Entered { thread: thread::current().id(), guard: RefCell::new(Some(guard)), jit }
    }

    fn check_thread(&self) -> Result<(), Failure> {
        if self.thread == thread::current().id() {
            return Ok(());
        }
        Err(Failure::Thread("the guard was entered by another thread; nothing was done; use it on that thread".into()))
    }

    /// The guard, for a change.
    fn edit(&self) -> Result<RefMut<'_, Option<Guard<'static>>>, Failure> {
        self.check_thread()?;
        let is_used = |_| Failure::argument("a lookup of this thread uses the guard; nothing was done");
        self.guard.try_borrow_mut().map_err(is_used)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_enter(session: Session, out: *mut GuardHandle) -> *mut ErrorObject {
    let enter = || {
        let entered = Entered::on_this_thread(SESSIONS.get(session.bits)?);
        GUARDS.insert(entered).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", enter) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_guard_leave(guard: GuardHandle) -> *mut ErrorObject {
    run(|| {
        let entered = GUARDS.take_if(guard.bits, |entered| entered.edit().map(drop))?;
        let guard = entered.edit()?.take();
        // Runs what waited for the guard, so no borrow is held.
        drop(guard);
        Ok(())
    })
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
            let guard = entered.guard.borrow();
            let Some(guard) = &*guard else { return Err(Failure::argument("the guard was left")) };
            // SAFETY: C3 - the header states the promises.
            let symbol = unsafe { entered.jit.symbol::<AnyFunction>(guard, &dylib, name)? };
            let address = symbol.address().value() as usize as *mut c_void;
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(address)) }
        },
    )
}
