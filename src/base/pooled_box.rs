//! [`PooledBox`]: a box from a thread-local object pool of one element. The object keeps the buffers of all of its arrays.
//!
//! A link has some ten arrays and a few other values. In a small link, a [`RecycledVec`](super::RecycledVec) per array
//! would cost more than the work on the symbols, and so would a move of the arrays to their final place. So the entire
//! object goes through the pool in one box, and the next link fills it in place.
//!
//! 1. [`PooledBox::acquire`] takes the pooled object of this thread, or makes a new one where the pool is empty.
//! 2. The drop calls [`Pooled::reset`] and stores the object in the pool. It replaces an object that is there already.
//! 3. The end of the thread drops the pooled object.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::sync::LocalKey;

/// A type whose objects a thread uses again.
pub(crate) trait Pooled: Default + 'static {
    /// The pool of this thread: one object at most.
    fn slot() -> &'static LocalKey<Cell<Option<Box<Self>>>>;

    /// Clears the object, but keeps its buffers.
    fn reset(&mut self);
}

/// An owned `T` that returns to the pool of the thread that drops it.
pub(crate) struct PooledBox<T: Pooled>(Option<Box<T>>);

impl<T: Pooled> PooledBox<T> {
    /// Returns a cleared object.
    pub(crate) fn acquire() -> PooledBox<T> {
        // A thread that is ending has no pool.
        PooledBox(Some(T::slot().try_with(Cell::take).ok().flatten().unwrap_or_default()))
    }
}

impl<T: Pooled> Drop for PooledBox<T> {
    fn drop(&mut self) {
        let Some(mut content) = self.0.take() else { return };
        content.reset();
        let _ = T::slot().try_with(|slot| slot.replace(Some(content)));
    }
}

impl<T: Pooled> Deref for PooledBox<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        let Some(content) = &self.0 else { unreachable!("a pooled box has its object until it is dropped") };
        content
    }
}

impl<T: Pooled> DerefMut for PooledBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let Some(content) = &mut self.0 else { unreachable!("a pooled box has its object until it is dropped") };
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::plain_thread_local;

    #[derive(Default)]
    struct Item {
        numbers: Vec<u32>,
    }

    impl Pooled for Item {
        fn slot() -> &'static LocalKey<Cell<Option<Box<Item>>>> {
            plain_thread_local! { static SLOT: Cell<Option<Box<Item>>> = const { Cell::new(None) }; }
            &SLOT
        }

        fn reset(&mut self) {
            self.numbers.clear();
        }
    }

    #[test]
    fn an_acquired_object_is_empty_and_has_the_buffers_of_the_dropped_one() {
        let mut first = PooledBox::<Item>::acquire();
        first.numbers.extend(0..100);
        let buffer = first.numbers.as_ptr();
        let second = PooledBox::<Item>::acquire();
        assert_ne!(second.numbers.as_ptr(), buffer, "the first object is still in use");
        drop((second, first));
        let again = PooledBox::<Item>::acquire();
        assert_eq!((again.numbers.as_ptr(), again.numbers.len()), (buffer, 0));
    }
}
