//! [`PagedArena`]: values under generational keys, as in `slotmap`, in pages that are given back when they are empty.
//!
//! A table that once held a million symbols and holds ten is as small as one that never held more: the records of pages go
//! too, once nearly all is gone. Keys are `slotmap`'s, and mean what they mean there: a key of a value that is gone names
//! nothing, even when its slot is used again. Inserting, finding and removing take constant time, but for the first page, which
//! grows from a few slots, so that a table of a few values takes little.

use std::marker::PhantomData;
use std::mem;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use slotmap::{Key, KeyData};

use crate::prefetch::prefetch;

pub(crate) struct PagedArena<K: Key, V> {
    pages: Vec<Page<V>>,
    /// Pages with room, those without memory among them; the last one is filled next.
    with_room: Vec<u32>,
    /// A page that became empty and keeps its memory, so that a value that comes and goes costs no allocation.
    spare: Option<u32>,
    /// Pages that have memory.
    in_memory: u32,
    /// What versions start from in pages that are added.
    first_version: u32,
    count: usize,
    keys: PhantomData<fn(K) -> K>,
}

struct Page<V> {
    /// One bit for each slot that holds a value.
    occupied: u64,
    /// None while the page holds nothing.
    slots: Box<[Slot<V>]>,
    /// What versions of slots start from when the page is made anew: above all that were ever given out.
    first_version: u32,
}

struct Slot<V> {
    version: u32,
    value: Option<V>,
}

/// A key without its version, for tables whose entries refer to each other: half as large, and `None` takes no room.
/// Whoever keeps one has to forget it before the value is removed; of a value that may be gone, keep the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SlotNumber<K: Key>(NonZeroU32, PhantomData<fn(K) -> K>);

impl<K: Key> SlotNumber<K> {
    pub(crate) fn of(key: K) -> SlotNumber<K> {
        SlotNumber(NonZeroU32::MIN.saturating_add(key.data().as_ffi() as u32), PhantomData)
    }

