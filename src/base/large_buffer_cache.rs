//! [`LargeBufferCache`]: a thread's cache of empty vectors that are too large for the free lists of
//! [`RecycledVec`](super::RecycledVec).
//!
//! The arrays of a large object take some hundred KiB each. The allocator returns such memory to the kernel when the link
//! ends, and then the next link takes a page fault for every page. So a thread keeps some of these vectors, of any element
//! type, up to [`CAPACITY_BYTES`] together. The limit is small because no one knows whether the thread links again.
//!
//! 1. [`insert`] adds an empty vector. It evicts the oldest ones first, until the sum fits. A vector above the limit is freed.
//! 2. [`remove`] removes the newest vector of the same element type that has the capacity.
//! 3. [`clear_thread_cache`] frees all vectors. The end of the thread frees them, too.
//!
//! The cache is compiled once, for vectors of unknown type.

use std::any::{Any, TypeId};
use std::cell::RefCell;

use crate::sync::plain_thread_local;

struct LargeBufferCache {
    /// The oldest first.
    buffers: Vec<CachedBuffer>,
    /// The sum over all buffers.
    bytes: usize,
}

/// An empty vector of some element type.
struct CachedBuffer {
    /// A `Vec<T>`.
    buffer: Box<dyn Any>,
    bytes: usize,
}

plain_thread_local! {
    static CACHE: RefCell<LargeBufferCache> = const { RefCell::new(LargeBufferCache { buffers: Vec::new(), bytes: 0 }) };
}

/// Removes an empty vector with at least `capacity` elements from this thread's cache. `None` when there is none.
pub(super) fn remove<T: 'static>(capacity: usize) -> Option<Vec<T>> {
    let mut found = remove_any(TypeId::of::<Vec<T>>(), capacity.saturating_mul(size_of::<T>()))?;
    found.downcast_mut().map(std::mem::take)
}

/// Adds an empty vector to this thread's cache. Evicts older ones where the limit requires it.
pub(super) fn insert<T: 'static>(buffer: Vec<T>) {
    debug_assert!(buffer.is_empty(), "a cached buffer has elements: dropping them here could enter the cache again");
    let bytes = buffer.capacity() * size_of::<T>();
    insert_any(CachedBuffer { buffer: Box::new(buffer), bytes });
}

fn remove_any(vector: TypeId, bytes: usize) -> Option<Box<dyn Any>> {
    CACHE.try_with(|cache| cache.borrow_mut().remove(vector, bytes)).ok().flatten()
}

fn insert_any(buffer: CachedBuffer) {
    // A thread that is ending has no cache: the buffer is freed.
    let _ = CACHE.try_with(|cache| cache.borrow_mut().insert(buffer));
}

/// Frees all buffers in this thread's cache.
pub(crate) fn clear_thread_cache() {
    let _ = CACHE.try_with(|cache| cache.borrow_mut().evict_for(CAPACITY_BYTES));
}

impl LargeBufferCache {
    fn remove(&mut self, vector: TypeId, bytes: usize) -> Option<Box<dyn Any>> {
        let fits = |cached: &CachedBuffer| (*cached.buffer).type_id() == vector && cached.bytes >= bytes;
        let found = self.buffers.iter().rposition(fits)?;
        let CachedBuffer { buffer, bytes } = self.buffers.remove(found);
        self.bytes -= bytes;
        Some(buffer)
    }

    fn insert(&mut self, buffer: CachedBuffer) {
        if buffer.bytes <= CAPACITY_BYTES {
            self.evict_for(buffer.bytes);
            self.bytes += buffer.bytes;
            self.buffers.push(buffer);
        }
    }

    /// Frees the oldest buffers until `bytes` more fit below the limit.
    fn evict_for(&mut self, bytes: usize) {
        while self.bytes > CAPACITY_BYTES - bytes {
            self.bytes -= self.buffers.remove(0).bytes;
        }
    }
}

/// The limit for one thread. The arrays of an object with 30,000 relocations fit.
const CAPACITY_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn cached_bytes() -> usize {
        CACHE.with(|cache| {
            let cache = cache.borrow();
            assert_eq!(cache.buffers.iter().map(|cached| cached.bytes).sum::<usize>(), cache.bytes);
            cache.bytes
        })
    }

    #[test]
    fn a_buffer_serves_only_its_element_type_and_up_to_its_capacity() {
        insert::<u32>(Vec::with_capacity(100 * KIB));
        assert!(remove::<u64>(1).is_none() && remove::<u32>(100 * KIB + 1).is_none());
        assert_eq!(remove::<u32>(90 * KIB).map(|buffer| buffer.capacity()), Some(100 * KIB));
        assert_eq!((remove::<u32>(1), cached_bytes()), (None, 0));
    }

    #[test]
    fn the_cache_stays_within_its_limit_and_evicts_the_oldest_first() {
        for size in 1..=100 {
            insert::<u8>(Vec::with_capacity(size * 32 * KIB));
            insert::<u16>(Vec::with_capacity(size * 16 * KIB));
            assert!(cached_bytes() <= CAPACITY_BYTES);
        }
        assert!(remove::<u16>(1000 * KIB).is_some(), "the newest buffer that was not too large is cached");
        insert::<u8>(Vec::with_capacity(CAPACITY_BYTES));
        assert_eq!(cached_bytes(), CAPACITY_BYTES);
        insert::<u8>(Vec::with_capacity(CAPACITY_BYTES + 1));
        let is_cached = remove::<u8>(CAPACITY_BYTES + 1).is_some();
        assert!(!is_cached && cached_bytes() == CAPACITY_BYTES, "a buffer above the limit is not cached");
        clear_thread_cache();
        assert_eq!((cached_bytes(), remove::<u8>(0)), (0, None));
    }
}
