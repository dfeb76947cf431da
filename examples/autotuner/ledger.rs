//! How many versions are there, exactly, and how long it takes from giving one up until its memory is free.
//!
//! A version counts from the end of its link until its memory is given back, which may happen on a caller's thread: whoever
//! leaves the last guard that was in the way. So this is told, by [`Removal::on_complete`], and never asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jittison::Removal;

use crate::histogram::Histogram;

#[derive(Default)]
pub struct Ledger {
    live: AtomicU64,
    peak: AtomicU64,
    /// The most since somebody took it.
    recent_peak: AtomicU64,
    freed: Mutex<Freed>,
}

/// What became of versions that were given up.
#[derive(Default, Clone)]
pub struct Freed {
    pub delays: Histogram,
    /// What managers reported.
    pub failures: Vec<String>,
}

impl Ledger {
    pub fn linked(&self) {
        // The counters order no other memory.
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(live, Ordering::Relaxed);
        self.recent_peak.fetch_max(live, Ordering::Relaxed);
    }

    /// A version was dropped before anybody was led to it.
    pub fn dropped(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// A version was given up at `since`.
    pub fn retired(self: &Arc<Self>, since: Instant, removal: &Removal) {
        let me = Arc::clone(self);
        removal.on_complete(move |outcome| {
            me.live.fetch_sub(1, Ordering::Relaxed);
            let mut freed = lock(&me.freed);
            freed.delays.note(since.elapsed());
            freed.failures.extend(outcome.err().map(|error| error.to_string()));
        });
    }

    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most there were since the last call.
    pub fn take_recent_peak(&self) -> u64 {
        self.recent_peak.swap(self.live(), Ordering::Relaxed)
    }

    pub fn freed(&self) -> Freed {
        lock(&self.freed).clone()
    }
}

/// Whoever panicked while holding it has left a histogram that is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
