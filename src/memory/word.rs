//! [`Word`]: a word that running code reads, with the memory that it stands in.

use std::ptr::NonNull;

use crate::memory::manager::Finalized;
use crate::sync::{Arc, MappedU64, Ordering};

/// A word of an allocation's data segment, found once and written often.
pub(crate) struct Word {
    word: NonNull<MappedU64>,
    /// What lends `word`.
    _memory: Arc<dyn Finalized>,
}

// SAFETY: M4 - a shared atomic, and memory that may be held by any thread.
unsafe impl Send for Word {}
// SAFETY: M4 - as above.
unsafe impl Sync for Word {}

impl Word {
    /// The word at `offset`, if [`Finalized::word`] knows one.
    pub(crate) fn new(memory: &Arc<dyn Finalized>, offset: u64) -> Option<Word> {
        let word = NonNull::from(memory.word(offset)?);
        Some(Word { word, _memory: memory.clone() })
    }

    /// Whoever reads `value` from now on sees what the calling thread did before.
    #[inline]
    pub(crate) fn store(&self, value: u64) {
        // SAFETY: M4 - lent by what `_memory` holds, shared and for as long as that is held.
        // Release pairs with the load in machine code: whoever sees the new address sees the code behind it.
        unsafe { self.word.as_ref() }.store(value, Ordering::Release);
    }

    /// What stands there; the calling thread sees what was done before that was stored.
    pub(crate) fn load(&self) -> u64 {
        // SAFETY: M4 - as above.
        unsafe { self.word.as_ref() }.load(Ordering::Acquire)
    }

    /// As [`store`](Self::store), if `expected` stands there. Whether that was so.
    pub(crate) fn replace(&self, expected: u64, value: u64) -> bool {
        // SAFETY: M4 - as above.
        let word = unsafe { self.word.as_ref() };
        word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// As [`store`](Self::store), and the value that stood there; the calling thread sees what was done before that was stored.
    pub(crate) fn swap(&self, value: u64) -> u64 {
        // SAFETY: M4 - as above.
        unsafe { self.word.as_ref() }.swap(value, Ordering::AcqRel)
    }
}
