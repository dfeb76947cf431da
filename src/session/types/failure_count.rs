//! [`FailureCount`]: tells which failures of a session are younger than a lookup.
//!
//! A lookup of the embedder notes the count when it begins, and so does everything that is linked for it. A definition that has failed
//! since then has failed for this lookup. No generator is asked for it again, or members of a library that need each other would
//! be generated and fail for ever. A later lookup has a higher count, and asks the generators.
//!
//! A failure is counted before its error is delivered. So a lookup that begins after the error of another one does not see the
//! failures of that one as its own.

use crate::sync::{CountU64, Ordering};

/// How many units of a session have failed.
pub(in crate::session) struct FailureCount(CountU64);

/// The number of failures at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::session) struct FailureNumber(u64);

impl FailureNumber {
    /// For what is no failure: it is older than every lookup.
    pub(in crate::session) const NONE: FailureNumber = FailureNumber(0);
    /// For a lookup that no failure is younger than.
    pub(in crate::session) const LATEST: FailureNumber = FailureNumber(u64::MAX);
}

impl FailureCount {
    pub(in crate::session) fn new() -> FailureCount {
        FailureCount(CountU64::new(0))
    }

    /// The number of failures up to now.
    #[inline]
    pub(in crate::session) fn now(&self) -> FailureNumber {
        FailureNumber(self.0.load(Ordering::Relaxed))
    }

    /// Counts a failure, and returns its number.
    #[cold]
    pub(in crate::session) fn count(&self) -> FailureNumber {
        FailureNumber(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
