//! [`TrackerFlags`]: facts about a tracker that can be read without its lock.
//!
//! A flag is set under the tracker's lock and never cleared. So a flag that is read as set stays set. A flag that is read as
//! clear may be set at the next moment, unless the reader holds a lock that keeps the tracker's state (S2). The flags save
//! several lock operations in the removal of an empty tracker.

use crate::sync::{AtomicU8, Ordering};

pub(crate) struct TrackerFlags(AtomicU8);

#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum TrackerFlag {
    /// The tracker is no longer live.
    Defunct = 1,
    /// Managers reported failures. Set before `Reclaimed`.
    Failed = 2,
    /// All resources are released.
    Reclaimed = 4,
    /// The key of the tracker, or of one that was merged into it, was passed to a caller that may record something under it.
    KeyGiven = 8,
    /// The pin graph has or had a node for the tracker, or for one that was merged into it.
    InGraph = 16,
    /// Code of another tracker has referred to the tracker, or to one that was merged into it.
    HadDependants = 32,
    /// A manager may hold resources under the key of a tracker that was merged into this one (`failed_transfers.rs`).
    FailedTransfer = 64,
}

impl TrackerFlags {
    pub(crate) fn new() -> TrackerFlags {
        TrackerFlags(AtomicU8::new(0))
    }

    /// The caller holds the tracker's lock, so no other thread writes meanwhile.
    pub(crate) fn set(&self, flag: TrackerFlag) {
        // Release pairs with the acquire of `has`: a reader that sees the flag sees everything that was done before it. Relaxed: the
        // lock orders the load.
        self.0.store(self.0.load(Ordering::Relaxed) | flag as u8, Ordering::Release);
    }

    /// The load pairs with the store of [`set`](Self::set).
    pub(crate) fn has(&self, flag: TrackerFlag) -> bool {
        self.0.load(Ordering::Acquire) & flag as u8 != 0
    }
}
