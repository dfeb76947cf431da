//! [`PrefetchHints`]: addresses that a removal will touch, so that it can prefetch them.
//!
//! The owner of a record stores the addresses when it makes the record. A removal prefetches them when it begins. Without the
//! hints, the removal would learn each address only from a load that misses the cache itself.
//!
//! The addresses are hints and nothing more: a prefetch of memory that was moved or freed has no effect.

use crate::prefetch::prefetch_at;
use crate::sync::{HintUsize, Ordering};

#[derive(Default)]
pub(crate) struct PrefetchHints {
    /// The address of the record in the ledger of the owner; 0 when unknown.
    record: HintUsize,
    /// The address of the record's memory; 0 when unknown.
    memory: HintUsize,
}

impl PrefetchHints {
    #[inline]
    pub(crate) fn set_record<T>(&self, record: &T) {
        self.record.store(address(record), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_memory<T: ?Sized>(&self, memory: &T) {
        self.memory.store(address(memory), Ordering::Relaxed);
    }

    /// Prefetches the first bytes at both addresses.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for address in [&self.record, &self.memory].map(|hint| hint.load(Ordering::Relaxed)) {
            if address != 0 {
                prefetch_at(address, PREFETCHED_BYTES);
            }
        }
    }
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

/// How much is prefetched at each address.
const PREFETCHED_BYTES: usize = 96;
