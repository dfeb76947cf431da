//! Destructors of thread-local variables of linked code, which run when their thread ends.
//!
//! C++ registers them with `__cxa_thread_atexit` and the object's own `__dso_handle`, Rust with `__cxa_thread_atexit_impl` and a
//! variable that holds its address (`scope_number` in `exit_handlers.rs`). Each thread has a list of its pending destructors.
//!
//! | when | which destructors run |
//! |---|---|
//! | the thread ends | all that are pending in this thread, the latest first |
//! | the thread drops the last pin of a removed object, except those for destructors | those of the object in this thread |
//! | the object's finalisers run | those of the object that are pending in the calling thread, before the finalisers |
//!
//! # Keeping the code alive
//! A thread keeps the code of an object alive from the first destructor that it registers for the object until the last
//! one has run. No other thread may destroy its variables, so removal of the object waits for the thread. The object
//! supplies the closure that keeps the code alive ([`ExitScope::set_keep_alive`]). The closure returns `None` if
//! removal has already begun, for example when a finaliser of the object registers a destructor. The thread that runs
//! the finalisers calls that destructor, or no thread does.
//!
//! The object is the one whose handle is passed. Rust passes that of its standard library, once for a thread, and keeps the list of
//! destructors itself. So code of Rust with such variables must not be removed before the threads that used them have ended, if its
//! standard library is under another tracker.
//!
//! # Locks
//! Only its own thread touches the list. The C library has one handler for the entire list. While this file calls a destructor,
//! or obtains or drops a [`CodeKeepAlive`], it holds no borrow of the list and no lock.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use crate::base::{ExecutorAddr, enter_host_call};
use crate::host::exit_handlers::{ExitScope, scope_number};
use crate::host::exit_scopes::CodeKeepAlive;
use crate::os;
use crate::sync::{thread_id, thread_local};

type Destructor = extern "C-unwind" fn(*mut c_void);

/// One pending destructor.
struct Dtor {
    scope: u64,
    destructor: Destructor,
    argument: *mut c_void,
}

impl Dtor {
    fn call(&self) {
        let _entry = enter_host_call();
        (self.destructor)(self.argument);
    }
}

/// An object with pending destructors in this thread.
struct ObjectDtors {
    scope: u64,
    /// Number of its destructors in the list.
    count: usize,
    /// `None` if removal of the code had already begun.
    keep_alive: Option<CodeKeepAlive>,
}

/// The pending destructors of one thread.
struct ThreadDtors {
    list: Vec<Dtor>,
    /// One entry for each object that has a destructor in `list`.
    objects: Vec<ObjectDtors>,
    /// Whether the C library will call [`at_thread_end`].
    is_registered: bool,
}

thread_local! {
    // `ManuallyDrop`: the list must be usable by every destructor that runs at the end of the thread. `at_thread_end` frees its
    // buffers.
    #[allow(clippy::missing_const_for_thread_local)]
    static THREAD_DTORS: std::mem::ManuallyDrop<RefCell<ThreadDtors>> = std::mem::ManuallyDrop::new(RefCell::new(
        ThreadDtors { list: Vec::new(), objects: Vec::new(), is_registered: false },
    ));
}

/// Runs the destructors of `scopes` that are pending in the calling thread, the latest first, including those that are
/// registered meanwhile. Returns the number of calls.
pub(super) fn run_thread_dtors(scopes: &[u64]) -> usize {
    let mut count = 0;
    while let Some((dtor, keep_alive)) = pop_latest(|dtor| scopes.contains(&dtor.scope)) {
        dtor.call();
        drop(keep_alive);
        count += 1;
    }
    count
}

/// The address of the `__cxa_thread_atexit` that linked code calls.
pub(super) fn thread_atexit_capture_address() -> ExecutorAddr {
    ExecutorAddr::new(capture_thread_atexit as *const () as u64)
}

/// `int __cxa_thread_atexit(void (*f)(void *), void *p, void *d)`: returns zero if the destructor was registered.
///
/// # Safety
/// Only linked code calls this, with its own destructor and the address of its own `__dso_handle`.
unsafe extern "C" fn capture_thread_atexit(
    destructor: Option<Destructor>,
    argument: *mut c_void,
    dso_handle: *const u64,
) -> c_int {
    // SAFETY: H2 - linked code passes the address of its own `__dso_handle`, and is held during the call.
    let (Some(destructor), Some(scope)) = (destructor, unsafe { scope_number(dso_handle) }) else { return -1 };
    let is_registered = THREAD_DTORS.with(|dtors| {
        let mut dtors = dtors.borrow_mut();
        dtors.is_registered = dtors.is_registered || os::at_thread_exit(at_thread_end);
        if dtors.is_registered {
            dtors.list.push(Dtor { scope, destructor, argument });
        }
        dtors.is_registered
    });
    if !is_registered {
        return -1;
    }
    if !THREAD_DTORS.with(|dtors| dtors.borrow_mut().inc(scope)) {
        // Outside the borrow: the closure takes locks of the session.
        let keep_alive = ExitScope::keep_alive(scope, &format!("thread {}", thread_id()));
        THREAD_DTORS.with(|dtors| dtors.borrow_mut().objects.push(ObjectDtors { scope, count: 1, keep_alive }));
    }
    0
}

extern "C-unwind" fn at_thread_end(_: *mut c_void) {
    while let Some((dtor, last_keep_alive)) = pop_latest(|_| true) {
        // Code that nothing keeps alive may be freed already: its destructor is dropped without a call.
        if last_keep_alive.is_some() || THREAD_DTORS.with(|dtors| dtors.borrow().is_kept_alive(dtor.scope)) {
            dtor.call();
        }
        // After the call: this may be the last owner of the code and free it.
        drop(last_keep_alive);
    }
    THREAD_DTORS.with(|dtors| {
        let mut dtors = dtors.borrow_mut();
        // A destructor that is registered from here on registers `at_thread_end` with the C library again.
        dtors.is_registered = false;
        (dtors.list, dtors.objects) = (Vec::new(), Vec::new());
    });
}

/// Removes the latest matching destructor. If it was the last of its object, also returns what keeps the object's code alive.
fn pop_latest(is_wanted: impl Fn(&Dtor) -> bool) -> Option<(Dtor, Option<CodeKeepAlive>)> {
    THREAD_DTORS.with(|dtors| {
        let mut dtors = dtors.borrow_mut();
        let at = dtors.list.iter().rposition(is_wanted)?;
        let dtor = dtors.list.remove(at);
        let keep_alive = dtors.dec(dtor.scope);
        Some((dtor, keep_alive))
    })
}

impl ThreadDtors {
    /// Counts one more destructor of an object. Returns false if the object has no entry.
    fn inc(&mut self, scope: u64) -> bool {
        let object = self.objects.iter_mut().find(|object| object.scope == scope);
        object.map(|object| object.count += 1).is_some()
    }

    /// Counts one destructor less. With the last one, removes the object and returns what keeps its code alive.
    fn dec(&mut self, scope: u64) -> Option<CodeKeepAlive> {
        let at = self.objects.iter().position(|object| object.scope == scope)?;
        self.objects[at].count -= 1;
        if self.objects[at].count > 0 { None } else { self.objects.swap_remove(at).keep_alive }
    }

    /// Whether this thread keeps the code of an object alive.
    fn is_kept_alive(&self, scope: u64) -> bool {
        self.objects.iter().any(|object| object.scope == scope && object.keep_alive.is_some())
    }
}
