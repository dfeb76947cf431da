//! [`PageSet`]: the pages of a pool that the kernel may have backed, as a bitmap with a count.
//!
//! - A page enters the set when any part of it is allocated, or when it is populated ahead of its use.
//! - A page leaves the set when it returns to the kernel.
//! - A page outside the set reads as zero.
//!
//! The count bounds the memory that a pool costs. To read it takes no system call.

use std::ops::Range;

/// Pages of one pool. Page 0 starts at the start of the pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
    count: u32,
}

impl PageSet {
    /// Adds `pages`. Returns how many of them are new.
    #[inline]
    pub(crate) fn insert(&mut self, pages: Range<u32>) -> u32 {
        // The common case: a few pages, and all of them are in the set.
        if let Some((index, mask)) = one_mask(&pages)
            && self.words.get(index).is_some_and(|word| word & mask == mask)
        {
            return 0;
        }
        self.insert_new(pages)
    }

    #[inline(never)]
    fn insert_new(&mut self, pages: Range<u32>) -> u32 {
        let words_needed = pages.end.div_ceil(PAGES_PER_WORD) as usize;
        if words_needed > self.words.len() {
            self.words.resize(words_needed, 0);
        }
        let mut added = 0;
        for (index, mask) in masks(pages) {
            added += (mask & !self.words[index]).count_ones();
            self.words[index] |= mask;
        }
        self.count += added;
        added
    }

    /// Removes `pages`. Returns how many of them were in the set.
    pub(crate) fn remove(&mut self, pages: Range<u32>) -> u32 {
        let mut removed = 0;
        for (index, mask) in masks(pages) {
            let Some(word) = self.words.get_mut(index) else { break };
            removed += (*word & mask).count_ones();
            *word &= !mask;
        }
        self.count -= removed;
        removed
    }

    pub(crate) fn contains_any(&self, pages: Range<u32>) -> bool {
        if let Some((index, mask)) = one_mask(&pages) {
            return self.words.get(index).is_some_and(|word| word & mask != 0);
        }
        masks(pages).any(|(index, mask)| self.words.get(index).is_some_and(|word| word & mask != 0))
    }

    /// How many of `pages` are in the set.
    pub(crate) fn count_in(&self, pages: Range<u32>) -> u32 {
        let in_word = |(index, mask): (usize, u64)| self.words.get(index).map_or(0, |word| (word & mask).count_ones());
        masks(pages).map(in_word).sum()
    }

    /// The range from the first to the last page of `pages` that is in this set and, if `also` is given, in that set
    /// too. `None` if there is no such page.
    pub(crate) fn extent_in(&self, pages: Range<u32>, also: Option<&PageSet>) -> Option<Range<u32>> {
        let in_both = |(index, mask): (usize, u64)| {
            let other = also.map_or(u64::MAX, |also| also.words.get(index).copied().unwrap_or(0));
            (index as u32 * PAGES_PER_WORD, self.words.get(index).copied().unwrap_or(0) & mask & other)
        };
        let mut found = masks(pages).map(in_both).filter(|(_, word)| *word != 0);
        let (base, word) = found.next()?;
        let (last_base, last_word) = found.last().unwrap_or((base, word));
        Some(base + word.trailing_zeros()..last_base + PAGES_PER_WORD - last_word.leading_zeros())
    }

    /// The contiguous runs of `pages` that are in the set, in order.
    pub(crate) fn runs_in(&self, pages: Range<u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                _ if !self.contains_any(page..page + 1) => {}
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// The number of pages in the set.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of heap memory that the set uses.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.words.capacity() * size_of::<u64>()) as u64
    }
}

/// The index of the word that holds all of `pages`, and the mask of their bits. `None` if `pages` is empty or needs
/// more than one word.
#[inline]
fn one_mask(pages: &Range<u32>) -> Option<(usize, u64)> {
    let (index, count) = (pages.start / PAGES_PER_WORD, pages.end.checked_sub(pages.start)?);
    let is_one = count > 0 && (pages.end - 1) / PAGES_PER_WORD == index;
    is_one.then(|| (index as usize, u64::MAX >> (PAGES_PER_WORD - count) << (pages.start % PAGES_PER_WORD)))
}

/// For each word that holds some of `pages`: its index, and the mask of their bits.
fn masks(pages: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let words = if pages.is_empty() { 0..0 } else { pages.start / PAGES_PER_WORD..pages.end.div_ceil(PAGES_PER_WORD) };
    words.map(move |index| {
        let low = pages.start.saturating_sub(index * PAGES_PER_WORD);
        let high = (pages.end - index * PAGES_PER_WORD).min(PAGES_PER_WORD);
        (index as usize, (u64::MAX >> (PAGES_PER_WORD - high)) & (u64::MAX << low))
    })
}

/// Pages per word of the bitmap.
const PAGES_PER_WORD: u32 = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_page_set_agrees_with_a_btree_set(
            steps in prop::collection::vec((any::<bool>(), 0..300u32, 0..200u32), 1..40),
            (from, length) in (0..400u32, 0..300u32),
        ) {
            let (mut pages, mut other, mut model) = (PageSet::default(), PageSet::default(), BTreeSet::new());
            for (insert, start, length) in steps {
                let range = start..start + length;
                if insert {
                    let added = range.clone().filter(|page| model.insert(*page)).count();
                    prop_assert_eq!(pages.insert(range.clone()) as usize, added);
                    other.insert(range);
                } else {
                    let removed = range.clone().filter(|page| model.remove(page)).count();
                    prop_assert_eq!(pages.remove(range) as usize, removed);
                }
            }
            let queried = from..from + length;
            let inside: Vec<u32> = queried.clone().filter(|page| model.contains(page)).collect();
            prop_assert_eq!(pages.count() as usize, model.len());
            prop_assert_eq!(pages.count_in(queried.clone()) as usize, inside.len());
            prop_assert_eq!(pages.contains_any(queried.clone()), !inside.is_empty());
            let extent = inside.first().map(|first| *first..inside[inside.len() - 1] + 1);
            prop_assert_eq!(pages.extent_in(queried.clone(), None), extent.clone());
            // `other` contains every page that was ever inserted.
            prop_assert_eq!(pages.extent_in(queried.clone(), Some(&other)), extent);
            prop_assert_eq!(pages.extent_in(queried.clone(), Some(&PageSet::default())), None);
            let runs = pages.runs_in(queried);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), inside);
        }
    }
}
