//! [`SecondaryMap`]: a map from the keys of a [`PagedArena`](super::PagedArena) to further values, indexed by slot number
//! instead of a hash.
//!
//! A reused slot keeps its position in this map, so its cache line is warm. A page is allocated with its first value, and freed
//! with its last one. The first page is never freed, and the buffer of one more page is kept as a spare.
//!
//! # Collisions
//! Two keys can have the same slot: the current key of the slot, and an older key that still has a value here. The value that
//! was inserted first is in the page; the other one is in the `overflow` table, which is usually empty.

use std::collections::HashMap;
use std::mem;

use rustc_hash::FxBuildHasher;
use slotmap::Key;

use super::paged_arena::{MIN_SLOTS, PAGE, key, parts};
use super::shrunk_capacity;

pub(crate) struct SecondaryMap<K: Key, V> {
    pages: Vec<MapPage<V>>,
    /// The buffer of a page that became empty. So inserting and removing one value again and again does not allocate.
    spare: Box<[MapEntry<V>]>,
    /// Values whose slot holds the value of another key.
    overflow: HashMap<K, V, FxBuildHasher>,
    count: usize,
}

struct MapPage<V> {
    count: u32,
    /// Empty while the page has no value. The first page grows from [`MIN_SLOTS`] entries; the others have [`PAGE`].
    entries: Box<[MapEntry<V>]>,
}

struct MapEntry<V> {
    /// The version of the key. Zero if there is no value: versions are odd. So the value needs no tag.
    version: u32,
    value: V,
}

impl<K: Key, V> Default for SecondaryMap<K, V> {
    fn default() -> Self {
        SecondaryMap { pages: Vec::new(), spare: Box::default(), overflow: HashMap::default(), count: 0 }
    }
}

