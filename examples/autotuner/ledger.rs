//! [`Ledger`]: counts live versions, and measures the time from retiring a version until its memory is free.
//!
//! A version is live from the end of its link until its memory is released. The thread that drops the last guard in the
//! way runs the release, and this may be a caller. The ledger therefore gets the event from [`Removal::on_complete`];
//! it never polls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jittison::Removal;

use crate::histogram::Histogram;

#[derive(Default)]
pub struct Ledger {
    live: AtomicU64,
    peak: AtomicU64,
    /// The most live versions since the last `take_recent_peak`.
    recent_peak: AtomicU64,
    freed: Mutex<Freed>,
}

/// The completed removals of retired versions.
#[derive(Default, Clone)]
pub struct Freed {
    pub delays: Histogram,
    /// Errors that resource managers reported.
    pub failures: Vec<String>,
}

impl Ledger {
    pub fn linked(&self) {
        // The counters order no other memory.
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(live, Ordering::Relaxed);
        self.recent_peak.fetch_max(live, Ordering::Relaxed);
    }

    /// A version was dropped before any caller was led to it.
    pub fn dropped(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// A version was retired at `since`.
    pub fn retired(self: &Arc<Self>, since: Instant, removal: &Removal) {
        let this = Arc::clone(self);
        removal.on_complete(move |outcome| {
            this.live.fetch_sub(1, Ordering::Relaxed);
            let mut freed = lock(&this.freed);
            freed.delays.record(since.elapsed());
            freed.failures.extend(outcome.err().map(|error| error.to_string()));
        });
    }

    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most live versions since the last call.
    pub fn take_recent_peak(&self) -> u64 {
        self.recent_peak.swap(self.live(), Ordering::Relaxed)
    }

    pub fn freed(&self) -> Freed {
        lock(&self.freed).clone()
    }
}

/// Locks; a poisoned mutex is used as it is, because a panic leaves its counters usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
