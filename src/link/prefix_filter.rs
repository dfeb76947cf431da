//! [`PrefixFilter`]: whether a graph may name one of a few symbols, answered without a look at the names.
//!
//! A link asks for many special names (`_end`, `__start_X`, `atexit`, …) that few objects use. The filter answers most of these
//! questions with one bit.

/// A Bloom filter of 256 bits over the first four bytes of names. It may report a name that is not in the set; it never
/// misses one that is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PrefixFilter([u64; 4]);

impl PrefixFilter {
    /// Adds a name.
    pub(crate) fn insert(&mut self, name: &[u8]) {
        let bit = PrefixFilter::bit(name);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    /// Whether the set may contain the name.
    #[inline]
    pub(crate) fn may_contain(&self, name: &[u8]) -> bool {
        let bit = PrefixFilter::bit(name);
        self.0[bit / 64] & 1 << (bit % 64) != 0
    }

    /// The filter of several names.
    pub(crate) const fn from_names(names: &[&str]) -> PrefixFilter {
        let (mut words, mut number) = ([0; 4], 0);
        while number < names.len() {
            let bit = PrefixFilter::bit(names[number].as_bytes());
            words[bit / 64] |= 1 << (bit % 64);
            number += 1;
        }
        PrefixFilter(words)
    }

    /// Whether the two sets may have a name in common.
    #[inline]
    pub(crate) fn may_intersect(&self, other: &PrefixFilter) -> bool {
        self.0.iter().zip(&other.0).fold(0, |both, (own, others)| both | own & others) != 0
    }

    #[inline]
    const fn bit(name: &[u8]) -> usize {
        let first = match *name {
            [a, b, c, d, ..] => [a, b, c, d],
            [a, b, c] => [a, b, c, 0],
            [a, b] => [a, b, 0, 0],
            [a] => [a, 0, 0, 0],
            [] => [0; 4],
        };
        // Knuth's multiplicative hash: the upper eight bits depend on all input bits.
        (u32::from_le_bytes(first).wrapping_mul(0x9e37_79b1) >> 24) as usize
    }
}
