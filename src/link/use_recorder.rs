//! [`UseRecorder`]: what the edges of a graph use each symbol for, and from which blocks.
//!
//! The reader and the methods of `LinkGraph` that add edges record each edge when they make it, while its kind and
//! symbol are at hand. Dead-stripping (`prune.rs`) and the tables (`symbol_uses.rs`) then read one word per symbol and
//! need not walk over all edges.
//!
//! ```text
//!   word of a symbol:   31 … 5                                  4 … 0
//!                       one bit per block with edges to it      bits of `uses`
//!                       ([`ReferrerBit`])
//! ```
//!
//! Most objects have fewer blocks with edges than there are referrer bits. In a larger object the last bit stands for
//! all further blocks, so the bits do not identify blocks ([`UseRecorder::has_distinct_bits`]), and dead-stripping
//! walks over the edges.
//!
//! Bits are never removed. A dropped block's uses stay recorded.

use crate::arch::uses;
use crate::base::RecycledVec;

/// What the edges of a graph use each symbol for.
#[derive(Default)]
pub(crate) struct UseRecorder {
    /// By symbol. Symbols that were added later may have no word yet.
    bits: RecycledVec<u32>,
    /// Number of blocks that have edges.
    referrer_count: usize,
    /// Whether an existing edge was changed without a record.
    is_stale: bool,
}

/// The bit of one block with edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReferrerBit(u8);

impl UseRecorder {
    /// Reserves and clears the words of `count` symbols.
    pub(crate) fn ensure_capacity(&mut self, count: usize) {
        self.bits.ensure_capacity(count);
        self.extend_to(count);
    }

    /// Clears the recorder and keeps its buffer.
    pub(crate) fn reset(&mut self) {
        self.bits.reset();
        (self.referrer_count, self.is_stale) = (0, false);
    }

    /// Assigns a bit to the next block that gets edges.
    pub(crate) fn next_referrer(&mut self) -> ReferrerBit {
        self.referrer_count += 1;
        ReferrerBit((self.referrer_count - 1).min(LAST_REFERRER) as u8)
    }

    /// Extends the words to `count` symbols. New words are zero.
    pub(crate) fn extend_to(&mut self, count: usize) {
        if self.bits.len() < count {
            self.bits.resize(count, 0);
        }
    }

    /// The words by symbol, to record many edges at a time.
    pub(crate) fn bits_mut(&mut self) -> &mut [u32] {
        &mut self.bits
    }

    /// The words by symbol: use bits ([`uses`]) and referrer bits.
    pub(crate) fn bits(&self) -> &[u32] {
        &self.bits
    }

    /// Moves all words to `to`, and keeps the buffer of `to`.
    pub(crate) fn move_bits_to(&mut self, to: &mut RecycledVec<u32>) {
        std::mem::swap(&mut self.bits, to);
        self.bits.clear();
    }

    /// Whether each block with edges has a bit of its own.
    pub(crate) fn has_distinct_bits(&self) -> bool {
        self.referrer_count <= LAST_REFERRER + 1 && !self.is_stale
    }

    /// Whether the words describe exactly the edges of the graph, those of dropped blocks included.
    pub(crate) fn is_exact(&self) -> bool {
        !self.is_stale
    }

    /// Says that existing edges are changed without a record.
    pub(crate) fn mark_stale(&mut self) {
        self.is_stale = true;
    }
}

impl ReferrerBit {
    pub(crate) const FIRST: ReferrerBit = ReferrerBit(0);

    pub(crate) fn bit(self) -> u32 {
        1 << (FIRST_REFERRER_BIT + u32::from(self.0))
    }
}

const FIRST_REFERRER_BIT: u32 = uses::WIDTH;
const LAST_REFERRER: usize = (u32::BITS - FIRST_REFERRER_BIT - 1) as usize;

/// The referrer bits of a word.
pub(crate) const fn referrer_bits(word: u32) -> u32 {
    word >> FIRST_REFERRER_BIT << FIRST_REFERRER_BIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referrers_beyond_the_last_bit_share_it_and_the_bits_are_not_distinct() {
        let mut recorder = UseRecorder::default();
        let bits: Vec<u32> = (0..=LAST_REFERRER).map(|_| recorder.next_referrer().bit()).collect();
        assert!(recorder.has_distinct_bits() && bits.iter().all(|bit| bit.count_ones() == 1 && *bit > uses::STATIC));
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones() as usize, bits.len());
        assert_eq!(recorder.next_referrer().bit(), bits[LAST_REFERRER]);
        assert!(!recorder.has_distinct_bits() && recorder.is_exact());
    }
}
