//! [`PagedArena`]: a generational arena in pages of [`PAGE`] slots. Empty pages are freed.
//!
//! The keys are those of `slotmap`, with the same meaning: a key of a removed value finds nothing, even after its slot is used
//! again. Unlike a `SlotMap`, an arena that held a million values and holds ten is as small as one that never held more.
//!
//! # Layout
//! A key is a version and a slot number. `slot / PAGE` is the page, `slot % PAGE` the position in it.
//!
//! | page | slots | memory |
//! |---|---|---|
//! | the first | grows by doubling from [`MIN_SLOTS`] to [`PAGE`], so that an arena of few values is small | as any other page |
//! | any other | [`PAGE`] | from its first value; freed when it is empty, except that one empty page keeps its memory as a spare |
//!
//! The record of a freed page stays in `pages` with the version that its slots must start from. When few pages have memory,
//! the records at the end are removed, too, and the arena remembers the highest of their versions.
//!
//! Insert, lookup and remove take constant time, except that growing the first page moves its values.

use std::marker::PhantomData;
use std::mem;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use slotmap::{Key, KeyData};

use crate::prefetch::prefetch;

pub(crate) struct PagedArena<K: Key, V> {
    pages: Vec<Page<V>>,
    /// The numbers of pages with a free slot, with or without memory. The next insert uses the last one.
    not_full: Vec<u32>,
    /// An empty page that keeps its memory, so that inserting and removing one value again and again does not allocate.
    spare: Option<u32>,
    /// The number of pages that have memory.
    allocated_pages: u32,
    /// The version that slots start from in pages that are added.
    first_version: u32,
    count: usize,
    keys: PhantomData<fn(K) -> K>,
}

struct Page<V> {
    /// One bit for each slot that holds a value.
    occupied: u64,
    /// Empty while the page has no memory.
    slots: Box<[Slot<V>]>,
    /// The version that slots start from when the page gets memory again: no slot of it had a key with this version or a later
    /// one.
    first_version: u32,
}

struct Slot<V> {
    version: u32,
    value: Option<V>,
}

/// A key without its version, for tables whose entries refer to each other. It is half as large as a key, and
/// `Option<SlotNumber>` is as large as it is. It finds whatever value is in the slot. So drop it before the value is removed,
/// or store the key instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SlotNumber<K: Key>(NonZeroU32, PhantomData<fn(K) -> K>);

impl<K: Key> SlotNumber<K> {
    pub(crate) fn of(key: K) -> SlotNumber<K> {
        SlotNumber(NonZeroU32::MIN.saturating_add(key.data().as_ffi() as u32), PhantomData)
    }

