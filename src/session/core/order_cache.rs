//! [`OrderCache`]: where in a long link order the first definition of a name is.
//!
//! A search from a dylib goes through its link order, dylib by dylib. The cache of the dylib has, for each name that was
//! searched, the first position that defines it. All earlier positions define nothing that the search sees. The next search
//! goes to that position at once, and asks the dylib there. So it costs the same behind any number of dylibs.
//!
//! | what makes an entry invalid | how a reader finds out |
//! |---|---|
//! | an earlier dylib, or the one at the position, defines the name | its [`Watch`] is cleared (`symbols/name_watch.rs`) |
//! | the definition is removed | the dylib at the position does not have it |
//! | an earlier dylib gets a generator | the count of added generators differs |
//! | the link order changes, or the dylib is closed | the cache is empty |
//!
//! A closed dylib of the order defines nothing, so entries stay valid. The cache holds such dylibs, which are empty, until an
//! eighth of them is closed; then it is made anew.
//!
//! The first search for a name, and the first after one of these events, goes through the order and costs in proportion to
//! it. The cache has at most [`MAX_NAMES`] names of about 100 bytes.

use hashbrown::HashTable;

use crate::base::{Name, count_step};
use crate::session::core::jit_dylib::LinkCache;
use crate::session::symbols::name_watch::{NameWatch, Watch, WatchVersions};
use crate::session::types::name_hash::NameHash;
use crate::sync::{Arc, Rank, ReadMostly};

/// The cached link order of a dylib. Readers write no common word.
pub(crate) struct OrderCache(ReadMostly<CachedOrder>);

/// A link order, and the first definitions of names in it. A position counts from the dylib itself, which has 0.
#[derive(Default)]
pub(crate) struct CachedOrder {
    /// The dylibs from position 1 on. `None` while the cache is empty.
    others: Option<LinkCache>,
    versions: WatchVersions,
    /// The positions of dylibs with generators, in order.
    generators: Vec<u32>,
    names: HashTable<FirstDefinition>,
}

/// Where the first definition of a name is.
pub(crate) struct FirstDefinition {
    pub(crate) name: Name,
    pub(crate) hash: NameHash,
    pub(crate) watch: Watch,
    /// One past the last position if no dylib defines the name.
    pub(crate) position: u32,
}

impl OrderCache {
    pub(crate) fn new() -> OrderCache {
        OrderCache(ReadMostly::ranked(Rank::Growth))
    }

    /// Calls `body` with the cached order, if there is one and it is valid. `body` may take locks of the rank `Leaf`.
    #[inline]
    pub(crate) fn read<R>(&self, names: &NameWatch, body: impl FnOnce(&CachedOrder) -> Option<R>) -> Option<R> {
        self.0.read(|order| order.is_current(names.versions()).then(|| body(order)).flatten()).flatten()
    }

    /// Whether there is a cached order, valid or not.
    pub(crate) fn is_made(&self) -> bool {
        self.0.read(|order| order.others.is_some()) == Some(true)
    }

    /// Replaces the cached order. The caller holds the dylib's lock, and drops the result without it.
    #[must_use]
    pub(crate) fn replace(&self, others: LinkCache, versions: WatchVersions, generators: Vec<u32>) -> CachedOrder {
        let new = CachedOrder { others: Some(others), versions, generators, names: HashTable::new() };
        self.0.write(|order| std::mem::replace(order, new))
    }

    /// Makes the cache empty. The caller drops the result without the dylib's lock.
    #[must_use]
    pub(crate) fn clear(&self) -> Option<CachedOrder> {
        self.0.write_existing(std::mem::take)
    }

    /// Adds names, unless the order has changed since `others` was read.
    pub(crate) fn add(&self, others: &LinkCache, found: impl Iterator<Item = FirstDefinition>) {
        self.0.write(|order| {
            if order.others.as_ref().is_some_and(|cached| Arc::ptr_eq(cached, others)) {
                found.for_each(|found| order.insert(found));
            }
        });
    }
}

impl CachedOrder {
    fn is_current(&self, now: WatchVersions) -> bool {
        let WatchVersions { generators_added, dylibs_closed } = self.versions;
        let Some(others) = &self.others else { return false };
        let closed = now.dylibs_closed.wrapping_sub(dylibs_closed);
        now.generators_added == generators_added && closed <= others.len() as u64 / MAX_CLOSED_PART
    }

    pub(crate) fn others(&self) -> Option<&LinkCache> {
        self.others.as_ref()
    }

    /// The first position that defines a name. `None` if it is not known.
    #[inline]
    pub(crate) fn first(&self, names: &NameWatch, name: &[u8], hash: NameHash) -> Option<u32> {
        count_step();
        let is_named = |entry: &FirstDefinition| entry.hash == hash && entry.name.borrowed().as_bytes() == name;
        let entry = self.names.find(hash.spread(), is_named)?;
        names.is_set(hash, entry.watch).then_some(entry.position)
    }

    /// The first position at or after `from` whose dylib has a generator.
    pub(crate) fn generator_from(&self, from: u32) -> Option<u32> {
        self.generators.get(self.generators.partition_point(|position| *position < from)).copied()
    }

    fn insert(&mut self, found: FirstDefinition) {
        if self.names.len() == MAX_NAMES {
            self.names.clear();
        }
        let hash = found.hash.spread();
        let is_same = |entry: &FirstDefinition| entry.hash == found.hash && entry.name == found.name;
        match self.names.find_mut(hash, is_same) {
            Some(entry) => *entry = found,
            None => _ = self.names.insert_unique(hash, found, |entry| entry.hash.spread()),
        }
    }
}

/// The most names of one dylib's cache. One more clears it.
const MAX_NAMES: usize = if cfg!(loom) { 2 } else { 8192 };

/// The cache is made anew when more than this part of its dylibs is closed.
const MAX_CLOSED_PART: u64 = 8;
