//! [`ShardedArc`]: one thing that many threads hold for a moment each, counted in several places.
//!
//! Each clone of an [`Arc`] and each drop writes its count, and a line that two threads write in turn is fetched from the other
//! core each time. So there are as many counts as threads are likely to work at once, and a thread takes its own.

use std::ops::Deref;

use crate::sync::{Arc, thread_number};

pub(crate) struct ShardedArc<T> {
    thing: Arc<T>,
    shares: [Arc<ArcShard<T>>; SHARES],
}

/// Holds the thing. In lines of its own, its count included.
#[repr(align(128))]
pub(crate) struct ArcShard<T>(Arc<T>);

impl<T> ShardedArc<T> {
    pub(crate) fn new(thing: T) -> ShardedArc<T> {
        let thing = Arc::new(thing);
        ShardedArc { shares: std::array::from_fn(|_| Arc::new(ArcShard(thing.clone()))), thing }
    }

    /// For this thread to hold; others may drop it.
    pub(crate) fn share(&self) -> Arc<ArcShard<T>> {
        self.shares[thread_number() % SHARES].clone()
    }

    /// The thing itself, where it is held for long.
    pub(crate) fn whole(&self) -> &Arc<T> {
        &self.thing
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T> Deref for ArcShard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Threads whose numbers are so far apart count together.
const SHARES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_at_once_count_on_lines_of_their_own() {
        let spread = ShardedArc::new(5);
        let here = spread.share();
        let there = std::thread::scope(|scope| scope.spawn(|| spread.share()).join()).expect("it does not panic");
        assert_eq!((**here, **there), (5, 5));
        assert_eq!((Arc::strong_count(&here), Arc::strong_count(&there)), (2, 2));
        assert!(Arc::as_ptr(&here).addr().abs_diff(Arc::as_ptr(&there).addr()) >= 256);
    }

    #[test]
    fn a_share_keeps_the_thing_and_the_last_one_drops_it() {
        let spread = ShardedArc::new(5);
        let (share, known) = (spread.share(), Arc::downgrade(spread.whole()));
        drop(spread);
        assert_eq!(known.upgrade().as_deref(), Some(&5));
        drop(share);
        assert_eq!(known.upgrade(), None);
    }
}
