//! [`ShardedArc`]: an `Arc` with several reference counts, for a value that many threads hold for a short time each.
//!
//! Each clone and each drop of an [`Arc`] writes its reference count. Where two threads write it in turn, the cache
//! line moves between their cores each time. So a `ShardedArc` has [`SHARDS`] counts, and each thread uses the count
//! that its thread number selects.

use std::ops::Deref;

use crate::sync::{Arc, thread_number};

pub(crate) struct ShardedArc<T> {
    inner: Arc<T>,
    shards: [Arc<ArcShard<T>>; SHARDS],
}

/// One reference to the value, with a count of its own. The alignment puts each count into its own cache lines.
#[repr(align(128))]
pub(crate) struct ArcShard<T>(Arc<T>);

impl<T> ShardedArc<T> {
    pub(crate) fn new(value: T) -> ShardedArc<T> {
        let inner = Arc::new(value);
        ShardedArc { shards: std::array::from_fn(|_| Arc::new(ArcShard(inner.clone()))), inner }
    }

    /// A reference for a short time. It counts in the shard of the calling thread; any thread may drop it.
    pub(crate) fn shard(&self) -> Arc<ArcShard<T>> {
        self.shards[thread_number() % SHARDS].clone()
    }

    /// The one `Arc` behind the shards, for references that are held for long and for weak ones.
    pub(crate) fn inner(&self) -> &Arc<T> {
        &self.inner
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for ArcShard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Threads whose numbers are equal modulo this share a count.
const SHARDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_that_run_at_once_count_in_different_cache_lines() {
        let value = ShardedArc::new(5);
        let here = value.shard();
        let there = std::thread::scope(|scope| scope.spawn(|| value.shard()).join()).expect("it does not panic");
        assert_eq!((**here, **there), (5, 5));
        assert_eq!((Arc::strong_count(&here), Arc::strong_count(&there)), (2, 2));
        assert!(Arc::as_ptr(&here).addr().abs_diff(Arc::as_ptr(&there).addr()) >= 256);
    }

    #[test]
    fn a_shard_keeps_the_value_alive_and_the_last_one_drops_it() {
        let value = ShardedArc::new(5);
        let (shard, weak) = (value.shard(), Arc::downgrade(value.inner()));
        drop(value);
        assert_eq!(weak.upgrade().as_deref(), Some(&5));
        drop(shard);
        assert_eq!(weak.upgrade(), None);
    }
}
