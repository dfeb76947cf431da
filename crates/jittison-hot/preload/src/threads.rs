//! The functions that start threads, in place of those of the C library, and reload points.
//!
//! A program finds the functions of a preloaded library first. Each thread of the program is counted as a call then
//! ([`NativeThreads`]), so replaced versions are freed at reload points. Threads of this library are not counted: they run no code of
//! the program.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use jittison_hot::NativeThreads;

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type CRoutine = extern "C-unwind" fn(*mut c_void) -> c_int;
type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;
type CreateC = unsafe extern "C" fn(*mut c_void, CRoutine, *mut c_void) -> c_int;

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// Counts all threads of the program from here on.
///
/// # Safety
/// A reloader exists. The calling thread is the only one that runs code of the program.
pub unsafe fn count_all() {
    // SAFETY: the clauses of `# Safety`. The functions below start all other threads.
    unsafe { NativeThreads::count_all() };
    IS_COUNTED.store(true, Ordering::Release);
}

/// Whether the process has one thread.
pub fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// `pthread_create`.
///
/// # Safety
/// That of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    function: Routine,
    argument: *mut c_void,
) -> c_int {
    static REAL: OnceLock<usize> = OnceLock::new();
    let address = *REAL.get_or_init(|| next(c"pthread_create"));
    // SAFETY: the next function of this name is that of the C library, which has this type.
    let real = unsafe { std::mem::transmute::<usize, Create>(address) };
    // SAFETY: the caller's arguments.
    let create = |function, argument| unsafe { real(thread, attributes, function, argument) };
    if !IS_COUNTED.load(Ordering::Acquire) || is_own(function as *const c_void) {
        return create(function, argument);
    }
    // SAFETY: `pthread_create` does this.
    unsafe { NativeThreads::start(function, argument, create) }
}

/// `thrd_create`.
///
/// # Safety
/// That of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, function: CRoutine, argument: *mut c_void) -> c_int {
    static REAL: OnceLock<usize> = OnceLock::new();
    let address = *REAL.get_or_init(|| next(c"thrd_create"));
    // SAFETY: as above.
    let real = unsafe { std::mem::transmute::<usize, CreateC>(address) };
    // SAFETY: the caller's arguments.
    let create = |function, argument| unsafe { real(thread, function, argument) };
    if !IS_COUNTED.load(Ordering::Acquire) || is_own(function as *const c_void) {
        return create(function, argument);
    }
    // SAFETY: `thrd_create` does this.
    unsafe { NativeThreads::start_c(function, argument, create) }
}

/// Passes a reload point. Gives 0: code of the program that was not linked is replaced at its entries only.
#[unsafe(no_mangle)]
pub extern "C" fn jittison_reload_point() -> c_int {
    if IS_COUNTED.load(Ordering::Relaxed) {
        NativeThreads::pass_reload_point();
    }
    0
}

/// Gives 0.
#[unsafe(no_mangle)]
pub extern "C" fn jittison_is_replaced() -> c_int {
    0
}

/// The function of this name in the libraries behind this one.
fn next(name: &CStr) -> usize {
    // SAFETY: a name of the C library's own, which outlives the call.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        eprintln!("jittison: the C library has no function {}", name.to_string_lossy());
        std::process::abort();
    }
    address.addr()
}

/// Whether a function is one of this library: that of a thread which the library itself needs, or one that counts a thread already.
fn is_own(function: *const c_void) -> bool {
    let own = (is_own as fn(*const c_void) -> bool) as *const c_void;
    base_of(function).is_some_and(|base| Some(base) == base_of(own))
}

/// Where the library is that has an address.
fn base_of(address: *const c_void) -> Option<*mut c_void> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: the loader fills `info`, which is local.
    let found = unsafe { libc::dladdr(address, &mut info) };
    (found != 0).then_some(info.dli_fbase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_library_are_told_from_those_of_others() {
        assert!(is_own(count_all as *const c_void));
        assert!(!is_own(libc::getpid as *const c_void));
    }
}
