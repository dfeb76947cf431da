//! [`RecycledVec`]: a vector whose buffer returns to a thread-local free list when the vector is dropped.
//!
//! A link makes some twenty arrays and drops all of them when it ends. In a small link, the calls of the allocator for
//! these arrays would be a large part of the work. So each thread has a [`FreeList`] per element type.
//!
//! | buffer | where a drop puts it | where a new vector gets it |
//! |---|---|---|
//! | no capacity | nowhere | – |
//! | up to [`MAX_BYTES`] | the free list, which holds [`MAX_BUFFERS`]; a full list frees it | the newest of the free list, grown if too small |
//! | larger | the cache of large buffers (`large_buffer_cache.rs`) | the same cache, by capacity |
//!
//! A vector may be dropped on another thread: its buffer then goes to the free list of that thread. The end of a thread frees
//! its lists.

use std::cell::Cell;
use std::mem;
use std::ops::{Deref, DerefMut};

use crate::base::large_buffer_cache;
use crate::sync::LocalKey;

/// An element type that has a free list per thread. [`impl_recycle!`] implements it.
pub(crate) trait Recycle: Sized + 'static {
    /// The free list of this thread.
    fn free_list() -> &'static LocalKey<FreeList<Self>>;
}

/// The empty vectors of one element type that a thread keeps for later.
pub(crate) struct FreeList<T> {
    /// The first `count` vectors have a buffer. The others have none.
    buffers: [Cell<Vec<T>>; MAX_BUFFERS],
    count: Cell<usize>,
}

impl<T> FreeList<T> {
    pub(crate) const fn new() -> FreeList<T> {
        FreeList { buffers: [const { Cell::new(Vec::new()) }; MAX_BUFFERS], count: Cell::new(0) }
    }

    #[inline]
    fn pop(&self) -> Option<Vec<T>> {
        let last = self.count.get().checked_sub(1)?;
        let buffer = self.buffers.get(last)?.take();
        self.count.set(last);
        Some(buffer)
    }

    #[inline]
    fn push(&self, buffer: Vec<T>) {
        match self.buffers.get(self.count.get()) {
            Some(place) => {
                self.count.set(self.count.get() + 1);
                // The replaced vector has no buffer, so `forget` leaks nothing and saves the test that a drop makes.
                mem::forget(place.replace(buffer));
            }
            None => free_cold(buffer),
        }
    }
}

#[cold]
#[inline(never)]
fn free_cold<T>(buffer: Vec<T>) {
    drop(buffer);
}

#[cold]
#[inline(never)]
fn cache_large<T: 'static>(mut buffer: Vec<T>) {
    buffer.clear();
    large_buffer_cache::insert(buffer);
}

/// Implements [`Recycle`] for element types: `impl_recycle!(A, B)`.
macro_rules! impl_recycle {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::base::Recycle for $kind {
            fn free_list() -> &'static $crate::sync::LocalKey<$crate::base::FreeList<Self>> {
                $crate::sync::plain_thread_local! {
                    static FREE_LIST: $crate::base::FreeList<$kind> = const { $crate::base::FreeList::new() };
                }
                &FREE_LIST
            }
        }
    )+};
}
pub(crate) use impl_recycle;

/// A `Vec<T>` whose buffer comes from and returns to the free list of the thread.
pub(crate) struct RecycledVec<T: Recycle>(Vec<T>);

impl<T: Recycle> RecycledVec<T> {
    /// Makes an empty vector with the newest buffer of the free list, whatever its capacity.
    pub(crate) fn new() -> RecycledVec<T> {
        // A thread that is ending has no free list.
        RecycledVec(T::free_list().try_with(FreeList::pop).ok().flatten().unwrap_or_default())
    }

    pub(crate) fn with_capacity(capacity: usize) -> RecycledVec<T> {
        if capacity.saturating_mul(size_of::<T>()) > MAX_BYTES {
            return RecycledVec::large(capacity);
        }
        let mut vec = RecycledVec::new();
        vec.0.reserve(capacity);
        vec
    }

    #[cold]
    #[inline(never)]
    fn large(capacity: usize) -> RecycledVec<T> {
        RecycledVec(large_buffer_cache::remove(capacity).unwrap_or_else(|| Vec::with_capacity(capacity)))
    }

    /// Returns the plain vector, for an API that needs one. [`From`] makes it a recycled vector again.
    pub(crate) fn into_vec(mut self) -> Vec<T> {
        mem::take(&mut self.0)
    }

