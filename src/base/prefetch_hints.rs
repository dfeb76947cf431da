//! [`PrefetchHints`]: addresses that a removal will touch, so that it can prefetch them.
//!
//! The owner of a record stores the addresses when it makes the record. A removal prefetches them when it begins. Without the
//! hints, the removal would learn each address only from a load that misses the cache itself.
//!
//! The addresses are hints and nothing more: a prefetch of memory that was moved or freed has no effect. Each tracker has hints, so
//! they are small: the distance of each address from the hints, in cache lines. What is allocated together is mostly near. For an
//! address that is 64 MiB away or more there is no hint.

use crate::prefetch::{LINE, prefetch_at};
use crate::sync::{HintUsize, Ordering};

/// Three distances of 21 bits: of the record, the memory and the free space. A distance of zero says that it is unknown.
#[derive(Default)]
pub(crate) struct PrefetchHints {
    distances: HintUsize,
}

impl PrefetchHints {
    /// Stores the address of the record in the ledger of the owner.
    #[inline]
    pub(crate) fn set_record<T>(&self, record: &T) {
        self.set(0, address(record));
    }

    /// Stores the address of the record's memory.
    #[inline]
    pub(crate) fn set_memory<T: ?Sized>(&self, memory: &T) {
        self.set(1, address(memory));
    }

    /// Stores the address of the record that frees this memory.
    #[inline]
    pub(crate) fn set_free_space(&self, address: usize) {
        self.set(2, address);
    }

    /// Prefetches the first bytes at each address.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for (line, size) in self.lines().into_iter().zip([2 * LINE, 3 * LINE, 2 * LINE]) {
            if line != self.line() {
                prefetch_at(line.wrapping_mul(LINE), size);
            }
        }
    }

    /// The lines of the three addresses. That of the hints, if one is unknown.
    #[inline]
    fn lines(&self) -> [usize; 3] {
        let distances = self.distances.load(Ordering::Relaxed);
        [0, 1, 2].map(|number| self.line().wrapping_add_signed(distance(distances, number)))
    }

    /// Another thread that stores an address at the same time may win.
    #[inline]
    fn set(&self, number: u32, address: usize) {
        let distance = (address / LINE).wrapping_sub(self.line());
        let shift = number * WIDTH;
        let others = self.distances.load(Ordering::Relaxed) & !(MASK << shift);
        let is_near = distance.wrapping_add(1 << (WIDTH - 1)) <= MASK;
        let own = if is_near { (distance & MASK) << shift } else { 0 };
        self.distances.store(others | own, Ordering::Relaxed);
    }

    #[inline]
    fn line(&self) -> usize {
        address(self) / LINE
    }
}

/// The signed distance with this number.
#[inline]
fn distance(distances: usize, number: u32) -> isize {
    let unused = usize::BITS - WIDTH;
    (distances << (unused - number * WIDTH)) as isize >> unused
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Bits of a distance.
const WIDTH: u32 = 21;
const MASK: usize = (1 << WIDTH) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_keeps_its_line_whatever_the_others_are() {
        const FARTHEST: isize = 1 << (WIDTH - 1);
        let hints = PrefetchHints::default();
        let own = hints.line();
        assert_eq!(hints.lines(), [own; 3]);
        let near = [1, -1, FARTHEST - 1, -FARTHEST];
        for (number, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
            for distance in near {
                let line = own.wrapping_add_signed(distance);
                let before = hints.lines();
                hints.set(number, line * LINE + LINE - 1);
                assert_eq!(hints.lines()[number as usize], line);
                assert_eq!(others.map(|other| hints.lines()[other]), others.map(|other| before[other]));
            }
        }
        for far in [FARTHEST, -FARTHEST - 1, isize::MAX / 64] {
            hints.set(1, own.wrapping_add_signed(far).wrapping_mul(LINE));
            assert_eq!(hints.lines()[1], own, "{far}");
        }
    }
}