    /// Never zero.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The one that has a number, which none has if it is zero.
    pub(crate) fn numbered(number: u32) -> Option<SlotNumber<K>> {
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
            with_room: Vec::new(),
            spare: None,
            in_memory: 0,
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

    /// Inserts what `make` makes of the key; with where it stands.
    #[inline(always)]
    pub(crate) fn insert_with_key(&mut self, make: impl FnOnce(K) -> V) -> (K, &mut V) {
        let (number, at) = self.slot_in_use().unwrap_or_else(|| self.slot_with_memory());
        let page = &mut self.pages[number as usize];
        let slot = &mut page.slots[at as usize];
        let key = key(number * PAGE + at, slot.version);
        let value = slot.value.insert(make(key));
        page.occupied |= 1 << at;
        if page.occupied == FULL {
            self.with_room.pop();
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

    /// Takes the value of a slot out if its version is as it should be, which is returned with it.
    fn remove_from(&mut self, number: u32, at: usize, is_right: impl FnOnce(u32) -> bool) -> Option<(u32, V)> {
        self.take_from(
            number,
            at,
            |version, value| {
                if is_right(version) { value.take().map(|value| (version, value)) } else { None }
            },
        )
    }

    /// Has `take` empty a slot, or leave it as it is and return nothing.
    #[inline]
    fn take_from<R>(
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
            self.with_room.push(number);
        }
        page.occupied &= !(1 << at);
        self.count -= 1;
        if page.occupied == 0 {
            self.retire(number);
        }
        Some(taken)
    }

    /// The value in a slot, whatever its version.
    pub(crate) fn at(&self, slot: SlotNumber<K>) -> Option<&V> {
        let (number, at) = place_of(slot.slot());
        self.pages.get(number as usize)?.slots.get(at)?.value.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: SlotNumber<K>) -> Option<&mut V> {
        let (number, at) = place_of(slot.slot());
        self.pages.get_mut(number as usize)?.slots.get_mut(at)?.value.as_mut()
    }

    /// The key of the value in a slot.
    pub(crate) fn key_at(&self, slot: SlotNumber<K>) -> Option<K> {
        let (number, at) = place_of(slot.slot());
        let held = self.pages.get(number as usize)?.slots.get(at)?;
        held.value.as_ref().map(|_| key(slot.slot(), held.version))
    }

    /// The value in a slot, with its key.
    pub(crate) fn entry_at(&self, slot: SlotNumber<K>) -> Option<(K, &V)> {
        let (number, at) = place_of(slot.slot());
        let held = self.pages.get(number as usize)?.slots.get(at)?;
        held.value.as_ref().map(|value| (key(slot.slot(), held.version), value))
    }

    /// Asks for a slot ahead of its use.
    #[inline]
    pub(crate) fn prefetch(&self, slot: SlotNumber<K>) {
        let (number, at) = place_of(slot.slot());
        if let Some(slot) = self.pages.get(number as usize).and_then(|page| page.slots.get(at)) {
            prefetch(slot);
        }
    }

    /// Asks for so many slots up to this one, as far as they are of its page.
    #[inline]
    pub(crate) fn prefetch_up_to(&self, last: SlotNumber<K>, count: u32) {
        let (number, at) = place_of(last.slot());
        let Some(page) = self.pages.get(number as usize) else { return };
        if let Some(wanted) = page.slots.get((at + 1).saturating_sub(count as usize)..=at) {
            prefetch(wanted);
        }
    }

    /// Asks for the slots that are filled next, of the page in use.
    #[inline]
    pub(crate) fn prefetch_room(&self, count: usize) {
        if let Some(page) = self.with_room.last().and_then(|number| self.pages.get(*number as usize)) {
            let first = page.occupied.trailing_ones() as usize;
            if let Some(wanted) = page.slots.get(first..).and_then(|room| room.get(..count.min(room.len()))) {
                prefetch(wanted);
            }
        }
    }

    /// Takes out the value in a slot, whatever its version; with the key that it had.
    pub(crate) fn remove_at(&mut self, slot: SlotNumber<K>) -> Option<(K, V)> {
        let (number, at) = place_of(slot.slot());
        let (version, value) = self.remove_from(number, at, |_| true)?;
        Some((key(slot.slot(), version), value))
    }

    /// Drops the value in a slot, whatever its version, when `see` has seen it where it stands.
    #[inline(always)]
    pub(crate) fn drop_at(&mut self, slot: SlotNumber<K>, see: impl FnOnce(K, &V)) {
        let (number, at) = place_of(slot.slot());
        self.take_from(number, at, |version, value| {
            if let Some(value) = &*value {
                see(key(slot.slot(), version), value);
            }
            *value = None;
            Some(())
        });
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.iter().flat_map(|page| &page.slots).filter_map(|slot| slot.value.as_ref())
    }

    /// The slot that is filled next, if its page holds something already and need not grow.
    #[inline(always)]
    fn slot_in_use(&self) -> Option<(u32, u32)> {
        let number = *self.with_room.last()?;
        let Page { occupied, slots, .. } = &self.pages[number as usize];
        let at = occupied.trailing_ones();
        (*occupied != 0 && slots.len() > at as usize).then_some((number, at))
    }

    /// The slot that is filled next, with memory for it.
    #[inline(never)]
    fn slot_with_memory(&mut self) -> (u32, u32) {
        let number = self.page_with_room();
        self.spare.take_if(|spare| *spare == number);
        let page = &mut self.pages[number as usize];
        if page.slots.len() <= page.occupied.trailing_ones() as usize {
            self.in_memory += u32::from(page.slots.is_empty());
            page.grow(number);
        }
        (number, page.occupied.trailing_ones())
    }

    fn page_with_room(&mut self) -> u32 {
        if let Some(top) = self.with_room.last_mut() {
            if let Some(spare) = self.spare
                && self.pages[*top as usize].slots.is_empty()
            {
                // Rather the empty page that has memory than one that would have to get some.
                let at = self.with_room.iter().rposition(|number| *number == spare);
                let last = self.with_room.len() - 1;
                self.with_room.swap(at.unwrap_or(last), last);
                return self.with_room[last];
            }
            return *top;
        }
        let number = self.pages.len() as u32;
        self.pages.push(Page { occupied: 0, slots: Box::default(), first_version: self.first_version });
        self.with_room.push(number);
        number
    }

    /// Gives the memory of an empty page back, but for one.
    fn retire(&mut self, number: u32) {
        if *self.spare.get_or_insert(number) == number {
            return;
        }
        self.pages[number as usize].empty();
        self.in_memory -= 1;
        // So rarely that it costs nothing to speak of.
        if self.in_memory.is_power_of_two() && self.pages.len() > FEW_PAGES {
            self.drop_last_pages();
        }
    }

    /// Forgets the last pages as far as they hold nothing, but for their versions.
    fn drop_last_pages(&mut self) {
        while let Some(mut last) = self.pages.pop_if(|page| page.occupied == 0) {
            if !last.slots.is_empty() {
                last.empty();
                self.in_memory -= 1;
                self.spare = None;
            }
            self.first_version = self.first_version.max(last.first_version);
        }
        let left = self.pages.len();
        self.with_room.retain(|number| (*number as usize) < left);
        self.pages.shrink_to(left * 2);
        self.with_room.shrink_to(left * 2);
    }
}

impl<V> Page<V> {
    /// Gets memory, the first page more of it.
    #[cold]
    fn grow(&mut self, number: u32) {
        let capacity = if number == 0 { (self.slots.len() * 2).max(SMALLEST) } else { PAGE as usize };
        let mut slots = mem::take(&mut self.slots).into_vec();
        slots.reserve_exact(capacity - slots.len());
        slots.resize_with(capacity, || Slot { version: self.first_version, value: None });
        self.slots = slots.into_boxed_slice();
    }

    /// Gives the memory back; what it held is gone.
    fn empty(&mut self) {
        let slots = mem::take(&mut self.slots);
        self.first_version = slots.iter().map(|slot| slot.version).fold(self.first_version, u32::max);
    }
}

/// The page of a slot, and its place there.
#[inline]
fn place_of(slot: u32) -> (u32, usize) {
    (slot / PAGE, (slot % PAGE) as usize)
}

impl<K: Key, V> Index<K> for PagedArena<K, V> {
    type Output = V;
    fn index(&self, key: K) -> &V {
        self.get(key).expect("the key names a value")
    }
}

impl<K: Key, V> IndexMut<K> for PagedArena<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        self.get_mut(key).expect("the key names a value")
    }
}

