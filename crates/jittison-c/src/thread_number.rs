//! [`ThreadNumber`]: names a thread of the process, also while its thread-local variables are destroyed; and its [`Hazards`].

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::barriers::prepare_barriers;
use crate::hazards::Hazards;

/// A number that no other thread has or had. `std::thread::current` panics while a thread ends; this does not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(pub(crate) u64);

thread_local! {
    /// Zero before the first use. It has no destructor, so it is there until the thread has ended.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// Of the calling thread, from its first use of a value until its thread-local variables are destroyed.
    static HAZARDS: Cell<Option<&'static Hazards>> = const { Cell::new(None) };
}

impl ThreadNumber {
    /// That of the calling thread.
    #[inline]
    pub(crate) fn current() -> ThreadNumber {
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

/// The hazards of the calling thread. It has none while its thread-local variables are destroyed.
#[inline]
pub(crate) fn hazards() -> Option<&'static Hazards> {
    HAZARDS.with(|hazards| if hazards.get().is_some() { hazards.get() } else { first_use(hazards) })
}

/// Hazards that no thread has.
static UNUSED: Mutex<Vec<&'static Hazards>> = Mutex::new(Vec::new());

/// Gives the hazards of the thread back.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        // What is protected is a value that the thread has left in use for ever: that of a guard, for example.
        if let Some(hazards) = HAZARDS.take().filter(|hazards| hazards.is_empty()) {
            UNUSED.lock().push(hazards);
        }
    }
}

#[cold]
fn first_use(of_thread: &Cell<Option<&'static Hazards>>) -> Option<&'static Hazards> {
    thread_local! {
        static GIVE_BACK: GiveBack = const { GiveBack };
    }
    // An error: the thread is ending.
    GIVE_BACK.try_with(|_| ()).ok()?;
    prepare_barriers();
    let hazards = UNUSED.lock().pop().unwrap_or_else(|| Box::leak(Box::new(Hazards::new())));
    of_thread.set(Some(hazards));
    Some(hazards)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of the hazards of a new thread, which protect something for ever if `is_used`.
    fn hazards_of_a_thread(is_used: bool) -> usize {
        let of_thread = move || {
            let hazards = hazards().expect("the thread runs");
            if is_used {
                hazards.protect(1).unwrap();
            }
            std::ptr::from_ref(hazards).addr()
        };
        std::thread::spawn(of_thread).join().unwrap()
    }

    #[test]
    fn the_hazards_of_a_thread_that_has_ended_go_to_a_later_one_unless_they_protect_something() {
        let used = hazards_of_a_thread(true);
        let later: std::collections::HashSet<usize> = (0..200).map(|_| hazards_of_a_thread(false)).collect();
        assert!(!later.contains(&used));
        // Other tests of this process have threads, too.
        assert!(later.len() < 100, "{} for 200 threads, one after another", later.len());
    }
}
