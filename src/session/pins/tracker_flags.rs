//! [`TrackerFlags`]: what whoever only asks reads at a tracker's gate, without passing it.
//!
//! Marks are put up while the gate is locked, and never taken down. So one that is seen stays; one that is not may go up the
//! next moment, unless something keeps the gate as it is (S2). They cost an empty tracker's removal several locks less.

use crate::sync::{AtomicU8, Ordering};

pub(crate) struct TrackerFlags(AtomicU8);

#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum TrackerFlag {
    /// The tracker is not live any more.
    Defunct = 1,
    /// Managers reported failures. Up ahead of `Reclaimed`.
    Failed = 2,
    /// Every resource has been given back.
    Reclaimed = 4,
    /// The tracker's key, or that of one that it took over, was given out, to record something under it.
    KeyGiven = 8,
    /// The pin graph has known the tracker, or one that it took over.
    InGraph = 16,
    /// Code of another tracker has referred to the tracker, or to one that it took over.
    HadDependants = 32,
    /// A manager may hold things under the key of a tracker that it took over (`unmoved.rs`).
    Unmoved = 64,
}

impl TrackerFlags {
    pub(crate) fn new() -> TrackerFlags {
        TrackerFlags(AtomicU8::new(0))
    }

    /// The caller has locked the gate: so nobody else writes meanwhile.
    pub(crate) fn put(&self, mark: TrackerFlag) {
        // Release pairs with the acquire of `has`: whoever sees a mark sees what was done ahead of it.
        self.0.store(self.0.load(Ordering::Relaxed) | mark as u8, Ordering::Release);
    }

    pub(crate) fn has(&self, mark: TrackerFlag) -> bool {
        self.0.load(Ordering::Acquire) & mark as u8 != 0
    }
}