impl<K: Key, V> Index<SlotNumber<K>> for PagedArena<K, V> {
    type Output = V;
    #[inline(always)]
    fn index(&self, slot: SlotNumber<K>) -> &V {
        self.at(slot).expect("the slot holds a value")
    }
}

impl<K: Key, V> IndexMut<SlotNumber<K>> for PagedArena<K, V> {
    #[inline(always)]
    fn index_mut(&mut self, slot: SlotNumber<K>) -> &mut V {
        self.at_mut(slot).expect("the slot holds a value")
    }
}

pub(super) fn key<K: Key>(slot: u32, version: u32) -> K {
    KeyData::from_ffi(u64::from(version) << 32 | u64::from(slot)).into()
}

/// The page, the place in it, and the version.
pub(super) fn parts<K: Key>(key: K) -> (u32, usize, u32) {
    let data = key.data().as_ffi();
    let (page, at) = place_of(data as u32);
    (page, at, (data >> 32) as u32)
}

/// `slotmap`'s keys have odd versions. After two thousand million uses of one slot they begin again, as there.
fn next(version: u32) -> u32 {
    version.wrapping_add(2)
}

const FIRST_VERSION: u32 = 1;

/// Of so few pages the records are kept whatever happens.
const FEW_PAGES: usize = 16;

/// Slots that the first page begins with.
pub(super) const SMALLEST: usize = 4;

/// Slots of a page: as many as a word has bits.
pub(super) const PAGE: u32 = u64::BITS;