    /// The number that [`from_number`](Self::from_number) takes. Never zero.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The inverse of [`number`](Self::number). `None` for zero.
    pub(crate) fn from_number(number: u32) -> Option<SlotNumber<K>> {
        NonZeroU32::new(number).map(|number| SlotNumber(number, PhantomData))
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

impl<K: Key, V> PagedArena<K, V> {
    pub(crate) fn new() -> PagedArena<K, V> {
        PagedArena {
            pages: Vec::new(),
            not_full: Vec::new(),
            spare: None,
            allocated_pages: 0,
            first_version: FIRST_VERSION,
            count: 0,
            keys: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, value: V) -> K {
        self.insert_with_key(|_| value).0
    }

    /// Inserts the value that `make` returns for the new key. Returns the key and the value in place.
    #[inline(always)]
    pub(crate) fn insert_with_key(&mut self, make: impl FnOnce(K) -> V) -> (K, &mut V) {
        let (number, at) = self.free_slot_in_used_page().unwrap_or_else(|| self.allocate_slot());
        let page = &mut self.pages[number as usize];
        let slot = &mut page.slots[at as usize];
        let key = key(number * PAGE + at, slot.version);
        let value = slot.value.insert(make(key));
        page.occupied |= 1 << at;
        if page.occupied == FULL {
            self.not_full.pop();
        }
        self.count += 1;
        (key, value)
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let (number, at, version) = parts(key);
        let slot = self.pages.get(number as usize)?.slots.get(at)?;
        if slot.version == version { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (number, at, version) = parts(key);
        let slot = self.pages.get_mut(number as usize)?.slots.get_mut(at)?;
        if slot.version == version { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (number, at, version) = parts(key);
        self.remove_from(number, at, |found| found == version).map(|(_, value)| value)
    }

    /// Removes the value of a slot if `is_expected` accepts its version. Returns the version and the value.
    fn remove_from(&mut self, number: u32, at: usize, is_expected: impl FnOnce(u32) -> bool) -> Option<(u32, V)> {
        self.remove_with(number, at, |version, value| {
            if is_expected(version) { value.take().map(|value| (version, value)) } else { None }
        })
    }

    /// Calls `take` with a slot that has a value. `take` either empties the slot, or changes nothing and returns `None`.
    #[inline]
    fn remove_with<R>(
        &mut self,
        number: u32,
        at: usize,
        take: impl FnOnce(u32, &mut Option<V>) -> Option<R>,
    ) -> Option<R> {
        let page = self.pages.get_mut(number as usize)?;
        let slot = page.slots.get_mut(at)?;
        slot.value.as_ref()?;
        let taken = take(slot.version, &mut slot.value)?;
        slot.version = next(slot.version);
        if page.occupied == FULL {
            self.not_full.push(number);
        }
        page.occupied &= !(1 << at);
        self.count -= 1;
        if page.occupied == 0 {
            self.free_page(number);
        }
        Some(taken)
    }

    /// Returns the value in a slot, whatever its version.
    pub(crate) fn at(&self, slot: SlotNumber<K>) -> Option<&V> {
        let (number, at) = page_and_position(slot.slot());
        self.pages.get(number as usize)?.slots.get(at)?.value.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: SlotNumber<K>) -> Option<&mut V> {
        let (number, at) = page_and_position(slot.slot());
        self.pages.get_mut(number as usize)?.slots.get_mut(at)?.value.as_mut()
    }

    /// Returns the key of the value in a slot.
    pub(crate) fn key_at(&self, slot: SlotNumber<K>) -> Option<K> {
        let (number, at) = page_and_position(slot.slot());
        let found = self.pages.get(number as usize)?.slots.get(at)?;
        found.value.as_ref().map(|_| key(slot.slot(), found.version))
    }

    /// Returns the value in a slot, with its key.
    pub(crate) fn entry_at(&self, slot: SlotNumber<K>) -> Option<(K, &V)> {
        let (number, at) = page_and_position(slot.slot());
        let found = self.pages.get(number as usize)?.slots.get(at)?;
        found.value.as_ref().map(|value| (key(slot.slot(), found.version), value))
    }

    /// Prefetches a slot.
    #[inline]
    pub(crate) fn prefetch(&self, slot: SlotNumber<K>) {
        let (number, at) = page_and_position(slot.slot());
        if let Some(slot) = self.pages.get(number as usize).and_then(|page| page.slots.get(at)) {
            prefetch(slot);
        }
    }

    /// Prefetches the `count` slots that end with `last`, as far as they are in the same page.
    #[inline]
    pub(crate) fn prefetch_up_to(&self, last: SlotNumber<K>, count: u32) {
        let (number, at) = page_and_position(last.slot());
        let Some(page) = self.pages.get(number as usize) else { return };
        if let Some(wanted) = page.slots.get((at + 1).saturating_sub(count as usize)..=at) {
            prefetch(wanted);
        }
    }

    /// Prefetches the `count` slots that the next inserts fill, as far as they are in the current page.
    #[inline]
    pub(crate) fn prefetch_free_slots(&self, count: usize) {
        if let Some(page) = self.not_full.last().and_then(|number| self.pages.get(*number as usize)) {
            let first = page.occupied.trailing_ones() as usize;
            if let Some(wanted) = page.slots.get(first..).and_then(|free| free.get(..count.min(free.len()))) {
                prefetch(wanted);
            }
        }
    }

    /// Removes the value in a slot, whatever its version. Returns its key and the value.
    pub(crate) fn remove_at(&mut self, slot: SlotNumber<K>) -> Option<(K, V)> {
        let (number, at) = page_and_position(slot.slot());
        let (version, value) = self.remove_from(number, at, |_| true)?;
        Some((key(slot.slot(), version), value))
    }

    /// Drops the value in a slot in place, whatever its version. Calls `inspect` with it first.
    #[inline(always)]
    pub(crate) fn drop_at(&mut self, slot: SlotNumber<K>, inspect: impl FnOnce(K, &V)) {
        let (number, at) = page_and_position(slot.slot());
        self.remove_with(number, at, |version, value| {
            if let Some(value) = &*value {
                inspect(key(slot.slot(), version), value);
            }
            *value = None;
            Some(())
        });
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.iter().flat_map(|page| &page.slots).filter_map(|slot| slot.value.as_ref())
    }

    /// The values of one page. `None` after the last page. A value stays in its page until it is removed.
    pub(crate) fn page_values(&self, page: usize) -> Option<impl Iterator<Item = &V>> {
        Some(self.pages.get(page)?.slots.iter().filter_map(|slot| slot.value.as_ref()))
    }

    /// Returns the slot that the next insert fills, if its page has a value already and need not grow.
    #[inline(always)]
    fn free_slot_in_used_page(&self) -> Option<(u32, u32)> {
        let number = *self.not_full.last()?;
        let Page { occupied, slots, .. } = &self.pages[number as usize];
        let at = occupied.trailing_ones();
        (*occupied != 0 && slots.len() > at as usize).then_some((number, at))
    }

    /// Returns the slot that the next insert fills. Gives its page memory, or grows it, where needed.
    #[inline(never)]
    fn allocate_slot(&mut self) -> (u32, u32) {
        let number = self.choose_page();
        self.spare.take_if(|spare| *spare == number);
        let page = &mut self.pages[number as usize];
        if page.slots.len() <= page.occupied.trailing_ones() as usize {
            self.allocated_pages += u32::from(page.slots.is_empty());
            page.grow(number);
        }
        (number, page.occupied.trailing_ones())
    }

    fn choose_page(&mut self) -> u32 {
        if let Some(top) = self.not_full.last_mut() {
            if let Some(spare) = self.spare
                && self.pages[*top as usize].slots.is_empty()
            {
                // Prefer the spare page, which has memory, to a page that would need an allocation.
                let at = self.not_full.iter().rposition(|number| *number == spare);
                let last = self.not_full.len() - 1;
                self.not_full.swap(at.unwrap_or(last), last);
                return self.not_full[last];
            }
            return *top;
        }
        let number = self.pages.len() as u32;
        self.pages.push(Page { occupied: 0, slots: Box::default(), first_version: self.first_version });
        self.not_full.push(number);
        number
    }

    /// Frees the memory of an empty page, unless it becomes the spare.
    fn free_page(&mut self, number: u32) {
        if *self.spare.get_or_insert(number) == number {
            return;
        }
        self.pages[number as usize].free();
        self.allocated_pages -= 1;
        // A power of two is reached seldom, so the cost per removal is negligible.
        if self.allocated_pages.is_power_of_two() && self.pages.len() > MIN_RECORDS {
            self.drop_last_pages();
        }
    }

    /// Removes the records of the empty pages at the end. `first_version` keeps the highest of their versions.
    fn drop_last_pages(&mut self) {
        while let Some(mut last) = self.pages.pop_if(|page| page.occupied == 0) {
            if !last.slots.is_empty() {
                last.free();
                self.allocated_pages -= 1;
                self.spare = None;
            }
            self.first_version = self.first_version.max(last.first_version);
        }
        let remaining = self.pages.len();
        self.not_full.retain(|number| (*number as usize) < remaining);
        self.pages.shrink_to(remaining * 2);
        self.not_full.shrink_to(remaining * 2);
    }
}

impl<V> Page<V> {
    /// Gives the page memory. The first page doubles its memory instead.
    #[cold]
    fn grow(&mut self, number: u32) {
        let capacity = if number == 0 { (self.slots.len() * 2).max(MIN_SLOTS) } else { PAGE as usize };
        let mut slots = mem::take(&mut self.slots).into_vec();
        slots.reserve_exact(capacity - slots.len());
        slots.resize_with(capacity, || Slot { version: self.first_version, value: None });
        self.slots = slots.into_boxed_slice();
    }

    /// Frees the memory of an empty page. `first_version` keeps the highest version of its slots.
    fn free(&mut self) {
        let slots = mem::take(&mut self.slots);
        self.first_version = slots.iter().map(|slot| slot.version).fold(self.first_version, u32::max);
    }
}

/// Splits a slot number into the page number and the position in the page.
#[inline]
fn page_and_position(slot: u32) -> (u32, usize) {
    (slot / PAGE, (slot % PAGE) as usize)
}

impl<K: Key, V> Index<K> for PagedArena<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        self.get(key).expect("the key finds no value: it was removed, or belongs to another arena")
    }
}

impl<K: Key, V> IndexMut<K> for PagedArena<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        self.get_mut(key).expect("the key finds no value: it was removed, or belongs to another arena")
    }
}

impl<K: Key, V> Index<SlotNumber<K>> for PagedArena<K, V> {
    type Output = V;
    #[inline(always)]
    fn index(&self, slot: SlotNumber<K>) -> &V {
        self.at(slot).expect("the slot has no value: it was removed")
    }
}

impl<K: Key, V> IndexMut<SlotNumber<K>> for PagedArena<K, V> {
    #[inline(always)]
    fn index_mut(&mut self, slot: SlotNumber<K>) -> &mut V {
        self.at_mut(slot).expect("the slot has no value: it was removed")
    }
}

pub(super) fn key<K: Key>(slot: u32, version: u32) -> K {
    KeyData::from_ffi(u64::from(version) << 32 | u64::from(slot)).into()
}

/// Splits a key into the page number, the position in the page and the version.
pub(super) fn parts<K: Key>(key: K) -> (u32, usize, u32) {
    let data = key.data().as_ffi();
    let (page, at) = page_and_position(data as u32);
    (page, at, (data >> 32) as u32)
}

/// The version after this one. `slotmap`'s keys have odd versions. They wrap after 2^31 uses of one slot, as in `slotmap`.
fn next(version: u32) -> u32 {
    version.wrapping_add(2)
}

const FIRST_VERSION: u32 = 1;

/// An arena with at most this many page records removes none.
const MIN_RECORDS: usize = 16;

/// The number of slots that the first page starts with.
pub(super) const MIN_SLOTS: usize = 4;

/// The number of slots in a page: one bit each in `Page::occupied`.
pub(super) const PAGE: u32 = u64::BITS;

/// The value of `Page::occupied` when all slots have a value.
const FULL: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::sized;

