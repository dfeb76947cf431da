//! The system calls of this program, each of which can be refused.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Address space without access.
    Reserve,
    /// Memory.
    Map,
    Unmap,
    Protect,
    Advise,
    Truncate,
    /// A file without a name.
    Memfd,
    /// A file with a name.
    Open,
    /// A file without a name that may be run, as by `vm.memfd_noexec` = 2: every one, not the n-th.
    ExecutableMemfd,
}

thread_local! {
    /// What is refused to this thread, after how many.
    static NEXT: Cell<Option<(Call, usize)>> = const { Cell::new(None) };
}

/// Has the kernel refuse this thread a call: the first of its kind after so many. What `work` gives, and whether the
/// call was refused.
pub fn refusing<T>(call: Call, after: usize, work: impl FnOnce() -> T) -> (T, bool) {
    NEXT.set(Some((call, after)));
    let outcome = work();
    (outcome, NEXT.take().is_none())
}

fn is_refused(call: Call) -> bool {
    match NEXT.get() {
        Some((armed, 0)) if armed == call => {
            NEXT.set(None);
            true
        }
        Some((armed, after)) if armed == call => {
            NEXT.set(Some((armed, after - 1)));
            false
        }
        _ => false,
    }
}

fn refuse(error: c_int) -> c_int {
    // SAFETY: the C library's word of this thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

// The kernel's own calls, by the C library's generic function.

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
    // SAFETY: the caller's word, passed on.
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
    // SAFETY: the caller's word, passed on.
    unsafe { mmap(address, length, protection, flags, descriptor, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    if is_refused(Call::Unmap) {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_munmap, address, length) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int {
    if is_refused(Call::Protect) {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_mprotect, address, length, protection) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    if is_refused(Call::Advise) {
        return refuse(libc::EAGAIN);
    }
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(descriptor: c_int, length: i64) -> c_int {
    if is_refused(Call::Truncate) {
        return refuse(libc::ENOSPC);
    }
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    if is_refused(Call::Memfd) {
        return refuse(libc::EMFILE);
    }
    if matches!(NEXT.get(), Some((Call::ExecutableMemfd, _))) && flags & libc::MFD_NOEXEC_SEAL == 0 {
        return refuse(libc::EACCES);
    }
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    if is_refused(Call::Open) {
        return refuse(libc::EACCES);
    }
    let here: c_long = libc::AT_FDCWD.into();
    // SAFETY: the caller's word, passed on.
    unsafe { libc::syscall(libc::SYS_openat, here, path, flags, mode) as c_int }
}
