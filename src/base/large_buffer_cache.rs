//! [`LargeBufferCache`]: what a thread has put aside of arrays that are too large for [`RecycledVec`](super::Kept)'s own places.
//!
//! The arrays of a large object are some hundred KiB each. The allocator would give them back to the kernel when the link
//! ends, and the next would take a page fault for every page of them: a third of the time of a link of SQLite. So a thread
//! keeps some, of whatever kinds, but no more than [`MOST`] bytes together, since nobody knows whether it links again. They
//! go when it [lets go](let_go) of them, or ends.

use std::any::Any;
use std::cell::RefCell;

use crate::sync::plain_thread_local;

/// Rooms of a thread, the oldest first.
struct LargeBufferCache {
    rooms: Vec<CachedBuffer>,
    /// Of all of them.
    bytes: usize,
}

/// An empty vector of some kind.
struct CachedBuffer {
    room: Box<dyn Any>,
    bytes: usize,
}

plain_thread_local! {
    static ASIDE: RefCell<LargeBufferCache> = const { RefCell::new(LargeBufferCache { rooms: Vec::new(), bytes: 0 }) };
}

/// An empty vector with room for so many, if this thread has put one aside.
pub(super) fn take<T: 'static>(capacity: usize) -> Option<Vec<T>> {
    ASIDE.try_with(|aside| aside.borrow_mut().take(capacity)).ok().flatten()
}

/// Puts an empty vector aside, ahead of older ones if there is not room for all.
pub(super) fn put<T: 'static>(room: Vec<T>) {
    debug_assert!(room.is_empty(), "what is dropped here may want to be put aside itself");
    // A thread that is ending puts nothing aside.
    let _ = ASIDE.try_with(|aside| aside.borrow_mut().put(room));
}

/// Frees what this thread has put aside.
pub(crate) fn clear_thread_cache() {
    let _ = ASIDE.try_with(|aside| aside.borrow_mut().make_room(MOST));
}

impl LargeBufferCache {
    fn take<T: 'static>(&mut self, capacity: usize) -> Option<Vec<T>> {
        let fits =
            |room: &CachedBuffer| room.room.downcast_ref::<Vec<T>>().is_some_and(|room| room.capacity() >= capacity);
        let found = self.rooms.iter().rposition(fits)?;
        let CachedBuffer { room, bytes } = self.rooms.remove(found);
        self.bytes -= bytes;
        room.downcast().ok().map(|room| *room)
    }

    fn put<T: 'static>(&mut self, room: Vec<T>) {
        let bytes = room.capacity() * size_of::<T>();
        if bytes <= MOST {
            self.make_room(bytes);
            self.rooms.push(CachedBuffer { room: Box::new(room), bytes });
            self.bytes += bytes;
        }
    }

    /// Frees the oldest, until there may be so many bytes more.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes > MOST - bytes {
            self.bytes -= self.rooms.remove(0).bytes;
        }
    }
}

/// Bytes that a thread puts aside, at most: enough for the arrays of an object with 30,000 relocations.
const MOST: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn held() -> usize {
        ASIDE.with(|aside| {
            let aside = aside.borrow();
            assert_eq!(aside.rooms.iter().map(|room| room.bytes).sum::<usize>(), aside.bytes);
            aside.bytes
        })
    }

    #[test]
    fn a_room_is_taken_by_who_needs_no_more_of_the_same_kind() {
        put::<u32>(Vec::with_capacity(100 * KIB));
        assert!(take::<u64>(1).is_none() && take::<u32>(100 * KIB + 1).is_none());
        assert_eq!(take::<u32>(90 * KIB).map(|room| room.capacity()), Some(100 * KIB));
        assert_eq!((take::<u32>(1), held()), (None, 0));
    }

    #[test]
    fn a_thread_puts_no_more_aside_than_its_share_and_the_newest_stay() {
        for size in 1..=100 {
            put::<u8>(Vec::with_capacity(size * 32 * KIB));
            put::<u16>(Vec::with_capacity(size * 16 * KIB));
            assert!(held() <= MOST);
        }
        assert!(take::<u16>(1000 * KIB).is_some(), "the last that was not too large");
        put::<u8>(Vec::with_capacity(MOST));
        assert_eq!(held(), MOST);
        put::<u8>(Vec::with_capacity(MOST + 1));
        assert!(take::<u8>(MOST + 1).is_none() && held() == MOST, "too large for any place");
        clear_thread_cache();
        assert_eq!((held(), take::<u8>(0)), (0, None));
    }
}
