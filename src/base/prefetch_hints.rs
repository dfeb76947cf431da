//! [`PrefetchHints`]: addresses that a removal will touch, so that it can prefetch them.
//!
//! The owner of a record stores the addresses when it makes the record. A removal prefetches them when it begins. Without the
//! hints, the removal would learn each address only from a load that misses the cache itself.
//!
//! The addresses are hints and nothing more: a prefetch of memory that was moved or freed has no effect. Each tracker has hints, so
//! they are small: of each address, the number of its cache line is stored, in 42 bits.

use crate::prefetch::{LINE, prefetch_at};
use crate::sync::{HintUsize, Ordering};

/// Three line numbers, zero where unknown.
///
/// ```text
///   bits       63 ............ 42   41 .......... 0
///   words[0]   low 22 bits of       record
///   words[1]   high 20 bits of      memory
///              the free space
/// ```
#[derive(Default)]
pub(crate) struct PrefetchHints {
    words: [HintUsize; 2],
}

impl PrefetchHints {
    /// Stores the address of the record in the ledger of the owner.
    #[inline]
    pub(crate) fn set_record<T>(&self, record: &T) {
        self.set(0, LINE_BITS, line(address(record)));
    }

    /// Stores the address of the record's memory.
    #[inline]
    pub(crate) fn set_memory<T: ?Sized>(&self, memory: &T) {
        self.set(1, LINE_BITS, line(address(memory)));
    }

    /// Stores the address of the record that frees this memory.
    #[inline]
    pub(crate) fn set_free_space(&self, address: usize) {
        let line = line(address);
        self.set(0, !LINE_BITS, line << LINE_WIDTH);
        self.set(1, !LINE_BITS, line >> LOW_WIDTH << LINE_WIDTH);
    }

    /// Replaces the bits of `mask` in a word. A thread that does so at the same time may win: these are hints.
    #[inline]
    fn set(&self, word: usize, mask: usize, bits: usize) {
        let others = self.words[word].load(Ordering::Relaxed) & !mask;
        self.words[word].store(others | bits, Ordering::Relaxed);
    }

    /// The lines of the record, the memory, and the record of the free space.
    #[inline]
    fn lines(&self) -> [usize; 3] {
        let [low, high] = [0, 1].map(|word| self.words[word].load(Ordering::Relaxed));
        let free_space = low >> LINE_WIDTH | high >> LINE_WIDTH << LOW_WIDTH;
        [low & LINE_BITS, high & LINE_BITS, free_space]
    }

    /// Prefetches the first bytes at each address.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for (line, size) in self.lines().into_iter().zip([2 * LINE, 3 * LINE, 2 * LINE]) {
            if line != 0 {
                prefetch_at(line * LINE, size);
            }
        }
    }
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

fn line(address: usize) -> usize {
    address / LINE & LINE_BITS
}

/// Bits of a line number. Addresses have 48 bits.
const LINE_WIDTH: u32 = 42;
const LINE_BITS: usize = (1 << LINE_WIDTH) - 1;
/// How many bits of the third number are in the first word.
const LOW_WIDTH: u32 = usize::BITS - LINE_WIDTH;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_keeps_its_line_whatever_the_others_are() {
        let lines = |address: usize| address / LINE;
        let highest = (1 << 48) - LINE;
        for address in [LINE, 0x5555_5555_5540, 0x7fff_dead_bec0, highest] {
            let hints = PrefetchHints::default();
            assert_eq!(hints.lines(), [0; 3]);
            hints.set_free_space(address);
            assert_eq!(hints.lines(), [0, 0, lines(address)]);
            let value = 0_u64;
            hints.set_record(&value);
            hints.set_memory(&address);
            assert_eq!(hints.lines(), [lines(self::address(&value)), lines(self::address(&address)), lines(address)]);
            hints.set_free_space(highest ^ address);
            assert_eq!(hints.lines()[2], lines(highest ^ address));
        }
    }
}