    slotmap::new_key_type! { struct TestKey; }

    fn allocated_pages(arena: &PagedArena<TestKey, String>) -> usize {
        arena.pages.iter().filter(|page| !page.slots.is_empty()).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn it_agrees_with_a_map_and_an_old_key_never_finds_a_new_value(
            steps in prop::collection::vec((0..5u8, any::<usize>()), 1..sized(1500, 60)),
        ) {
            let (mut arena, mut live, mut removed) = (PagedArena::<TestKey, String>::new(), HashMap::new(), Vec::new());
            for (kind, pick) in steps {
                // Phases of growth and of shrinking, so that pages are allocated and freed.
                if (kind < 3) == (pick % 7 < 5) || live.is_empty() {
                    let (key, _) = arena.insert_with_key(|key| format!("{key:?} {pick}"));
                    prop_assert!(!removed.contains(&key));
                    prop_assert_eq!(live.insert(key, format!("{key:?} {pick}")), None);
                } else {
                    let key = *live.keys().nth(pick % live.len()).unwrap();
                    prop_assert_eq!(arena.remove(key), live.remove(&key));
                    removed.push(key);
                }
                prop_assert_eq!(arena.len(), live.len());
            }
            for key in &removed {
                prop_assert_eq!(arena.get(*key), None);
                prop_assert_eq!(arena.remove(*key), None);
            }
            for (key, value) in &live {
                prop_assert_eq!(arena.get(*key), Some(value));
            }
            let mut values: Vec<_> = arena.values().cloned().collect();
            let mut expected: Vec<_> = live.into_values().collect();
            values.sort();
            expected.sort();
            prop_assert_eq!(values, expected);
        }
    }