/// What is occupied when all slots of a page are.
const FULL: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::sized;

    slotmap::new_key_type! { struct TestKey; }

    fn allocated_pages(slots: &PagedArena<TestKey, String>) -> usize {
        slots.pages.iter().filter(|page| !page.slots.is_empty()).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn it_agrees_with_a_map_and_no_old_key_ever_names_a_new_value(
            steps in prop::collection::vec((0..5u8, any::<usize>()), 1..sized(1500, 60)),
        ) {
            let (mut slots, mut live, mut gone) = (PagedArena::<TestKey, String>::new(), HashMap::new(), Vec::new());
            for (kind, pick) in steps {
                // Phases of growth and of shrinking, so that pages come and go.
                if (kind < 3) == (pick % 7 < 5) || live.is_empty() {
                    let (key, _) = slots.insert_with_key(|key| format!("{key:?} {pick}"));
                    prop_assert!(!gone.contains(&key));
                    prop_assert_eq!(live.insert(key, format!("{key:?} {pick}")), None);
                } else {
                    let key = *live.keys().nth(pick % live.len()).unwrap();
                    prop_assert_eq!(slots.remove(key), live.remove(&key));
                    gone.push(key);
                }
                prop_assert_eq!(slots.len(), live.len());
            }
            for key in &gone {
                prop_assert_eq!(slots.get(*key), None);
                prop_assert_eq!(slots.remove(*key), None);
            }
            for (key, value) in &live {
                prop_assert_eq!(slots.get(*key), Some(value));
            }
            let mut values: Vec<_> = slots.values().cloned().collect();
            let mut expected: Vec<_> = live.into_values().collect();
            values.sort();
            expected.sort();
            prop_assert_eq!(values, expected);
        }
    }

    #[test]
    fn what_is_removed_leaves_one_page_at_most() {
        const VALUES: usize = sized(10_000, 300);
        const PAGES: usize = VALUES.div_ceil(PAGE as usize);
        let mut slots = PagedArena::<TestKey, String>::new();
        for _ in 0..3 {
            let keys: Vec<_> = (0..VALUES).map(|number| slots.insert(number.to_string())).collect();
            assert_eq!(allocated_pages(&slots), PAGES);
            let (odd, even): (Vec<_>, Vec<_>) = keys.into_iter().enumerate().partition(|(index, _)| index % 2 == 1);
            for (_, key) in odd.into_iter().chain(even) {
                assert!(slots.remove(key).is_some());
            }
            assert!(slots.len() == 0 && allocated_pages(&slots) <= 1);
        }
        assert!(slots.pages.len() <= FEW_PAGES);
    }

    #[test]
    fn a_value_that_comes_and_goes_allocates_no_page_anew() {
        let mut slots = PagedArena::<TestKey, String>::new();
        let first = slots.insert(String::new());
        slots.remove(first);
        let page = slots.pages[0].slots.as_ptr();
        for _ in 0..sized(100, 10) {
            let key = slots.insert(String::new());
            assert_eq!(slots.pages[0].slots.as_ptr(), page);
            slots.remove(key);
        }
    }

    #[test]
    fn a_value_that_comes_and_goes_beside_a_table_that_was_large_allocates_no_page_anew() {
        let mut slots = PagedArena::<TestKey, String>::new();
        let keys: Vec<_> = (0..sized(1_000, 200)).map(|number| slots.insert(number.to_string())).collect();
        for key in keys {
            slots.remove(key);
        }
        let memory = |slots: &PagedArena<TestKey, String>| {
            slots.pages.iter().filter(|page| !page.slots.is_empty()).map(|page| page.slots.as_ptr()).collect::<Vec<_>>()
        };
        let key = slots.insert(String::new());
        slots.remove(key);
        let kept = memory(&slots);
        for _ in 0..sized(100, 10) {
            let key = slots.insert(String::new());
            assert_eq!(memory(&slots), kept);
            slots.remove(key);
        }
    }

    #[test]
    fn the_records_of_pages_go_too_and_old_keys_still_name_nothing() {
        const COUNT: usize = sized(100_000, 1_000);
        const LATE: usize = COUNT / 10 * 7;
        let mut slots = PagedArena::<TestKey, String>::new();
        let keep = slots.insert("kept".to_string());
        let keys: Vec<_> = (0..COUNT).map(|number| slots.insert(number.to_string())).collect();
        for key in keys.iter().rev() {
            slots.remove(*key);
        }
        assert!(slots.pages.len() <= FEW_PAGES && slots.pages.capacity() <= 2 * FEW_PAGES, "{}", slots.pages.len());
        assert!(slots.with_room.capacity() <= 2 * FEW_PAGES);
        let again: Vec<_> = (0..COUNT).map(|number| slots.insert(number.to_string())).collect();
        assert!(keys.iter().all(|key| slots.get(*key).is_none()));
        assert_eq!(slots.get(again[LATE]), Some(&LATE.to_string()));
        assert_eq!(slots.get(keep).map(String::as_str), Some("kept"));
    }

    #[test]
    fn a_slot_number_finds_what_is_there_now() {
        let mut slots = PagedArena::<TestKey, String>::new();
        let key = slots.insert("first".to_string());
        let number = SlotNumber::of(key);
        assert_eq!((slots.at(number).map(String::as_str), slots.key_at(number)), (Some("first"), Some(key)));
        assert_eq!(slots.remove_at(number).map(|(_, value)| value).as_deref(), Some("first"));
        assert_eq!((slots.at(number), slots.key_at(number)), (None, None));
        assert_eq!(slots.remove_at(number), None);
        let later = slots.insert("second".to_string());
        assert_eq!((SlotNumber::of(later), slots.key_at(number)), (number, Some(later)));
        assert_eq!((size_of::<Option<SlotNumber<TestKey>>>(), slots.get(key)), (4, None));
    }

    #[test]
    fn a_table_of_a_few_values_takes_little_and_keeps_them_as_it_grows() {
        let mut slots = PagedArena::<TestKey, String>::new();
        let mut keys = Vec::new();
        for (count, room) in [(1, 4), (4, 4), (5, 8), (9, 16), (33, 64), (64, 64), (65, 128)] {
            keys.extend((keys.len()..count).map(|number| slots.insert(number.to_string())).collect::<Vec<_>>());
            assert_eq!(slots.pages.iter().map(|page| page.slots.len()).sum::<usize>(), room);
            assert!(keys.iter().zip(0..).all(|(key, number)| slots[*key] == number.to_string()));
        }
    }

    #[test]
    fn keys_of_nothing_and_of_elsewhere_name_nothing() {
        let mut slots = PagedArena::<TestKey, String>::new();
        assert_eq!(slots.get(TestKey::null()), None);
        slots.insert(String::new());
        assert_eq!(slots.get(TestKey::null()), None);
        let elsewhere: TestKey = KeyData::from_ffi(1 << 32 | 9_999).into();
        assert_eq!(slots.get(elsewhere), None);
        assert_eq!(slots.remove(elsewhere), None);
    }
}
