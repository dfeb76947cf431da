//! [`UseRecorder`]: what each symbol is used for, and from where. Noted while edges are made, when kind and symbol are at hand, so
//! that a plan need not walk over all edges once for what is alive and once more for what it takes.
//!
//! A symbol has one word: a few bits say what for, and each of the others stands for one block with edges, a *source*. There
//! are mostly fewer sources than bits; when there are more, the last bit stands for all the rest, and says nothing of any one
//! of them.

use crate::base::RecycledVec;
use crate::link::x86_64::{EdgeKind, KindSet};

/// What the symbols of a graph are used for.
#[derive(Default)]
pub(crate) struct UseRecorder {
    /// By symbol; none, for those that were added since.
    of: RecycledVec<u32>,
    /// Blocks that have been given edges.
    source_count: usize,
    /// Edges were changed behind its back.
    is_stale: bool,
}

/// Position of a block among those with edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReferrerBit(u8);

impl UseRecorder {
    /// Room for those of so many symbols.
    pub(crate) fn make_room(&mut self, count: usize) {
        self.of.make_room(count);
        self.cover(count);
    }

    /// Forgets all of them.
    pub(crate) fn empty(&mut self) {
        self.of.empty();
        (self.source_count, self.is_stale) = (0, false);
    }

    /// The next block that is given edges.
    pub(crate) fn begin_source(&mut self) -> ReferrerBit {
        self.source_count += 1;
        ReferrerBit((self.source_count - 1).min(LAST_SOURCE) as u8)
    }

    /// There are so many symbols by now.
    pub(crate) fn cover(&mut self, count: usize) {
        if self.of.len() < count {
            self.of.resize(count, 0);
        }
    }

    /// By symbol: for many edges at a time.
    pub(crate) fn words(&mut self) -> &mut [u32] {
        &mut self.of
    }

    /// By symbol, as words of [`uses`], [`USED`] to [`STATIC`], and of [`ReferrerBit::bit`].
    pub(crate) fn of(&self) -> &[u32] {
        &self.of
    }

    /// Hands all words over, for room.
    pub(crate) fn give_words(&mut self, to: &mut RecycledVec<u32>) {
        std::mem::swap(&mut self.of, to);
        self.of.clear();
    }

    /// Whether each block with edges has a bit of its own.
    pub(crate) fn tell_sources_apart(&self) -> bool {
        self.source_count <= LAST_SOURCE + 1 && !self.is_stale
    }

    /// Whether all edges, those of dropped blocks included, are noted and no other.
    pub(crate) fn are_exact(&self) -> bool {
        !self.is_stale
    }

    /// For whoever changes edges that there are.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        self.is_stale = true;
    }
}

impl ReferrerBit {
    pub(crate) const FIRST: ReferrerBit = ReferrerBit(0);

    pub(crate) fn bit(self) -> u32 {
        1 << (FIRST_SOURCE_BIT + u32::from(self.0))
    }
}

/// Some edge refers to it.
pub(crate) const USED: u32 = 1;
/// Some edge reads its GOT slot.
pub(crate) const SLOT: u32 = 2;
/// Some edge is a branch to it.
pub(crate) const BRANCH: u32 = 4;
/// Some edge names it by less than an address.
pub(crate) const NEAR: u32 = 8;
/// Some edge wants its distance from the thread pointer.
pub(crate) const STATIC: u32 = 16;

const FIRST_SOURCE_BIT: u32 = 5;
const LAST_SOURCE: usize = (u32::BITS - FIRST_SOURCE_BIT - 1) as usize;

/// Only the bits of sources.
pub(crate) const fn sources(word: u32) -> u32 {
    word >> FIRST_SOURCE_BIT << FIRST_SOURCE_BIT
}

/// What an edge of this kind uses its symbol for.
pub(crate) const fn uses(kind: EdgeKind) -> u32 {
    USED | match kind {
        EdgeKind::Branch32 => BRANCH,
        _ if KindSet::NEAR.contains(kind) => NEAR,
        _ if kind.needs_got_slot() => SLOT,
        _ if kind.needs_static_place() || kind.is_block_offset() => STATIC,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_beyond_the_last_bit_share_it_and_are_not_told_apart() {
        let mut uses = UseRecorder::default();
        let bits: Vec<u32> = (0..=LAST_SOURCE).map(|_| uses.begin_source().bit()).collect();
        assert!(uses.tell_sources_apart() && bits.iter().all(|bit| bit.count_ones() == 1 && *bit > STATIC));
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones() as usize, bits.len());
        assert_eq!(uses.begin_source().bit(), bits[LAST_SOURCE]);
        assert!(!uses.tell_sources_apart() && uses.are_exact());
    }
}
