//! [`SegmentedTable`]: a hash table that grows and shrinks in steps, by linear hashing.
//!
//! A hash table that doubles moves all its entries in one step. Under a lock, other threads wait for that. This table is a list of
//! segments, each a small hash table. It grows by a segment at a time, and takes the entries of the new one from one other segment.
//!
//! ```text
//!   hash ─► index in 0..2^k, where 2^(k-1) < segments <= 2^k
//!           of a segment that does not exist yet: the index without its highest bit
//!
//!   6 segments:  0  1  2  3  4  5        the seventh takes entries from segment 2: those whose index is 6
//! ```
//!
//! | step | when | moves |
//! |---|---|---|
//! | add a segment | there are more than [`LOAD`] entries for each | about `2 * LOAD` entries |
//! | remove the last segment | there are fewer than `LOAD / 4` entries for each | about `LOAD / 2` entries |
//! | a segment grows or shrinks | as any hash table | at most the entries of the segment |
//!
//! A table of up to [`MOST_IN_ONE`] entries is one hash table and no list, and costs no more than that. The caller has the hash of an
//! entry at hand, so entries need not contain it.

use std::slice;

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, VacantEntry};

use super::shrunk_capacity;

pub(crate) struct SegmentedTable<T> {
    /// The only segment, as long as `segments` is empty.
    only: HashTable<T>,
    /// Empty, or two or more segments.
    segments: Vec<HashTable<T>>,
    /// The bits of a hash that choose a segment. Zero if there is one.
    mask: usize,
    /// The number of values in `segments`.
    len: usize,
    /// How many values have changed their segment.
    #[cfg(test)]
    moved: usize,
}

/// Access to many values, one after the other. The table neither adds nor removes segments meanwhile. `MANY` says whether it has several.
pub(crate) struct Segments<'a, T, const MANY: bool> {
    all: &'a mut [HashTable<T>],
    mask: usize,
    len: &'a mut usize,
}

impl<T, const MANY: bool> Segments<'_, T, MANY> {
    #[inline(always)]
    fn of(&mut self, hash: u64) -> &mut HashTable<T> {
        let index = if MANY { index(hash, self.mask, self.all.len()) } else { 0 };
        &mut self.all[index]
    }

    /// The wanted value, or the place where it may be inserted. The caller has [reserved](SegmentedTable::reserve) space for it, and
    /// [counts](Self::count_inserted) what it inserts.
    #[inline(always)]
    pub(crate) fn find_or_vacant(
        &mut self,
        hash: u64,
        is_wanted: impl FnMut(&T) -> bool,
        hash_of: impl Fn(&T) -> u64,
    ) -> Result<&T, VacantEntry<'_, T>> {
        match self.of(hash).entry(hash, is_wanted, hash_of) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(entry) => Err(entry),
        }
    }

    #[inline(always)]
    pub(crate) fn count_inserted(self, count: usize) {
        if MANY {
            *self.len += count;
        }
    }

    /// Removes the wanted value, if there is one. The caller [counts](Self::count_removed) what was removed.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u64, is_wanted: impl FnMut(&T) -> bool) -> bool {
        self.of(hash).find_entry(hash, is_wanted).map(|found| found.remove()).is_ok()
    }

    #[inline(always)]
    pub(crate) fn count_removed(self, count: usize) {
        if MANY {
            *self.len -= count;
        }
    }
}

impl<T> Default for SegmentedTable<T> {
    fn default() -> Self {
        SegmentedTable {
            only: HashTable::new(),
            segments: Vec::new(),
            mask: 0,
            len: 0,
            #[cfg(test)]
            moved: 0,
        }
    }
}

