//! [`ThreadNumber`]: names a thread of the process, also while its thread-local variables are destroyed; and the record in which the
//! thread notes what it uses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::barriers::prepare_barriers;
use crate::use_record::UseRecord;

/// A number that no other thread has or had. `std::thread::current` panics while a thread ends; this does not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(pub(crate) u64);

thread_local! {
    /// Zero before the first use. It has no destructor, so it is there until the thread has ended.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// Of the calling thread, from its first use of a value until its thread-local variables are destroyed.
    static RECORD: Cell<Option<&'static UseRecord>> = const { Cell::new(None) };
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

/// The record of the calling thread. It has none while its thread-local variables are destroyed.
#[inline]
pub(crate) fn use_record() -> Option<&'static UseRecord> {
    RECORD.with(|record| if record.get().is_some() { record.get() } else { first_use(record) })
}

/// Records that no thread has.
static RECORDS: Mutex<Vec<&'static UseRecord>> = Mutex::new(Vec::new());

/// Gives the record of the thread back.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        // What is noted is a value that the thread has left in use for ever: that of a guard, for example. Its record stays.
        if let Some(record) = RECORD.take().filter(|record| record.is_empty()) {
            RECORDS.lock().push(record);
        }
    }
}

#[cold]
fn first_use(of_thread: &Cell<Option<&'static UseRecord>>) -> Option<&'static UseRecord> {
    thread_local! {
        static GIVE_BACK: GiveBack = const { GiveBack };
    }
    // An error: the thread is ending.
    GIVE_BACK.try_with(|_| ()).ok()?;
    prepare_barriers();
    let record = RECORDS.lock().pop().unwrap_or_else(|| Box::leak(Box::new(UseRecord::new())));
    record.give_to(ThreadNumber::current().0);
    of_thread.set(Some(record));
    of_thread.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a new thread, in which it notes a use if `is_used`.
    fn record_of_a_thread(is_used: bool) -> usize {
        let record_of_thread = move || {
            let record = use_record().expect("the thread runs");
            assert_eq!(record.thread(), ThreadNumber::current().0);
            if is_used {
                record.note(1).unwrap();
            }
            std::ptr::from_ref(record).addr()
        };
        std::thread::spawn(record_of_thread).join().unwrap()
    }

    fn is_free(record: usize) -> bool {
        RECORDS.lock().iter().any(|free| std::ptr::from_ref(*free).addr() == record)
    }

    #[test]
    fn the_record_of_a_thread_that_has_ended_goes_to_a_later_one_unless_it_notes_a_use() {
        let used = record_of_a_thread(true);
        assert!(!is_free(used));
        let records: Vec<usize> = (0..200).map(|_| record_of_a_thread(false)).collect();
        assert!(!records.contains(&used));
        let different: std::collections::HashSet<usize> = records.into_iter().collect();
        // Other tests of this process have threads, too.
        assert!(different.len() < 100, "{} records for 200 threads, one after another", different.len());
    }
}
