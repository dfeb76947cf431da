//! [`NumberMap`]: an ordered map whose keys are numbers. The tree inside is compiled once.
//!
//! A `BTreeMap` is compiled for each type of its values: about 8 KB of code each time. A `NumberMap` stores its values in a
//! vector, and the tree has their positions. So all trees are of one type. Use it where an access more does not matter.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// The tree of all maps from numbers to numbers. Use this type for such a map, too.
pub(crate) type NumberTree = BTreeMap<u64, u64>;

pub(crate) struct NumberMap<V> {
    /// The position of each value.
    places: NumberTree,
    /// `None` at the positions in `free`.
    values: Vec<Option<V>>,
    free: Vec<u64>,
}

impl<V> NumberMap<V> {
    pub(crate) const fn new() -> NumberMap<V> {
        NumberMap { places: BTreeMap::new(), values: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn contains_key(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.values[*self.places.get(&number)? as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        self.values[*self.places.get(&number)? as usize].as_mut()
    }

    pub(crate) fn get_or_insert_with(&mut self, number: u64, value: impl FnOnce() -> V) -> &mut V {
        let place = match self.places.get(&number) {
            Some(place) => *place,
            None => self.add(number, value()),
        };
        self.values[place as usize].get_or_insert_with(|| unreachable!("the tree has positions of values only"))
    }

    /// Returns the value that it replaces.
    pub(crate) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(number) {
            return Some(std::mem::replace(old, value));
        }
        self.add(number, value);
        None
    }

    /// Adds a number that the map does not have. Returns the position of its value.
    fn add(&mut self, number: u64, value: V) -> u64 {
        let place = self.free.pop().unwrap_or(self.values.len() as u64);
        match self.values.get_mut(place as usize) {
            Some(vacant) => *vacant = Some(value),
            None => self.values.push(Some(value)),
        }
        self.places.insert(number, place);
        place
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let place = self.places.remove(&number)?;
        let removed = self.values[place as usize].take();
        if self.places.is_empty() {
            (self.values, self.free) = (Vec::new(), Vec::new());
        } else {
            self.free.push(place);
        }
        removed
    }

    /// The values whose numbers are in the range, in ascending order.
    pub(crate) fn range(&self, range: impl RangeBounds<u64>) -> impl DoubleEndedIterator<Item = (u64, &V)> {
        self.places.range(range).filter_map(|(number, place)| Some((*number, self.values[*place as usize].as_ref()?)))
    }

    /// All numbers and values, in ascending order.
    pub(crate) fn into_pairs(mut self) -> impl Iterator<Item = (u64, V)> {
        self.places.into_iter().filter_map(move |(number, place)| Some((number, self.values[place as usize].take()?)))
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
        assert!(map.is_empty() && map.values.capacity() == 0 && map.free.capacity() == 0);
    }
}
