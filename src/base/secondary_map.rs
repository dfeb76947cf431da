//! [`SecondaryMap`]: what somebody else knows of the keys of a [`PagedArena`](super::Slots): found by the slot's number, without a
//! hash.
//!
//! A slot that is used again is used here again, too, so that who comes in another's place finds its line of memory where that
//! one has left it. Pages get their memory with the first value, and give it back with the last, but for the first page and one to spare.
//!
//! Two keys may have one slot: the one that it was given to anew, and one before, of which something is left. The later of the
//! two to come stands apart then, in a table that is mostly empty.

use std::collections::HashMap;
use std::mem;

use rustc_hash::FxBuildHasher;
use slotmap::Key;

use super::capacity_to_keep;
use super::paged_arena::{PAGE, SMALLEST, key, parts};

pub(crate) struct SecondaryMap<K: Key, V> {
    pages: Vec<Page<V>>,
    /// Memory of a page that became empty, so that a value that comes and goes costs no allocation.
    spare: Box<[Place<V>]>,
    /// Those whose slots are taken by other keys.
    crowded: HashMap<K, V, FxBuildHasher>,
    count: usize,
}

struct Page<V> {
    count: u32,
    /// None while the page holds nothing; of the first page as many as were needed.
    places: Box<[Place<V>]>,
}

struct Place<V> {
    version: u32,
    value: Option<V>,
}

impl<K: Key, V> Default for SecondaryMap<K, V> {
    fn default() -> Self {
        SecondaryMap { pages: Vec::new(), spare: Box::default(), crowded: HashMap::default(), count: 0 }
    }
}

