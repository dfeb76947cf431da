//! Resource managers of the embedder: callbacks that move and free what belongs to code.
//!
//! A key is a number. The manager makes one for each tracker that it records something for, so callbacks come for those only.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::session::Visibility;
use jittison::{Error, Jit, JitDylib, ResourceKey, ResourceManager};
use parking_lot::Mutex;

use crate::callbacks::{Dropped, OwnedContext, outcome};
use crate::entry::{check_out, put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Retained, Table};
use crate::session::{Handle, SESSIONS, Session, read_options};
use crate::tracker::{TRACKERS, Tracker};

/// `jittison_manager`.
pub(crate) type ManagerHandle = Handle<Registered>;
pub(crate) static MANAGERS: Table<Registered> = Table::new(Kind::Manager);

/// A manager, and the session that it is registered with.
pub(crate) struct Registered {
    manager: Arc<Manager>,
    jit: Retained<Jit>,
}

impl Registered {
    /// Refuses a dylib of another session, which never calls the manager.
    pub(crate) fn check_session(&self, dylib: JitDylib) -> Result<(), Error> {
        // A lookup of nothing checks it.
        self.jit.session().lookup_flags(&[(dylib, Visibility::All)], &[]).map(drop)
    }

    /// The number of a key, for what a link records under it.
    pub(crate) fn number(&self, key: ResourceKey) -> u64 {
        self.manager.number(key)
    }
}

/// `jittison_manager_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callbacks {
    size: usize,
    remove: Option<unsafe extern "C-unwind" fn(u64, *mut c_void) -> *mut ErrorObject>,
    transfer: Option<unsafe extern "C-unwind" fn(u64, u64, *mut c_void)>,
    dropped: Option<Dropped>,
    held_bytes: Option<unsafe extern "C-unwind" fn(u64, *mut c_void) -> u64>,
    release_pins: Option<unsafe extern "C-unwind" fn(u64, *mut c_void)>,
}

/// Calls the callbacks.
struct Manager {
    callbacks: Callbacks,
    context: OwnedContext,
    /// The numbers of keys that hold something. A manager's own lock: held under locks of the session, and over no call.
    keys: Mutex<HashMap<ResourceKey, u64>>,
}

impl Manager {
    /// The number of a key.
    fn number(&self, key: ResourceKey) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        *self.keys.lock().entry(key).or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl ResourceManager for Manager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<(), Error> {
        let number = self.keys.lock().remove(&key);
        let (Some(number), Some(remove)) = (number, self.callbacks.remove) else { return Ok(()) };
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away.
        unsafe { outcome(remove(number, self.context.get())) }
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        let number = self.keys.lock().get(&key).copied();
        let (Some(number), Some(held_bytes)) = (number, self.callbacks.held_bytes) else { return 0 };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { held_bytes(number, self.context.get()) }
    }

    fn release_pins(&self, _: &JitDylib, key: ResourceKey) {
        let number = self.keys.lock().get(&key).copied();
        let (Some(number), Some(release_pins)) = (number, self.callbacks.release_pins) else { return };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { release_pins(number, self.context.get()) };
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        let moved = self.keys.lock().remove(&source);
        let (Some(moved), Some(transfer)) = (moved, self.callbacks.transfer) else { return };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { transfer(self.number(destination), moved, self.context.get()) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_manager_create(
    session: Session,
    callbacks: *const c_void,
    context: *mut c_void,
    out: *mut ManagerHandle,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        check_out(callbacks.cast_mut().cast::<usize>(), "callbacks")?;
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: Callbacks = unsafe { read_options(callbacks.cast())? };
        if callbacks.remove.is_none() || callbacks.transfer.is_none() {
            return Err(Failure::argument("a manager needs the callbacks `remove` and `transfer`"));
        }
        let jit = SESSIONS.retain(session.bits)?;
        let context = OwnedContext::new(context, callbacks.dropped);
        let manager = Arc::new(Manager { callbacks, context, keys: Mutex::default() });
        let place = MANAGERS.reserve()?;
        jit.session().register_manager(manager.clone());
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(Handle::new(place.fill(Registered { manager, jit })))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_manager_record(
    manager: ManagerHandle,
    tracker: Tracker,
    record: Option<unsafe extern "C-unwind" fn(u64, *mut c_void)>,
    context: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let record = record.ok_or_else(|| Failure::argument("the callback is null"))?;
        let (registered, tracker) = (MANAGERS.get(manager.bits)?, TRACKERS.get(tracker.bits)?);
        registered.check_session(tracker.dylib())?;
        tracker.with_resource_key(|key| {
            let number = registered.manager.number(key);
            // SAFETY: C5 - the caller promises both during this call.
            unsafe { record(number, context) };
        })?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_manager_deregister(manager: ManagerHandle) -> *mut ErrorObject {
    run(|| {
        let registered = MANAGERS.get(manager.bits)?;
        let manager: Arc<dyn ResourceManager> = registered.manager.clone();
        registered.jit.session().deregister_manager(&manager);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_manager_release(manager: ManagerHandle) -> *mut ErrorObject {
    run(|| MANAGERS.release(manager.bits))
}
