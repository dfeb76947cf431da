//! [`Word`]: an atomic word of linked data, with a handle that keeps its memory mapped.
//!
//! The linker changes such a word while linked code reads it. An example is the target address of a stub.

use std::ptr::NonNull;

use crate::memory::allocation::Finalized;
use crate::sync::{Arc, MappedU64, Ordering};

/// A word in the data segment of an allocation. It is found once and then accessed without a search.
pub(crate) struct Word {
    word: NonNull<MappedU64>,
    /// The allocation that contains `word`.
    memory: Arc<dyn Finalized>,
    /// Whether the memory is told of each store.
    is_copied: bool,
}

// SAFETY: M3 - the word is an atomic, so several threads may access it. M4, M8 - `memory` is `Send + Sync` and keeps the
// word mapped, whichever thread drops it.
unsafe impl Send for Word {}
// SAFETY: M3, M4, M8 - as for `Send`. Every method accesses the word atomically.
unsafe impl Sync for Word {}

impl Word {
    /// The word at `offset` of the data segment, or `None` if [`Finalized::word`] returns none.
    pub(crate) fn new(memory: &Arc<dyn Finalized>, offset: u64) -> Option<Word> {
        let word = NonNull::from(memory.word(offset)?);
        Some(Word { word, memory: memory.clone(), is_copied: memory.is_copied() })
    }

    /// Stores `value`. A thread that reads it sees everything that this thread did before.
    #[inline]
    pub(crate) fn store(&self, value: u64) {
        // SAFETY: M4, M8 - `memory` keeps the word mapped, and its address does not change.
        // Release pairs with the load in machine code, which acquires (`Arch::write_redirectable_stub`): a thread that reads the new
        // address sees the code there, and the data that this thread and its initialisers have written.
        unsafe { self.word.as_ref() }.store(value, Ordering::Release);
        self.stored();
    }

    /// Loads the value. This thread then sees everything that the storing thread did before the store. Pairs with
    /// [`store`](Self::store), `replace` and `swap`.
    pub(crate) fn load(&self) -> u64 {
        // SAFETY: M4, M8 - `memory` keeps the word mapped at this address.
        unsafe { self.word.as_ref() }.load(Ordering::Acquire)
    }

    /// Stores `value` if the word holds `expected`, as [`store`](Self::store) does. Returns whether it stored.
    pub(crate) fn replace(&self, expected: u64, value: u64) -> bool {
        // SAFETY: M4, M8 - `memory` keeps the word mapped at this address.
        let word = unsafe { self.word.as_ref() };
        // Release pairs with the load in machine code. Relaxed if it fails: the caller does nothing with the value.
        let is_stored = word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_stored {
            self.stored();
        }
        is_stored
    }

    /// Stores `value`, as [`store`](Self::store) does, and returns the old value, as [`load`](Self::load) does. Pairs with both.
    pub(crate) fn swap(&self, value: u64) -> u64 {
        // SAFETY: M4, M8 - `memory` keeps the word mapped at this address.
        let before = unsafe { self.word.as_ref() }.swap(value, Ordering::AcqRel);
        self.stored();
        before
    }

    #[inline]
    fn stored(&self) {
        if !self.is_copied {
            return;
        }
        // SAFETY: M4, M8 - `memory` keeps the word mapped at this address.
        self.memory.word_stored(unsafe { self.word.as_ref() });
    }
}