    #[test]
    fn an_empty_arena_keeps_the_memory_of_one_page_at_most() {
        const VALUES: usize = sized(10_000, 300);
        const PAGES: usize = VALUES.div_ceil(PAGE as usize);
        let mut arena = PagedArena::<TestKey, String>::new();
        for _ in 0..3 {
            let keys: Vec<_> = (0..VALUES).map(|number| arena.insert(number.to_string())).collect();
            assert_eq!(allocated_pages(&arena), PAGES);
            let (odd, even): (Vec<_>, Vec<_>) = keys.into_iter().enumerate().partition(|(index, _)| index % 2 == 1);
            for (_, key) in odd.into_iter().chain(even) {
                assert!(arena.remove(key).is_some());
            }
            assert!(arena.len() == 0 && allocated_pages(&arena) <= 1);
        }
        assert!(arena.pages.len() <= MIN_RECORDS);
    }

    #[test]
    fn inserting_and_removing_one_value_allocates_no_page() {
        let mut arena = PagedArena::<TestKey, String>::new();
        let first = arena.insert(String::new());
        arena.remove(first);
        let page = arena.pages[0].slots.as_ptr();
        for _ in 0..sized(100, 10) {
            let key = arena.insert(String::new());
            assert_eq!(arena.pages[0].slots.as_ptr(), page);
            arena.remove(key);
        }
    }

