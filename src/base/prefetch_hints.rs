//! [`PrefetchHints`]: where that stands which the removal of something comes to last.
//!
//! Noted when it is put there, and asked for when the removal begins: otherwise its place would be known only once the books
//! have come from memory that say so, and those only once whatever leads to them has. They are hints: what has moved or gone
//! meanwhile is asked for in vain.

use crate::prefetch::prefetch_at;
use crate::sync::{HintUsize, Ordering};

#[derive(Default)]
pub(crate) struct PrefetchHints {
    /// In the books of who owns it.
    record: HintUsize,
    memory: HintUsize,
}

impl PrefetchHints {
    #[inline]
    pub(crate) fn note_record<T>(&self, record: &T) {
        self.record.store(address(record), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn note_memory<T: ?Sized>(&self, memory: &T) {
        self.memory.store(address(memory), Ordering::Relaxed);
    }

    /// Asks for all of it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for place in [&self.record, &self.memory].map(|place| place.load(Ordering::Relaxed)) {
            if place != 0 {
                prefetch_at(place, MOST);
            }
        }
    }
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Bytes of each that are asked for.
const MOST: usize = 96;
