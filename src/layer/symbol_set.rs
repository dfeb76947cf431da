//! [`SymbolSet`]: a set of symbols of one object.

use smallvec::SmallVec;

use crate::link::SymbolIndex;

/// A set of symbols of an object: one bit for each.
pub(super) struct SymbolSet(SmallVec<[u64; 8]>);

impl SymbolSet {
    /// An empty set with space for symbols up to `last`.
    pub(super) fn up_to(last: Option<SymbolIndex>) -> SymbolSet {
        // The inline words are enough for most objects.
        let (mut words, count) = (SmallVec::from([0; 8]), last.map_or(0, |last| last.index() / 64 + 1));
        if count > words.len() {
            words.resize(count, 0);
        }
        SymbolSet(words)
    }

    pub(super) fn insert_all(&mut self, symbols: impl Iterator<Item = SymbolIndex>) {
        let words = &mut self.0[..];
        symbols.for_each(|symbol| words[symbol.index() / 64] |= 1 << (symbol.index() % 64));
    }

    pub(super) fn contains(&self, symbol: SymbolIndex) -> bool {
        self.0.get(symbol.index() / 64).is_some_and(|word| word >> (symbol.index() % 64) & 1 == 1)
    }
}
