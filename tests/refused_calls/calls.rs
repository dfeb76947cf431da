//! Interposed system calls: a thread can make one of its own calls fail.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `mmap` of address space without access.
    Reserve,
    /// `mmap` of accessible memory.
    Map,
    Unmap,
    Protect,
    Advise,
    Truncate,
    /// `memfd_create`.
    Memfd,
    /// `open`.
    Open,
    /// `memfd_create` of an executable file, as under `vm.memfd_noexec` = 2. Every such call fails, not only the n-th.
    ExecutableMemfd,
}

thread_local! {
    /// The call to refuse in this thread, and how many such calls succeed before it.
    static ARMED: Cell<Option<(Call, usize)>> = const { Cell::new(None) };
}

/// Runs `work` and refuses one call of this thread, after `after` successful calls of the same kind. Returns the result of `work`,
/// and whether a call was refused.
pub fn refusing<T>(call: Call, after: usize, work: impl FnOnce() -> T) -> (T, bool) {
    ARMED.set(Some((call, after)));
    let outcome = work();
    (outcome, ARMED.take().is_none())
}

fn is_refused(call: Call) -> bool {
    match ARMED.get() {
        Some((armed, 0)) if armed == call => {
            ARMED.set(None);
            true
        }
        Some((armed, after)) if armed == call => {
            ARMED.set(Some((armed, after - 1)));
            false
        }
        _ => false,
    }
}

fn refuse(error: c_int) -> c_int {
    // SAFETY: `errno` of this thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

// These functions make the system call through `syscall` of the C library.

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let call = if protection == libc::PROT_NONE { Call::Reserve } else { Call::Map };
    if is_refused(call) {
        return refuse(libc::ENOMEM) as isize as *mut c_void;
    }
    // SAFETY: by the contract of the caller.
    unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, descriptor, offset) as *mut c_void }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: by the contract of the caller.
    unsafe { mmap(address, length, protection, flags, descriptor, offset) }
}

/// Defines a function of the C library that makes a system call, or fails with an error if the call is refused.
macro_rules! interpose {
    ($name:ident($($argument:ident: $type:ty),*) => $number:ident, $call:ident, $error:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if is_refused(Call::$call) {
                return refuse(libc::$error);
            }
            // SAFETY: by the contract of the caller.
            unsafe { libc::syscall(libc::$number, $($argument),*) as c_int }
        }
    };
}

interpose!(munmap(address: *mut c_void, length: usize) => SYS_munmap, Unmap, ENOMEM);
interpose!(mprotect(address: *mut c_void, length: usize, protection: c_int) => SYS_mprotect, Protect, ENOMEM);
interpose!(madvise(address: *mut c_void, length: usize, advice: c_int) => SYS_madvise, Advise, EAGAIN);
interpose!(ftruncate64(descriptor: c_int, length: i64) => SYS_ftruncate, Truncate, ENOSPC);

#[unsafe(no_mangle)]
unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    if is_refused(Call::Memfd) {
        return refuse(libc::EMFILE);
    }
    if matches!(ARMED.get(), Some((Call::ExecutableMemfd, _))) && flags & libc::MFD_NOEXEC_SEAL == 0 {
        return refuse(libc::EACCES);
    }
    // SAFETY: by the contract of the caller.
    unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    if is_refused(Call::Open) {
        return refuse(libc::EACCES);
    }
    let here: c_long = libc::AT_FDCWD.into();
    // SAFETY: by the contract of the caller.
    unsafe { libc::syscall(libc::SYS_openat, here, path, flags, mode) as c_int }
}
