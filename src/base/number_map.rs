//! [`NumberMap`]: an ordered map whose keys are numbers. The tree inside is compiled once.
//!
//! A `BTreeMap` is compiled for each type of its values: about 8 KB of code each time. A `NumberMap` stores its values in
//! pages, and the tree has their positions. So all trees are of one type. Use it where an access more does not matter.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Values of a page.
const PAGE: usize = 64;

/// The tree of all maps from numbers to numbers. Use this type for such a map, too.
pub(crate) type NumberTree = BTreeMap<u64, u64>;

pub(crate) struct NumberMap<V> {
    /// The position of each value.
    places: NumberTree,
    /// Pages of [`PAGE`] values. No step moves more than one page.
    pages: Vec<Vec<Slot<V>>>,
    /// The first vacant position, if there is one.
    vacant: Option<u64>,
}

enum Slot<V> {
    Value(V),
    /// The next vacant position.
    Vacant(Option<u64>),
}

impl<V> Slot<V> {
    fn value(self) -> Option<V> {
        match self {
            Slot::Value(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }
}

impl<V> NumberMap<V> {
    pub(crate) const fn new() -> NumberMap<V> {
        NumberMap { places: BTreeMap::new(), pages: Vec::new(), vacant: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn contains_key(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.at(*self.places.get(&number)?)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        let place = *self.places.get(&number)?;
        match self.slot(place)? {
            Slot::Value(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }

    pub(crate) fn get_or_insert_with(&mut self, number: u64, value: impl FnOnce() -> V) -> &mut V {
        if !self.contains_key(number) {
            self.add(number, value());
        }
        self.get_mut(number).unwrap_or_else(|| unreachable!("the tree has positions of values only"))
    }

    /// Returns the value that it replaces.
    pub(crate) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(number) {
            return Some(std::mem::replace(old, value));
        }
        self.add(number, value);
        None
    }

    /// Adds a number that the map does not have.
    fn add(&mut self, number: u64, value: V) {
        let vacant = self.vacant;
        let place = match vacant.and_then(|place| self.slot(place)) {
            Some(slot) => {
                let filled = std::mem::replace(slot, Slot::Value(value));
                self.vacant = if let Slot::Vacant(next) = filled { next } else { None };
                vacant.unwrap_or_default()
            }
            None => self.append(value),
        };
        self.places.insert(number, place);
    }

    /// Returns the position of the value.
    fn append(&mut self, value: V) -> u64 {
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::new());
        }
        let last = self.pages.len() - 1;
        let page = &mut self.pages[last];
        page.push(Slot::Value(value));
        (last * PAGE + page.len() - 1) as u64
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let (place, vacant) = (self.places.remove(&number)?, self.vacant);
        let removed = std::mem::replace(self.slot(place)?, Slot::Vacant(vacant));
        self.vacant = Some(place);
        if self.places.is_empty() {
            (self.pages, self.vacant) = (Vec::new(), None);
        }
        removed.value()
    }

    fn at(&self, place: u64) -> Option<&V> {
        match self.pages.get(place as usize / PAGE)?.get(place as usize % PAGE)? {
            Slot::Value(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }

    fn slot(&mut self, place: u64) -> Option<&mut Slot<V>> {
        self.pages.get_mut(place as usize / PAGE)?.get_mut(place as usize % PAGE)
    }

    /// The values whose numbers are in the range, in ascending order.
    pub(crate) fn range(&self, range: impl RangeBounds<u64>) -> impl DoubleEndedIterator<Item = (u64, &V)> {
        self.places.range(range).filter_map(|(number, place)| Some((*number, self.at(*place)?)))
    }

    /// All numbers and values, in ascending order.
    pub(crate) fn into_pairs(mut self) -> impl Iterator<Item = (u64, V)> {
        let places = std::mem::take(&mut self.places);
        places.into_iter().filter_map(move |(number, place)| {
            let slot = std::mem::replace(self.slot(place)?, Slot::Vacant(None));
            Some((number, slot.value()?))
        })
    }

    /// All values, in ascending order of their numbers.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.range(..).map(|(_, value)| value)
    }
}

impl<V> Default for NumberMap<V> {
    fn default() -> Self {
        NumberMap::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_number_map_has_what_a_tree_of_the_values_has() {
        let (mut random, mut map, mut model) = (fastrand::Rng::with_seed(7), NumberMap::new(), BTreeMap::new());
        for step in 0..3000 {
            // Grows to some hundred values, then shrinks to none.
            let number = random.u64(..300);
            let is_removed = random.u32(..3000) < step;
            if is_removed {
                assert_eq!(map.remove(number), model.remove(&number));
            } else {
                assert_eq!(map.insert(number, step), model.insert(number, step));
            }
            assert_eq!((map.get(number), map.contains_key(number)), (model.get(&number), model.contains_key(&number)));
            if step % 50 == 0 {
                let from = random.u64(..300);
                assert!(map.range(from..).eq(model.range(from..).map(|(number, value)| (*number, value))));
                assert!(map.values().rev().eq(model.values().rev()));
            }
        }
        for number in 0..300 {
            assert_eq!(map.remove(number), model.remove(&number));
        }
        assert!(map.is_empty() && map.pages.capacity() == 0 && map.vacant.is_none());
    }
}
