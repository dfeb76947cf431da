//! [`blocked`]: threads that start without signals, so that those of the program get them.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks all signals while `body` runs. Threads that it starts have them blocked for good.
pub fn blocked<R>(body: impl FnOnce() -> R) -> R {
    let before = set(libc::SIG_SETMASK, &all());
    let result = body();
    if let Some(before) = before {
        set(libc::SIG_SETMASK, &before);
    }
    result
}

fn all() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    // SAFETY: P2 - the C library fills the set that is read below, and fails for no valid pointer.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    }
}

/// Sets the mask of this thread. Returns the one before.
fn set(how: i32, mask: &libc::sigset_t) -> Option<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: P2 - `mask` was filled; the C library fills `before` if it succeeds.
    let status = unsafe { libc::pthread_sigmask(how, ptr::from_ref(mask), before.as_mut_ptr()) };
    // SAFETY: P2 - it succeeded.
    (status == 0).then(|| unsafe { before.assume_init() })
}