impl<K: Key, V: Default> SecondaryMap<K, V> {
    /// Bytes of one entry.
    #[cfg(test)]
    pub(crate) const ENTRY_BYTES: usize = size_of::<MapEntry<V>>();

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let (number, at, version) = parts(key);
        let entry = self.pages.get(number as usize).and_then(|page| page.entries.get(at));
        match entry.filter(|entry| entry.version == version) {
            None if !self.overflow.is_empty() => self.overflow.get(&key),
            found => found.map(|entry| &entry.value),
        }
    }

    /// Inserts a value under a key. Where the key has a value, `merge` adds the new value to that one.
    #[inline]
    pub(crate) fn insert_or_merge(&mut self, key: K, value: V, merge: impl FnOnce(&mut V, V)) {
        if let Some(found) = self.overflow_mut(key) {
            return merge(found, value);
        }
        let (number, at, version) = parts(key);
        let page = self.page_with_memory(number, at);
        let entry = &mut page.entries[at];
        if entry.version == 0 {
            *entry = MapEntry { version, value };
            page.count += 1;
        } else if entry.version == version {
            return merge(&mut entry.value, value);
        } else {
            self.overflow.insert(key, value);
        }
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (number, at, version) = parts(key);
        let page = self.pages.get_mut(number as usize);
        let Some((count, entry)) = page.and_then(|page| Some((&mut page.count, page.entries.get_mut(at)?))) else {
            return self.remove_overflow(key);
        };
        if entry.version != version {
            return self.remove_overflow(key);
        }
        entry.version = 0;
        let value = mem::take(&mut entry.value);
        *count -= 1;
        self.count -= 1;
        if *count == 0 {
            self.free_page(number as usize);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let numbered = self.pages.iter().zip(0..).flat_map(|(page, number)| page.entries.iter().zip(number * PAGE..));
        let used = numbered.filter(|(entry, _)| entry.version != 0);
        let in_pages = used.map(|(entry, slot)| (key(slot, entry.version), &entry.value));
        in_pages.chain(self.overflow.iter().map(|(key, value)| (*key, value)))
    }

    #[inline]
    fn overflow_mut(&mut self, key: K) -> Option<&mut V> {
        if self.overflow.is_empty() { None } else { self.overflow.get_mut(&key) }
    }

    fn remove_overflow(&mut self, key: K) -> Option<V> {
        let value = self.overflow.remove(&key)?;
        self.count -= 1;
        if let Some(capacity) = shrunk_capacity(self.overflow.len(), self.overflow.capacity()) {
            self.overflow.shrink_to(capacity);
        }
        Some(value)
    }

    #[inline]
    fn page_with_memory(&mut self, number: u32, at: usize) -> &mut MapPage<V> {
        if self.pages.get(number as usize).is_none_or(|page| page.entries.len() <= at) {
            self.allocate(number as usize, at);
        }
        &mut self.pages[number as usize]
    }

    #[cold]
    fn allocate(&mut self, number: usize, at: usize) {
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || MapPage { count: 0, entries: Box::default() });
        }
        let mut entries = mem::take(&mut self.pages[number].entries);
        let capacity = if number == 0 { (at + 1).next_power_of_two().max(MIN_SLOTS) } else { PAGE as usize };
        if entries.is_empty() && self.spare.len() >= capacity {
            entries = mem::take(&mut self.spare);
        }
        if entries.len() <= at {
            let mut more = entries.into_vec();
            more.reserve_exact(capacity - more.len());
            more.resize_with(capacity, || MapEntry { version: 0, value: V::default() });
            entries = more.into_boxed_slice();
        }
        self.pages[number].entries = entries;
    }

    /// Frees an empty page. The first page keeps its buffer; the buffer of another page becomes the spare.
    #[cold]
    fn free_page(&mut self, number: usize) {
        if number == 0 {
            return;
        }
        self.spare = mem::take(&mut self.pages[number].entries);
        while self.pages.len() > 1 && self.pages.last().is_some_and(|last| last.entries.is_empty()) {
            self.pages.pop();
        }
        if let Some(capacity) = shrunk_capacity(self.pages.len(), self.pages.capacity()) {
            self.pages.shrink_to(capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::{PagedArena, sized};

    slotmap::new_key_type! { struct TestKey; }

    fn merge(found: &mut Vec<u32>, more: Vec<u32>) {
        found.extend(more);
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Inserts a key into the arena.
        NewKey,
        /// Removes a key from the arena, which frees its slot. Its value stays in the map.
        FreeKey(usize),
        Insert(usize, u32),
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::NewKey),
            1 => any::<usize>().prop_map(Step::FreeKey),
            4 => (any::<usize>(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            3 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_value_is_found_under_its_key_although_keys_share_slots(
            steps in proptest::collection::vec(step(), 1..sized(600, 60)),
        ) {
            let (mut arena, mut keys) = (PagedArena::<TestKey, ()>::new(), Vec::new());
            let (mut table, mut model) = (SecondaryMap::<TestKey, Vec<u32>>::default(), HashMap::<TestKey, Vec<u32>>::new());
            for step in steps {
                let any = |index: usize, keys: &[TestKey]| keys.get(index % keys.len().max(1)).copied();
                match step {
                    Step::NewKey => keys.push(arena.insert(())),
                    Step::FreeKey(index) => _ = any(index, &keys).and_then(|key| arena.remove(key)),
                    Step::Insert(index, value) => {
                        let Some(key) = any(index, &keys) else { continue };
                        table.insert_or_merge(key, vec![value], merge);
                        model.entry(key).or_default().push(value);
                    }
                    Step::Remove(index) => {
                        let Some(key) = any(index, &keys) else { continue };
                        prop_assert_eq!(table.remove(key), model.remove(&key));
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert!(keys.iter().all(|key| table.get(*key) == model.get(key)));
            }
            let mut all: Vec<_> = table.iter().map(|(key, value)| (key, value.clone())).collect();
            let mut expected: Vec<_> = model.into_iter().collect();
            all.sort();
            expected.sort();
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn empty_pages_are_freed_except_the_first_and_a_spare() {
        const PAGES: u32 = sized(100, 4) as u32;
        let (mut arena, mut table) = (PagedArena::<TestKey, ()>::new(), SecondaryMap::<TestKey, u32>::default());
        let keys: Vec<_> = (0..PAGES * PAGE).map(|_| arena.insert(())).collect();
        keys.iter().for_each(|key| table.insert_or_merge(*key, 1, |_, _| unreachable!()));
        let allocated =
            |table: &SecondaryMap<TestKey, u32>| table.pages.iter().filter(|page| !page.entries.is_empty()).count();
        assert_eq!((table.len(), allocated(&table)), ((PAGES * PAGE) as usize, PAGES as usize));
        for key in &keys {
            assert_eq!(table.remove(*key), Some(1));
        }
        assert_eq!((table.len(), allocated(&table), table.pages.len(), table.spare.len()), (0, 1, 1, PAGE as usize));
        assert!(table.pages.capacity() <= 64);
    }
}