impl<K: Key, V> SecondaryMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let (number, at, version) = parts(key);
        let place = self.pages.get(number as usize).and_then(|page| page.places.get(at));
        match place.filter(|place| place.version == version).and_then(|place| place.value.as_ref()) {
            None if !self.crowded.is_empty() => self.crowded.get(&key),
            found => found,
        }
    }

    /// Puts a value under a key, or has `join` add it to what is there.
    #[inline]
    pub(crate) fn put(&mut self, key: K, value: V, join: impl FnOnce(&mut V, V)) {
        if let Some(found) = self.apart_mut(key) {
            return join(found, value);
        }
        let (number, at, version) = parts(key);
        let page = self.page_with_memory(number, at);
        let place = &mut page.places[at];
        match &mut place.value {
            None => {
                *place = Place { version, value: Some(value) };
                page.count += 1;
            }
            Some(found) if place.version == version => return join(found, value),
            Some(_) => _ = self.crowded.insert(key, value),
        }
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (number, at, version) = parts(key);
        let page = self.pages.get_mut(number as usize);
        let Some((count, place)) = page.and_then(|page| Some((&mut page.count, page.places.get_mut(at)?))) else {
            return self.remove_apart(key);
        };
        if place.version != version || place.value.is_none() {
            return self.remove_apart(key);
        }
        let value = place.value.take();
        *count -= 1;
        self.count -= 1;
        if *count == 0 {
            self.retire(number as usize);
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let numbered = self.pages.iter().zip(0..).flat_map(|(page, number)| page.places.iter().zip(number * PAGE..));
        let placed = numbered.filter_map(|(place, slot)| Some((key(slot, place.version), place.value.as_ref()?)));
        placed.chain(self.crowded.iter().map(|(key, value)| (*key, value)))
    }

    #[inline]
    fn apart_mut(&mut self, key: K) -> Option<&mut V> {
        if self.crowded.is_empty() { None } else { self.crowded.get_mut(&key) }
    }

    fn remove_apart(&mut self, key: K) -> Option<V> {
        let value = self.crowded.remove(&key)?;
        self.count -= 1;
        if let Some(kept) = capacity_to_keep(self.crowded.len(), self.crowded.capacity()) {
            self.crowded.shrink_to(kept);
        }
        Some(value)
    }

    #[inline]
    fn page_with_memory(&mut self, number: u32, at: usize) -> &mut Page<V> {
        if self.pages.get(number as usize).is_none_or(|page| page.places.len() <= at) {
            self.give_memory(number as usize, at);
        }
        &mut self.pages[number as usize]
    }

    #[cold]
    fn give_memory(&mut self, number: usize, at: usize) {
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || Page { count: 0, places: Box::default() });
        }
        let mut places = mem::take(&mut self.pages[number].places);
        let capacity = if number == 0 { (at + 1).next_power_of_two().max(SMALLEST) } else { PAGE as usize };
        if places.is_empty() && self.spare.len() >= capacity {
            places = mem::take(&mut self.spare);
        }
        if places.len() <= at {
            let mut more = places.into_vec();
            more.reserve_exact(capacity - more.len());
            more.resize_with(capacity, || Place { version: 0, value: None });
            places = more.into_boxed_slice();
        }
        self.pages[number].places = places;
    }

    /// Gives the memory of an empty page back; the first keeps its own, and another's is spared.
    #[cold]
    fn retire(&mut self, number: usize) {
        if number == 0 {
            return;
        }
        self.spare = mem::take(&mut self.pages[number].places);
        while self.pages.len() > 1 && self.pages.last().is_some_and(|last| last.places.is_empty()) {
            self.pages.pop();
        }
        if let Some(kept) = capacity_to_keep(self.pages.len(), self.pages.capacity()) {
            self.pages.shrink_to(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::{PagedArena, sized};

    slotmap::new_key_type! { struct TestKey; }

    fn join(found: &mut Vec<u32>, more: Vec<u32>) {
        found.extend(more);
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Makes a key.
        Make,
        /// Forgets a key, whose slot is free then; what stands under it stays.
        Forget(usize),
        Put(usize, u32),
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Make),
            1 => any::<usize>().prop_map(Step::Forget),
            4 => (any::<usize>(), any::<u32>()).prop_map(|(key, value)| Step::Put(key, value)),
            3 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn values_are_found_under_their_keys_whatever_else_has_their_slots(
            steps in proptest::collection::vec(step(), 1..sized(600, 60)),
        ) {
            let (mut slots, mut keys) = (PagedArena::<TestKey, ()>::new(), Vec::new());
            let (mut table, mut model) = (SecondaryMap::<TestKey, Vec<u32>>::default(), HashMap::<TestKey, Vec<u32>>::new());
            for step in steps {
                let any = |place: usize, keys: &[TestKey]| keys.get(place % keys.len().max(1)).copied();
                match step {
                    Step::Make => keys.push(slots.insert(())),
                    Step::Forget(place) => _ = any(place, &keys).and_then(|key| slots.remove(key)),
                    Step::Put(place, value) => {
                        let Some(key) = any(place, &keys) else { continue };
                        table.put(key, vec![value], join);
                        model.entry(key).or_default().push(value);
                    }
                    Step::Remove(place) => {
                        let Some(key) = any(place, &keys) else { continue };
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
    fn pages_that_are_empty_give_their_memory_back_but_for_two() {
        const PAGES: u32 = sized(100, 4) as u32;
        let (mut slots, mut table) = (PagedArena::<TestKey, ()>::new(), SecondaryMap::<TestKey, u32>::default());
        let keys: Vec<_> = (0..PAGES * PAGE).map(|_| slots.insert(())).collect();
        keys.iter().for_each(|key| table.put(*key, 1, |_, _| unreachable!()));
        let held =
            |table: &SecondaryMap<TestKey, u32>| table.pages.iter().filter(|page| !page.places.is_empty()).count();
        assert_eq!((table.len(), held(&table)), ((PAGES * PAGE) as usize, PAGES as usize));
        for key in &keys {
            assert_eq!(table.remove(*key), Some(1));
        }
        assert_eq!((table.len(), held(&table), table.pages.len(), table.spare.len()), (0, 1, 1, PAGE as usize));
        assert!(table.pages.capacity() <= 64);
    }
}
