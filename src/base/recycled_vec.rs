//! [`RecycledVec`]: a vector whose room serves the next one of its kind on the same thread.
//!
//! A link makes some twenty arrays, and gives all of them up when it ends. Asking the allocator for each would cost a small
//! link a quarter of its time. So what is dropped is put aside, up to [`LARGEST`] bytes and [`MOST`] of a kind, and taken
//! again; it goes when its thread ends. Of what is larger, a thread keeps a little, too (`large_buffer_cache.rs`).

use std::cell::Cell;
use std::mem;
use std::ops::{Deref, DerefMut};

use crate::base::large_buffer_cache;
use crate::sync::LocalKey;

/// What arrays are kept of.
pub(crate) trait Recycle: Sized + 'static {
    /// This thread's.
    fn aside() -> &'static LocalKey<FreeList<Self>>;
}

/// What a thread has put aside.
pub(crate) struct FreeList<T> {
    /// From `count` on they are empty.
    rooms: [Cell<Vec<T>>; MOST],
    count: Cell<usize>,
}

impl<T> FreeList<T> {
    pub(crate) const fn new() -> FreeList<T> {
        FreeList { rooms: [const { Cell::new(Vec::new()) }; MOST], count: Cell::new(0) }
    }

    #[inline]
    fn take(&self) -> Option<Vec<T>> {
        let last = self.count.get().checked_sub(1)?;
        let room = self.rooms.get(last)?.take();
        self.count.set(last);
        Some(room)
    }

    #[inline]
    fn put(&self, room: Vec<T>) {
        match self.rooms.get(self.count.get()) {
            Some(place) => {
                self.count.set(self.count.get() + 1);
                // It is empty, and need not be looked at.
                mem::forget(place.replace(room));
            }
            None => free_cold(room),
        }
    }
}

#[cold]
#[inline(never)]
fn free_cold<T>(room: Vec<T>) {
    drop(room);
}

#[cold]
#[inline(never)]
fn put_large<T: 'static>(mut room: Vec<T>) {
    room.clear();
    large_buffer_cache::put(room);
}

/// Lets arrays of a type be kept.
macro_rules! impl_recycle {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::base::Recycle for $kind {
            fn aside() -> &'static $crate::sync::LocalKey<$crate::base::FreeList<Self>> {
                $crate::sync::plain_thread_local! {
                    static ASIDE: $crate::base::FreeList<$kind> = const { $crate::base::FreeList::new() };
                }
                &ASIDE
            }
        }
    )+};
}
pub(crate) use impl_recycle;

/// A vector, in all but where its room comes from and goes to.
pub(crate) struct RecycledVec<T: Recycle>(Vec<T>);

impl<T: Recycle> RecycledVec<T> {
    /// An empty one, with what room there is.
    pub(crate) fn new() -> RecycledVec<T> {
        // A thread that is ending has none.
        RecycledVec(T::aside().try_with(FreeList::take).ok().flatten().unwrap_or_default())
    }

    pub(crate) fn with_capacity(capacity: usize) -> RecycledVec<T> {
        if capacity.saturating_mul(size_of::<T>()) > LARGEST {
            return RecycledVec::large(capacity);
        }
        let mut kept = RecycledVec::new();
        kept.0.reserve(capacity);
        kept
    }

    #[cold]
    fn large(capacity: usize) -> RecycledVec<T> {
        RecycledVec(large_buffer_cache::take(capacity).unwrap_or_else(|| Vec::with_capacity(capacity)))
    }

    /// The vector itself, for who takes nothing else; it comes back as [`From`] makes it one of these.
    pub(crate) fn into_vec(mut self) -> Vec<T> {
        mem::take(&mut self.0)
    }

    /// Room for so many, where nothing is yet.
    pub(crate) fn make_room(&mut self, count: usize) {
        debug_assert!(self.0.is_empty(), "the room that there is goes elsewhere");
        if self.0.capacity() < count {
            *self = RecycledVec::with_capacity(count);
        }
    }

    /// Nothing is left but room, and of that no more than may be put aside here.
    pub(crate) fn empty(&mut self) {
        if self.0.capacity() * size_of::<T>() > LARGEST {
            return drop(mem::take(self));
        }
        self.0.clear();
    }

    /// Adds so many of what is the same all over `some`: to copy many at a time is less than to write each.
    pub(crate) fn push_copies(&mut self, count: usize, some: &[T])
    where
        T: Copy,
    {
        let mut left = count;
        while left > 0 {
            let next = &some[..left.min(some.len())];
            self.0.extend_from_slice(next);
            left -= next.len();
        }
    }

    /// So many times the same.
    pub(crate) fn repeat(value: T, count: usize) -> RecycledVec<T>
    where
        T: Clone,
    {
        let mut kept = RecycledVec::with_capacity(count);
        kept.0.resize(count, value);
        kept
    }
}

impl<T: Recycle> Drop for RecycledVec<T> {
    fn drop(&mut self) {
        let mut room = mem::take(&mut self.0);
        let bytes = room.capacity() * size_of::<T>();
        if bytes == 0 {
            return;
        }
        if bytes > LARGEST {
            return put_large(room);
        }
        // What is dropped here may want to be put aside itself.
        room.clear();
        let _ = T::aside().try_with(|aside| aside.put(room));
    }
}

impl<T: Recycle> From<Vec<T>> for RecycledVec<T> {
    fn from(items: Vec<T>) -> RecycledVec<T> {
        RecycledVec(items)
    }
}

impl<T: Recycle> FromIterator<T> for RecycledVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> RecycledVec<T> {
        let mut kept = RecycledVec::new();
        kept.0.extend(items);
        kept
    }
}

impl<T: Recycle> Default for RecycledVec<T> {
    /// Without any room.
    fn default() -> RecycledVec<T> {
        RecycledVec(Vec::new())
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

/// Bytes of one array that is put aside here, at most.
const LARGEST: usize = 128 << 10;
/// Arrays of one kind that are put aside, at most.
const MOST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(#[allow(dead_code)] u64);
    impl_recycle!(Item);

    #[test]
    fn room_is_used_again_and_many_arrays_are_not_kept() {
        let first: RecycledVec<Item> = RecycledVec::with_capacity(100);
        let place = first.as_ptr();
        drop(first);
        let again: RecycledVec<Item> = (0..100).map(Item).collect();
        assert_eq!(again.as_ptr(), place);
        drop(again);
        let held: Vec<RecycledVec<Item>> = (0..MOST + 3).map(|_| RecycledVec::with_capacity(10)).collect();
        assert_eq!(held.iter().filter(|kept| kept.as_ptr() == place).count(), 1);
        assert!(held.iter().all(|kept| kept.is_empty() && kept.capacity() * size_of::<Item>() <= LARGEST));
        drop(held);
        assert_eq!(Item::aside().with(|aside| aside.count.get()), MOST);
    }

    #[test]
    fn a_large_room_is_used_again_and_is_not_among_the_others() {
        let count = LARGEST / size_of::<Item>() + 1;
        let mut first: RecycledVec<Item> = RecycledVec::with_capacity(count);
        first.push(Item(1));
        let place = first.as_ptr();
        drop(first);
        assert_ne!(RecycledVec::<Item>::with_capacity(10).as_ptr(), place);
        let again: RecycledVec<Item> = RecycledVec::with_capacity(count);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }
}
