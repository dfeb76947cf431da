//! [`NativeThreads`]: threads of a program that was started normally, whose functions are replaced.
//!
//! Its first thread is counted as a call from before `main` on, and each thread that it starts from its start to its end. So a version
//! that was replaced is freed when each of them has passed a reload point outside of it, or has ended. Without this, nobody knows when a
//! thread of such a program has left a version.

#[cfg(feature = "unstable")]
use std::ffi::{c_int, c_void};

#[cfg(feature = "unstable")]
use crate::host::linked_threads::{CStart, Start, enter_thread, keep_versions, run, run_c};
#[cfg(feature = "unstable")]
use crate::host::reload_point::pass_natively;
#[cfg(feature = "unstable")]
use crate::os::StartRoutine;
use crate::sync::StaticCell;

static ALL_ARE_COUNTED: StaticCell<()> = StaticCell::new();

/// Whether each thread of the process is counted as a call.
pub(super) fn are_native_threads_counted() -> bool {
    ALL_ARE_COUNTED.get().is_some()
}

/// Counts the threads of the process as calls. For a library that takes the place of the functions that start threads.
#[cfg(feature = "unstable")]
#[derive(Debug)]
pub enum NativeThreads {}

#[cfg(feature = "unstable")]
impl NativeThreads {
    /// Counts the calling thread until it ends, and says that all others are counted.
    ///
    /// # Safety
    /// A [`Reloader`](crate::Reloader) exists. No other thread runs code of the program, and all that are started from now on are
    /// started by [`start`](Self::start) or [`start_c`](Self::start_c).
    pub unsafe fn count_all() {
        enter_thread(keep_versions());
        ALL_ARE_COUNTED.get_or_init(|| ());
    }

    /// Starts a thread by `create`, which is `pthread_create` with its other arguments. Returns its result.
    ///
    /// # Safety
    /// `create` starts a thread that calls its function with its pointer, once; or it starts none, and returns another number than 0.
    pub unsafe fn start(
        function: StartRoutine,
        argument: *mut c_void,
        create: impl FnOnce(StartRoutine, *mut c_void) -> c_int,
    ) -> c_int {
        // SAFETY: H4 - the clauses of `# Safety`; `run` is for this type of function.
        unsafe { start_counted(function, argument, |start| create(run, start)) }
    }

    /// As [`start`](Self::start), for `thrd_create`.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub unsafe fn start_c(
        function: CStart,
        argument: *mut c_void,
        create: impl FnOnce(CStart, *mut c_void) -> c_int,
    ) -> c_int {
        // SAFETY: H4 - the clauses of `# Safety`; `run_c` is for this type of function.
        unsafe { start_counted(function, argument, |start| create(run_c, start)) }
    }

    /// Passes a reload point in code of the program that is not linked.
    pub fn pass_reload_point() {
        pass_natively();
    }
}

/// Starts a thread by `create`, which gets the argument of its first function.
///
/// # Safety
/// That function takes what a thread of type `F` runs from its argument, once; or no thread is started, and `create` returns another
/// number than 0.
#[cfg(feature = "unstable")]
unsafe fn start_counted<F>(function: F, argument: *mut c_void, create: impl FnOnce(*mut c_void) -> c_int) -> c_int {
    let start = Start::into_raw(function, argument);
    let result = create(start);
    if result != 0 {
        // SAFETY: H4 - `into_raw` has leaked it. By contract no thread was started, so nobody else has it.
        unsafe { Start::<F>::discard(start) };
    }
    result
}
