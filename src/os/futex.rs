//! Waiting for a word of memory to change, in another process too.

use std::time::Instant;

use rustix::event::Timespec;
use rustix::thread::futex;

use crate::sync::AtomicU32;

/// Waits while the word has this value. False: the time is over. True: look at the word again.
pub(crate) fn wait(word: &AtomicU32, value: u32, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    // The word has changed, somebody woke this thread, a signal arrived, or the time is over.
    let _ = futex::wait(word, futex::Flags::empty(), value, Timespec::try_from(left).ok().as_ref());
    true
}

/// Wakes the thread that waits for this word.
pub(crate) fn wake(word: &AtomicU32) {
    // It fails for addresses that are no words of this process only.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn a_thread_that_waits_is_woken_and_one_whose_time_is_over_is_told() {
        let word = AtomicU32::new(1);
        assert!(!wait(&word, 1, Instant::now()));
        let end = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| while word.load(Ordering::Acquire) == 1 && wait(&word, 1, end) {});
            while !waiting.is_finished() {
                word.store(2, Ordering::Release);
                wake(&word);
                std::thread::yield_now();
            }
        });
        assert!(Instant::now() < end, "the word had changed, and nobody woke the thread");
    }
}