impl<T> SegmentedTable<T> {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        if self.has_many() { self.len } else { self.only.len() }
    }

    /// Whether there are several segments. Changes only when space is [reserved](Self::reserve) or [released](Self::shrink).
    #[inline(always)]
    pub(crate) fn has_many(&self) -> bool {
        !self.segments.is_empty()
    }

    /// For about how many values the table has space.
    pub(crate) fn capacity(&self) -> usize {
        if self.segments.is_empty() { self.only.capacity() } else { self.segments.len() * LOAD }
    }

    #[inline(always)] // a lookup of one name does little else
    pub(crate) fn find(&self, hash: u64, is_wanted: impl FnMut(&T) -> bool) -> Option<&T> {
        let segment = match &self.segments[..] {
            [] => &self.only,
            segments => &segments[index(hash, self.mask, segments.len())],
        };
        segment.find(hash, is_wanted)
    }

    #[inline(always)]
    pub(crate) fn segments<const MANY: bool>(&mut self) -> Segments<'_, T, MANY> {
        debug_assert_eq!(MANY, self.has_many());
        let SegmentedTable { only, segments, mask, len, .. } = self;
        let all = if MANY { &mut segments[..] } else { slice::from_mut(only) };
        Segments { all, mask: *mask, len }
    }

    /// Inserts a value that the table does not have.
    #[inline]
    pub(crate) fn insert_unique(&mut self, hash: u64, value: T, hash_of: impl Fn(&T) -> u64) {
        self.reserve(1, &hash_of);
        if self.has_many() {
            let mut segments = self.segments::<true>();
            segments.of(hash).insert_unique(hash, value, hash_of);
            segments.count_inserted(1);
        } else {
            self.only.insert_unique(hash, value, hash_of);
        }
    }

    /// Removes the wanted value, if the table has it.
    #[cfg(test)]
    pub(crate) fn remove(&mut self, hash: u64, is_wanted: impl FnMut(&T) -> bool) {
        if self.has_many() {
            let mut segments = self.segments::<true>();
            let removed = segments.remove(hash, is_wanted);
            segments.count_removed(usize::from(removed));
        } else {
            self.segments::<false>().remove(hash, is_wanted);
        }
    }

    /// Makes space for `count` more values.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize, hash_of: impl Fn(&T) -> u64) {
        if self.has_many() {
            if self.len + count > self.segments.len() * LOAD {
                self.add_segments(self.len + count, hash_of);
            }
        } else if self.only.len() + count <= MOST_IN_ONE {
            self.only.reserve(count, hash_of);
        } else {
            self.divide(count, hash_of);
        }
    }

    /// Releases memory after a peak.
    #[inline]
    pub(crate) fn shrink(&mut self, hash_of: impl Fn(&T) -> u64) {
        if self.segments.is_empty() {
            if let Some(smaller) = shrunk_capacity(self.only.len(), self.only.capacity()) {
                self.only.shrink_to(smaller, hash_of);
            }
        } else if self.len < self.segments.len() * (LOAD / 4) {
            self.remove_segments(hash_of);
        }
    }

    /// The number of segments has changed.
    fn set_mask(&mut self) {
        self.mask = self.segments.len().next_power_of_two() - 1;
    }

    /// Makes several segments of one.
    #[cold]
    fn divide(&mut self, count: usize, hash_of: impl Fn(&T) -> u64) {
        let only = std::mem::take(&mut self.only);
        let segments = only.len().max(MOST_IN_ONE / 2).div_ceil(LOAD);
        self.segments.resize_with(segments, HashTable::new);
        self.set_mask();
        self.len = only.len();
        for segment in &mut self.segments {
            segment.reserve(LOAD, &hash_of);
        }
        only.into_iter().for_each(|value| self.put_back(value, &hash_of));
        self.reserve(count, hash_of);
    }

    #[cold]
    fn add_segments(&mut self, wanted: usize, hash_of: impl Fn(&T) -> u64) {
        while wanted > self.segments.len() * LOAD {
            let added = self.segments.len();
            self.segments.push(HashTable::new());
            self.set_mask();
            let split = without_highest_bit(added);
            let old = std::mem::take(&mut self.segments[split]);
            let half = old.len() / 2 + old.len() / 8;
            for index in [split, added] {
                self.segments[index].reserve(half, &hash_of);
            }
            old.into_iter().for_each(|value| self.put_back(value, &hash_of));
        }
    }

    #[cold]
    fn remove_segments(&mut self, hash_of: impl Fn(&T) -> u64) {
        while self.len < self.segments.len() * (LOAD / 4)
            && let Some(last) = self.segments.pop()
        {
            if let [only] = &mut self.segments[..] {
                last.into_iter().for_each(|value| _ = only.insert_unique(hash_of(&value), value, &hash_of));
                self.only = std::mem::take(only);
                (self.segments, self.mask) = (Vec::new(), 0);
                return;
            }
            self.set_mask();
            let removed = self.segments.len();
            last.into_iter().for_each(|value| self.put_back(value, &hash_of));
            let merged = &mut self.segments[without_highest_bit(removed)];
            if let Some(smaller) = shrunk_capacity(merged.len(), merged.capacity()) {
                merged.shrink_to(smaller, &hash_of);
            }
        }
        if let Some(smaller) = shrunk_capacity(self.segments.len(), self.segments.capacity()) {
            self.segments.shrink_to(smaller);
        }
    }

    /// Inserts a value that was in another segment.
    fn put_back(&mut self, value: T, hash_of: impl Fn(&T) -> u64) {
        #[cfg(test)]
        {
            self.moved += 1;
        }
        let hash = hash_of(&value);
        let (index, hash_of) = (index(hash, self.mask, self.segments.len()), &hash_of);
        self.segments[index].insert_unique(hash, value, hash_of);
    }
}

