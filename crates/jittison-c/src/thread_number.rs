//! [`ThreadNumber`]: names a thread of the process, also while its thread-local variables are destroyed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other thread has or had. `std::thread::current` panics while a thread ends; this does not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(pub(crate) u64);

impl ThreadNumber {
    /// That of the calling thread.
    #[inline]
    pub(crate) fn current() -> ThreadNumber {
        thread_local! {
            /// Zero before the first use. It has no destructor, so it is there until the thread has ended.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        NUMBER.with(|number| match number.get() {
            0 => ThreadNumber::next(number),
            known => ThreadNumber(known),
        })
    }

    #[cold]
    fn next(number: &Cell<u64>) -> ThreadNumber {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only have to differ.
        number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        ThreadNumber(number.get())
    }
}