    /// Gives an empty vector capacity for `count` elements. Where its buffer is too small, another one replaces it.
    pub(crate) fn ensure_capacity(&mut self, count: usize) {
        debug_assert!(self.0.is_empty(), "ensure_capacity was called on a vector with elements, and would drop them");
        if self.0.capacity() < count {
            *self = RecycledVec::with_capacity(count);
        }
    }

    /// Clears the vector. It keeps its buffer up to [`MAX_BYTES`]; a larger one goes to the cache of large buffers.
    pub(crate) fn reset(&mut self) {
        if self.0.capacity() * size_of::<T>() > MAX_BYTES {
            return drop(mem::take(self));
        }
        self.0.clear();
    }

    /// Appends `count` copies of one value. `template` consists of copies of that value: copying a slice at a time is faster
    /// than writing single elements.
    pub(crate) fn extend_repeated(&mut self, count: usize, template: &[T])
    where
        T: Copy,
    {
        let mut remaining = count;
        while remaining > 0 {
            let next = &template[..remaining.min(template.len())];
            self.0.extend_from_slice(next);
            remaining -= next.len();
        }
    }

    /// Makes a vector of `count` clones of `value`.
    pub(crate) fn repeat(value: T, count: usize) -> RecycledVec<T>
    where
        T: Clone,
    {
        let mut vec = RecycledVec::with_capacity(count);
        vec.0.resize(count, value);
        vec
    }
}

impl<T: Recycle> Drop for RecycledVec<T> {
    fn drop(&mut self) {
        let mut buffer = mem::take(&mut self.0);
        let bytes = buffer.capacity() * size_of::<T>();
        if bytes == 0 {
            return;
        }
        if bytes > MAX_BYTES {
            return cache_large(buffer);
        }
        // Drop the elements before the free list is used: an element may contain a `RecycledVec` itself.
        buffer.clear();
        let _ = T::free_list().try_with(|free_list| free_list.push(buffer));
    }
}

impl<T: Recycle> From<Vec<T>> for RecycledVec<T> {
    fn from(items: Vec<T>) -> RecycledVec<T> {
        RecycledVec(items)
    }
}

impl<T: Recycle> FromIterator<T> for RecycledVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> RecycledVec<T> {
        let mut vec = RecycledVec::new();
        vec.0.extend(items);
        vec
    }
}

impl<T: Recycle> Default for RecycledVec<T> {
    /// Makes an empty vector without a buffer. Does not use the free list.
    fn default() -> RecycledVec<T> {
        RecycledVec(Vec::new())
    }
}

impl<T: Recycle> AsRef<[T]> for RecycledVec<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Recycle> Deref for RecycledVec<T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Recycle> DerefMut for RecycledVec<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<'a, T: Recycle> IntoIterator for &'a RecycledVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Recycle + std::fmt::Debug> std::fmt::Debug for RecycledVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The largest buffer that a free list accepts.
const MAX_BYTES: usize = 128 << 10;
/// The number of buffers in a free list, at most.
const MAX_BUFFERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(#[allow(dead_code)] u64);
    impl_recycle!(Item);

    #[test]
    fn a_buffer_is_used_again_and_the_free_list_keeps_a_few() {
        let first: RecycledVec<Item> = RecycledVec::with_capacity(100);
        let buffer = first.as_ptr();
        drop(first);
        let again: RecycledVec<Item> = (0..100).map(Item).collect();
        assert_eq!(again.as_ptr(), buffer);
        drop(again);
        let vecs: Vec<RecycledVec<Item>> = (0..MAX_BUFFERS + 3).map(|_| RecycledVec::with_capacity(10)).collect();
        assert_eq!(vecs.iter().filter(|vec| vec.as_ptr() == buffer).count(), 1);
        assert!(vecs.iter().all(|vec| vec.is_empty() && vec.capacity() * size_of::<Item>() <= MAX_BYTES));
        drop(vecs);
        assert_eq!(Item::free_list().with(|free_list| free_list.count.get()), MAX_BUFFERS);
    }

    #[test]
    fn a_large_buffer_is_used_again_only_for_a_large_vector() {
        let count = MAX_BYTES / size_of::<Item>() + 1;
        let mut first: RecycledVec<Item> = RecycledVec::with_capacity(count);
        first.push(Item(1));
        let buffer = first.as_ptr();
        drop(first);
        assert_ne!(RecycledVec::<Item>::with_capacity(10).as_ptr(), buffer);
        let again: RecycledVec<Item> = RecycledVec::with_capacity(count);
        assert_eq!((again.as_ptr(), again.len()), (buffer, 0));
    }
}
