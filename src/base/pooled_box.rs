//! [`PooledBox`]: what serves the next of its kind on the same thread as a whole, with the room of all of its arrays.
//!
//! A link is some ten arrays, and what is known of them. To take the room of each by itself, and to put it aside again as
//! [`RecycledVec`](super::Kept) does, costs a small link more than to go over its symbols; so does moving all that from where it is
//! made to where it stays. So it is emptied and put aside in one piece, and made anew where it stands. A thread has one of a
//! kind aside: who needs a second meanwhile gets a new one. It goes when its thread ends.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use crate::sync::LocalKey;

/// What is put aside as a whole.
pub(crate) trait Pooled: Default + 'static {
    /// This thread's.
    fn aside() -> &'static LocalKey<Cell<Option<Box<Self>>>>;

    /// Lets go of everything but room.
    fn empty(&mut self);
}

/// A box, in all but where its room comes from and goes to.
pub(crate) struct PooledBox<T: Pooled>(Option<Box<T>>);

impl<T: Pooled> PooledBox<T> {
    /// One that is empty.
    pub(crate) fn take() -> PooledBox<T> {
        // A thread that is ending has none.
        PooledBox(Some(T::aside().try_with(Cell::take).ok().flatten().unwrap_or_default()))
    }
}

impl<T: Pooled> Drop for PooledBox<T> {
    fn drop(&mut self) {
        let Some(mut content) = self.0.take() else { return };
        content.empty();
        let _ = T::aside().try_with(|aside| aside.replace(Some(content)));
    }
}

impl<T: Pooled> Deref for PooledBox<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        let Some(content) = &self.0 else { unreachable!("it is there until it is dropped") };
        content
    }
}

impl<T: Pooled> DerefMut for PooledBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let Some(content) = &mut self.0 else { unreachable!("it is there until it is dropped") };
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
        fn aside() -> &'static LocalKey<Cell<Option<Box<Item>>>> {
            plain_thread_local! { static ASIDE: Cell<Option<Box<Item>>> = const { Cell::new(None) }; }
            &ASIDE
        }

        fn empty(&mut self) {
            self.numbers.clear();
        }
    }

    #[test]
    fn the_next_has_the_room_of_the_last_and_nothing_of_what_was_in_it() {
        let mut first = PooledBox::<Item>::take();
        first.numbers.extend(0..100);
        let place = first.numbers.as_ptr();
        let second = PooledBox::<Item>::take();
        assert_ne!(second.numbers.as_ptr(), place, "it is not done with");
        drop((second, first));
        let again = PooledBox::<Item>::take();
        assert_eq!((again.numbers.as_ptr(), again.numbers.len()), (place, 0));
    }
}