    #[test]
    fn inserting_and_removing_one_value_in_an_arena_that_was_large_allocates_no_page() {
        let mut arena = PagedArena::<TestKey, String>::new();
        let keys: Vec<_> = (0..sized(1_000, 200)).map(|number| arena.insert(number.to_string())).collect();
        for key in keys {
            arena.remove(key);
        }
        let memory = |arena: &PagedArena<TestKey, String>| {
            arena.pages.iter().filter(|page| !page.slots.is_empty()).map(|page| page.slots.as_ptr()).collect::<Vec<_>>()
        };
        let key = arena.insert(String::new());
        arena.remove(key);
        let before = memory(&arena);
        for _ in 0..sized(100, 10) {
            let key = arena.insert(String::new());
            assert_eq!(memory(&arena), before);
            arena.remove(key);
        }
    }

    #[test]
    fn page_records_are_removed_and_old_keys_still_find_nothing() {
        const COUNT: usize = sized(100_000, 1_000);
        const LATE: usize = COUNT / 10 * 7;
        let mut arena = PagedArena::<TestKey, String>::new();
        let first = arena.insert("kept".to_string());
        let keys: Vec<_> = (0..COUNT).map(|number| arena.insert(number.to_string())).collect();
        for key in keys.iter().rev() {
            arena.remove(*key);
        }
        assert!(arena.pages.len() <= MIN_RECORDS && arena.pages.capacity() <= 2 * MIN_RECORDS, "{}", arena.pages.len());
        assert!(arena.not_full.capacity() <= 2 * MIN_RECORDS);
        let again: Vec<_> = (0..COUNT).map(|number| arena.insert(number.to_string())).collect();
        assert!(keys.iter().all(|key| arena.get(*key).is_none()));
        assert_eq!(arena.get(again[LATE]), Some(&LATE.to_string()));
        assert_eq!(arena.get(first).map(String::as_str), Some("kept"));
    }

    #[test]
    fn a_slot_number_finds_the_current_value() {
        let mut arena = PagedArena::<TestKey, String>::new();
        let key = arena.insert("first".to_string());
        let number = SlotNumber::of(key);
        assert_eq!((arena.at(number).map(String::as_str), arena.key_at(number)), (Some("first"), Some(key)));
        assert_eq!(arena.remove_at(number).map(|(_, value)| value).as_deref(), Some("first"));
        assert_eq!((arena.at(number), arena.key_at(number)), (None, None));
        assert_eq!(arena.remove_at(number), None);
        let later = arena.insert("second".to_string());
        assert_eq!((SlotNumber::of(later), arena.key_at(number)), (number, Some(later)));
        assert_eq!((size_of::<Option<SlotNumber<TestKey>>>(), arena.get(key)), (4, None));
    }

    #[test]
    fn an_arena_of_few_values_is_small_and_keeps_its_values_as_it_grows() {
        let mut arena = PagedArena::<TestKey, String>::new();
        let mut keys = Vec::new();
        for (count, capacity) in [(1, 4), (4, 4), (5, 8), (9, 16), (33, 64), (64, 64), (65, 128)] {
            keys.extend((keys.len()..count).map(|number| arena.insert(number.to_string())).collect::<Vec<_>>());
            assert_eq!(arena.pages.iter().map(|page| page.slots.len()).sum::<usize>(), capacity);
            assert!(keys.iter().zip(0..).all(|(key, number)| arena[*key] == number.to_string()));
        }
    }

    #[test]
    fn the_null_key_and_a_key_of_another_arena_find_nothing() {
        let mut arena = PagedArena::<TestKey, String>::new();
        assert_eq!(arena.get(TestKey::null()), None);
        arena.insert(String::new());
        assert_eq!(arena.get(TestKey::null()), None);
        let foreign: TestKey = KeyData::from_ffi(1 << 32 | 9_999).into();
        assert_eq!(arena.get(foreign), None);
        assert_eq!(arena.remove(foreign), None);
    }
}
