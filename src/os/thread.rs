//! Threads that linked code starts, and what runs at their end.
//!
//! [`ThreadEnd`] is a key of the C library with a destructor. The C library calls it after the destructors of thread-local
//! variables, however the thread ends: its function returns, `pthread_exit`, or a cancellation.

use std::ffi::{c_int, c_void};

/// The function of a thread.
pub(crate) type StartRoutine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A key whose destructor runs at the end of each thread that has set a value.
pub(crate) struct ThreadEnd(libc::pthread_key_t);

impl ThreadEnd {
    /// How often the C library calls the destructor, if it sets the value again.
    pub(crate) const ROUNDS: usize = 4;

    /// `None` if the process has no key left. The destructor gets the value, which is not null.
    pub(crate) fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<ThreadEnd> {
        let mut key = 0;
        // SAFETY: O4 - a function of this program with the declared signature. O2 - `key` is local.
        let result = unsafe { libc::pthread_key_create(&mut key, Some(destructor)) };
        (result == 0).then_some(ThreadEnd(key))
    }

    /// Sets the value of the calling thread. False if the C library has not enough memory.
    #[must_use]
    pub(crate) fn set(&self, value: *mut c_void) -> bool {
        // SAFETY: O2 - the key was created and is never deleted. The C library does not read what `value` points to.
        unsafe { libc::pthread_setspecific(self.0, value) == 0 }
    }

    /// Whether the calling thread has a value.
    pub(crate) fn is_set(&self) -> bool {
        // SAFETY: O2 - the key was created and is never deleted.
        !unsafe { libc::pthread_getspecific(self.0) }.is_null()
    }
}

/// `pthread_create`.
///
/// # Safety
/// - `thread` and `attributes` are what `pthread_create` may get.
/// - `start` may run on another thread with `argument`.
pub(crate) unsafe fn create_thread(
    thread: *mut c_void,
    attributes: *const c_void,
    start: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: O2, O4 - the clauses of `# Safety`; the function has the declared signature. The pointers are cast to the types
    // that the C library declares.
    unsafe { pthread_create(thread, attributes, start, argument) }
}

unsafe extern "C" {
    /// As `libc` declares it, but the function may unwind.
    fn pthread_create(
        thread: *mut c_void,
        attributes: *const c_void,
        start: StartRoutine,
        argument: *mut c_void,
    ) -> c_int;
}
