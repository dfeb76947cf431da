//! [`Entries`]: the entries of a cache by the hashes of their keys, in the order of their use.
//!
//! The cache has a lock around this type. So the type runs no code of keys and values: it does not hash, compare, clone or drop
//! them. A caller takes one entry with the hash of its key after the other, and compares the keys without the lock. Numbers of
//! entries only grow. So a caller that has compared all entries up to a number continues with those that were added meanwhile.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::Arc;

use lru::LruCache;

use crate::Entry;

/// The entries of a cache.
pub(crate) struct Entries<K, V> {
    /// By number. The order is that of use.
    listed: LruCache<u64, Listed<K, V>>,
    /// For each hash, the numbers of its entries, the oldest first. No list is empty.
    numbers: HashMap<u64, Vec<u64>>,
    last_number: u64,
}

/// An entry with its key.
pub(crate) struct Listed<K, V> {
    /// Positive. No other entry of the cache has or had it.
    pub(crate) number: u64,
    hash: u64,
    pub(crate) key: Arc<K>,
    pub(crate) entry: Entry<V>,
}

impl<K, V> Entries<K, V> {
    pub(crate) fn new() -> Entries<K, V> {
        Entries { listed: LruCache::unbounded(), numbers: HashMap::new(), last_number: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    /// The oldest entry with this hash whose number is greater than `number`.
    pub(crate) fn after(&self, hash: u64, number: u64) -> Option<Listed<K, V>> {
        let next = self.numbers.get(&hash)?.iter().find(|next| **next > number)?;
        self.listed.peek(next).cloned()
    }

    /// Adds an entry, as the one that was used last.
    pub(crate) fn add(&mut self, hash: u64, key: Arc<K>, entry: Entry<V>) {
        self.last_number += 1;
        let number = self.last_number;
        self.numbers.entry(hash).or_default().push(number);
        self.listed.put(number, Listed { number, hash, key, entry });
    }

    /// Notes that an entry was used, if it is still there.
    pub(crate) fn promote(&mut self, number: u64) {
        self.listed.promote(&number);
    }

    /// Takes out an entry, if it is still there. The caller drops it without the lock.
    pub(crate) fn take(&mut self, number: u64) -> Option<Listed<K, V>> {
        let listed = self.listed.pop(&number)?;
        self.forget_number(&listed);
        Some(listed)
    }

    /// Takes out the entry that was used least recently. The caller drops it without the lock.
    pub(crate) fn take_oldest(&mut self) -> Option<Listed<K, V>> {
        let (_, listed) = self.listed.pop_lru()?;
        self.forget_number(&listed);
        Some(listed)
    }

    fn forget_number(&mut self, listed: &Listed<K, V>) {
        let hash_map::Entry::Occupied(mut numbers) = self.numbers.entry(listed.hash) else { return };
        numbers.get_mut().retain(|number| *number != listed.number);
        if numbers.get().is_empty() {
            numbers.remove();
        }
    }
}

impl<K, V> Clone for Listed<K, V> {
    fn clone(&self) -> Listed<K, V> {
        Listed { number: self.number, hash: self.hash, key: self.key.clone(), entry: self.entry.clone() }
    }
}