/// The segment of a hash, of `count` segments.
#[inline(always)]
fn index(hash: u64, mask: usize, count: usize) -> usize {
    // A segment uses the lowest and the highest bits.
    let index = (hash >> 32) as usize & mask;
    if index < count { index } else { index & mask >> 1 }
}

/// The segment that shares its values with the segment `index`, which is not the first.
fn without_highest_bit(index: usize) -> usize {
    index & !(1 << index.ilog2())
}

/// The values of a segment, on average. A segment has at most twice as many when the next one is about to take half of them.
const LOAD: usize = if cfg!(miri) { 25 } else { 200 };
/// A table with so few values has one segment: the most that a hash table of 4,096 slots has. Miri gets a smaller one.
const MOST_IN_ONE: usize = if cfg!(miri) { 448 } else { 3_584 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sized;

    fn hash(value: &u32) -> u64 {
        u64::from(*value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn has(table: &SegmentedTable<u32>, value: u32) -> bool {
        table.find(hash(&value), |found| *found == value).is_some()
    }

    /// How many values `act` moves.
    fn moves(table: &mut SegmentedTable<u32>, act: impl FnOnce(&mut SegmentedTable<u32>)) -> usize {
        let before = table.moved;
        act(table);
        table.moved - before
    }

    fn insert_vacant<const MANY: bool>(table: &mut SegmentedTable<u32>, value: u32) {
        let mut segments = table.segments::<MANY>();
        let vacant = segments.find_or_vacant(hash(&value), |found| *found == value, hash);
        vacant.err().unwrap().insert(value);
        assert!(segments.find_or_vacant(hash(&value), |found| *found == value, hash).is_ok());
        segments.count_inserted(1);
    }

    const COUNT: u32 = sized(50_000, 1_000) as u32;

    #[test]
    fn a_value_is_found_from_its_insertion_to_its_removal_whatever_the_number_of_segments() {
        let mut table = SegmentedTable::default();
        let checked = |table: &SegmentedTable<u32>, from: u32, to: u32| {
            assert_eq!(table.len(), (to - from) as usize);
            let some = (from..to).step_by(sized(97, 501)).chain(to.checked_sub(1));
            assert!(some.clone().all(|value| value < from || has(table, value)));
            assert!(!has(table, to) && (from == 0 || !has(table, from - 1)));
        };
        for value in 0..COUNT {
            if value % 2 == 0 {
                table.insert_unique(hash(&value), value, hash);
            } else {
                table.reserve(1, hash);
                if table.has_many() {
                    insert_vacant::<true>(&mut table, value);
                } else {
                    insert_vacant::<false>(&mut table, value);
                }
            }
            assert!(has(&table, value));
            if value % 500 == 0 {
                checked(&table, 0, value + 1);
            }
        }
        for value in 0..COUNT {
            table.remove(hash(&value), |found| *found == value);
            table.shrink(hash);
            if value % 500 == 0 {
                checked(&table, value + 1, COUNT);
            }
        }
        assert!(table.segments.is_empty() && table.segments.capacity() == 0 && table.capacity() <= MOST_IN_ONE);
    }

    #[test]
    fn no_operation_moves_more_than_a_few_segments_of_values() {
        let mut table = SegmentedTable::default();
        let most = MOST_IN_ONE;
        for value in 0..COUNT {
            let moved = moves(&mut table, |table| table.insert_unique(hash(&value), value, hash));
            assert!(moved <= most, "{moved} values at {value}");
        }
        let later = moves(&mut table, |table| table.insert_unique(hash(&COUNT), COUNT, hash));
        assert!(later <= 3 * LOAD);
        table.remove(hash(&COUNT), |found| *found == COUNT);
        let largest = table.segments.iter().map(HashTable::len).max();
        assert!(largest <= Some(3 * LOAD), "{largest:?}");
        for value in 0..COUNT {
            let moved = moves(&mut table, |table| {
                table.remove(hash(&value), |found| *found == value);
                table.shrink(hash);
            });
            assert!(moved <= most, "{moved} values at {value}");
        }
    }

    #[test]
    fn a_table_that_stays_as_large_moves_nothing() {
        let mut table = SegmentedTable::default();
        (0..COUNT).for_each(|value| table.insert_unique(hash(&value), value, hash));
        let moved = moves(&mut table, |table| {
            for value in COUNT..COUNT + COUNT / 2 {
                table.remove(hash(&(value - COUNT)), |found| *found == value - COUNT);
                table.shrink(hash);
                table.insert_unique(hash(&value), value, hash);
            }
        });
        assert_eq!(moved, 0);
    }
}
