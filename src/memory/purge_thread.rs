//! [`PurgeThread`]: whether the purge thread of a window runs. There is at most one, and it misses no freed memory.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | a thread has freed much memory: [`try_start`](PurgeThread::try_start) | running |
//! | running | the purge thread finds little free memory: [`try_end`](PurgeThread::try_end) | idle |
//! | idle | the same call sees that much memory was freed meanwhile | running |
//!
//! # Protocol
//!
//! | a thread that frees | the purge thread at its end |
//! |---|---|
//! | 1. counts the bytes, under the lock of the shard | 1. makes the state idle |
//! | 2. reads the state, and starts a thread if it is idle | 2. reads the count, under the lock of the shard |
//!
//! One of the two critical sections comes first. So either the purge thread reads the count, or the other thread reads
//! the idle state. The lock orders the accesses, so they are relaxed.
//!
//! Model: `loom_tests/loom_purge.rs`.

use crate::sync::{AtomicU64, Ordering, seeded_bug};

/// The state of the purge thread: the fork generation in which it was started, or zero if there is none. In a forked
/// child the generation differs if the process has shared windows. So the child does not mistake its parent's thread
/// for its own.
pub struct PurgeThread(AtomicU64);

impl PurgeThread {
    /// No thread runs.
    #[allow(clippy::new_without_default)] // the atomics of loom have no constant value
    pub fn new() -> PurgeThread {
        PurgeThread(AtomicU64::new(0))
    }

    /// Whether a thread runs in this generation.
    pub fn is_running(&self, generation: u64) -> bool {
        // A load: a word that is only read stays in the caches of all processors.
        self.0.load(Ordering::Relaxed) == generation
    }

    /// Makes the state running. Returns whether it was not: the caller then starts the thread.
    pub fn try_start(&self, generation: u64) -> bool {
        self.0.swap(generation, Ordering::Relaxed) != generation
    }

    /// Makes the state idle, because no thread could be started.
    pub fn start_failed(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Makes the state idle. The purge thread calls it and ends if it returns true. Otherwise the thread goes on.
    ///
    /// `is_much_freed` takes the locks of the shards. It is called after the state is idle, because memory that was
    /// freed between the last check of the purge thread and that moment has started no other thread.
    pub fn try_end(&self, generation: u64, is_much_freed: impl FnOnce() -> bool) -> bool {
        // Seeded bug: the last thread that frees much memory relies on a purge thread that is about to end.
        if seeded_bug!("freed_memory_read_before_the_purge_thread_is_idle") {
            let goes_on = is_much_freed();
            if !goes_on {
                self.0.store(0, Ordering::Relaxed);
            }
            return !goes_on;
        }
        self.0.store(0, Ordering::Relaxed);
        !(is_much_freed() && self.try_start(generation))
    }
}
