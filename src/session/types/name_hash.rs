//! [`NameHash`]: the hash of a symbol name. A lookup computes it once and searches several tables with it.

use std::hash::Hasher;

use rustc_hash::FxHasher;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameHash(u32);

impl NameHash {
    #[inline]
    pub(crate) fn of(name: &str) -> NameHash {
        NameHash::of_bytes(name.as_bytes())
    }

    #[inline]
    pub(crate) fn of_bytes(name: &[u8]) -> NameHash {
        let mut hasher = FxHasher::default();
        hasher.write(name);
        NameHash((hasher.finish() >> 32) as u32)
    }

    /// The 32 bits of the hash.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The hash as 64 bits, for a hash table that uses both the high and the low bits.
    #[inline]
    pub(crate) fn spread(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
