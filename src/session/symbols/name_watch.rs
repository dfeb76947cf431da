//! [`NameWatch`]: tells a cache that spans dylibs whether one of the dylibs has defined a name meanwhile.
//!
//! A session has one. A [`Watch`] is a word in a table: the hash of a name, and a serial number that is used once. A definition
//! of a name with this hash, in any watched dylib, clears the word. So one load says whether a cached search is still valid,
//! however many dylibs it went through.
//!
//! | thread that caches a search            | thread that defines the name in one of the dylibs |
//! |----------------------------------------|---------------------------------------------------|
//! | 1. set the word                        | 1. lock the dylib                                 |
//! | 2. lock each dylib, mark it as watched, search it | 2. if it is watched, clear the words of the name |
//! | 3. store the result with the word      | 3. insert the symbol, unlock the dylib            |
//!
//! Either the search finds the symbol, or its lock of the dylib comes first. Then the definition sees the mark and the word,
//! and clears it. A reader that still sees the word reads before the definition has returned.
//!
//! The words of a name are in one bucket, which is a cache line. A full bucket replaces a word: that only invalidates a cache.
//! Definitions in dylibs that no such search has visited do not look at the table. Model: `loom_tests/loom_link_order.rs`.

use crate::base::count_step;
use crate::session::types::name_hash::NameHash;
use crate::sync::{AtomicU32, AtomicU64, Ordering, StaticCell, seeded_bug};

pub(crate) struct NameWatch {
    /// Allocated by the first watch.
    buckets: StaticCell<Box<[Bucket]>>,
    next_serial: AtomicU32,
    /// Counts generators that were added to watched dylibs. Increments are Release. Each pairs with the Acquire load of `versions`: a
    /// reader of the new count sees the generator.
    generators_added: AtomicU64,
    /// Counts watched dylibs that were closed. Pairs with the load of `versions`, as above.
    dylibs_closed: AtomicU64,
}

/// Words of names. Zero is no word.
#[repr(align(64))]
struct Bucket([AtomicU64; WORDS]);

/// A word of a [`NameWatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The position of the word in its bucket.
    position: u32,
    serial: u32,
}

impl Watch {
    /// A watch that is not set.
    pub(crate) const NONE: Watch = Watch { position: 0, serial: 0 };
}

/// What a cached link order depends on besides names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WatchVersions {
    pub(crate) generators_added: u64,
    pub(crate) dylibs_closed: u64,
}

impl NameWatch {
    pub(crate) fn new() -> NameWatch {
        let buckets = StaticCell::new();
        if cfg!(loom) {
            // Loom must see that the words are made before threads use them.
            buckets.get_or_init(make_buckets);
        }
        NameWatch {
            buckets,
            next_serial: AtomicU32::new(1),
            generators_added: AtomicU64::new(0),
            dylibs_closed: AtomicU64::new(0),
        }
    }

    /// Watches a name: a word that the next definition of the name clears. `None` when all serial numbers are used.
    pub(crate) fn watch(&self, hash: NameHash) -> Option<Watch> {
        let bucket = bucket_of(self.buckets.get_or_init(make_buckets), hash);
        let (mut chosen, serial) = (None, |word: u64| word as u32);
        for (position, word) in (0..).zip(&bucket.0) {
            // Acquire pairs with the swap below: threads may share a word.
            match word.load(Ordering::Acquire) {
                0 => chosen = chosen.or(Some(position)),
                word if is_of(word, hash) => return Some(Watch { position, serial: serial(word) }),
                _ => {}
            }
        }
        let next = |serial: u32| serial.checked_add(1);
        let serial = self.next_serial.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let position = chosen.unwrap_or(serial % WORDS as u32);
        // Release pairs with the load above, in another thread that shares the word. The locks of the dylibs order this before the
        // definitions that must see it.
        bucket.0[position as usize].swap(word_of(hash, serial), Ordering::AcqRel);
        Some(Watch { position, serial })
    }

    /// Whether no watched dylib has defined the name since the watch was set.
    #[inline]
    pub(crate) fn is_set(&self, hash: NameHash, watch: Watch) -> bool {
        let Some(buckets) = self.buckets.get() else { return false };
        let word = &bucket_of(buckets, hash).0[watch.position as usize];
        // Acquire pairs with the release of `clear`, for a reader that learns of the definition in this way only.
        word.load(Ordering::Acquire) == word_of(hash, watch.serial)
    }

    /// A watched dylib is about to define a name. The caller holds its lock.
    #[inline]
    pub(crate) fn clear(&self, hash: NameHash) {
        if seeded_bug!("definition_leaves_the_watch") {
            return;
        }
        let Some(buckets) = self.buckets.get() else { return };
        for word in &bucket_of(buckets, hash).0 {
            // Relaxed: the lock of the dylib orders this after each `watch` that matters, as the table above says.
            let found = word.load(Ordering::Relaxed);
            if is_of(found, hash) {
                count_step();
                // Release pairs with the load of `is_set`. If it fails, the word is that of another name by now.
                let _ = word.compare_exchange(found, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// A generator was added to a watched dylib. The caller holds its lock.
    pub(crate) fn note_generator(&self) {
        self.generators_added.fetch_add(1, Ordering::Release);
    }

    /// A watched dylib was closed. The caller holds its lock.
    pub(crate) fn note_closed(&self) {
        self.dylibs_closed.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn versions(&self) -> WatchVersions {
        WatchVersions {
            generators_added: self.generators_added.load(Ordering::Acquire),
            dylibs_closed: self.dylibs_closed.load(Ordering::Acquire),
        }
    }
}

fn make_buckets() -> Box<[Bucket]> {
    (0..BUCKETS).map(|_| Bucket(std::array::from_fn(|_| AtomicU64::new(0)))).collect()
}

fn bucket_of(buckets: &[Bucket], hash: NameHash) -> &Bucket {
    &buckets[(hash.spread() >> 32) as usize % BUCKETS]
}

/// Serial numbers are not zero, so no word is.
fn word_of(hash: NameHash, serial: u32) -> u64 {
    u64::from(hash.bits()) << 32 | u64::from(serial)
}

fn is_of(word: u64, hash: NameHash) -> bool {
    word != 0 && (word >> 32) as u32 == hash.bits()
}

/// The words of a bucket: one cache line.
const WORDS: usize = if cfg!(loom) { 2 } else { 8 };
const BUCKETS: usize = if cfg!(loom) { 1 } else { 1024 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_definition_clears_the_watch_of_its_name_and_no_other() {
        let names = NameWatch::new();
        let [one, two] = ["one", "two"].map(NameHash::of);
        assert_eq!(names.watch(one), names.watch(one));
        let watches = [one, two].map(|hash| names.watch(hash).unwrap());
        names.clear(one);
        assert_eq!([names.is_set(one, watches[0]), names.is_set(two, watches[1])], [false, true]);
        let again = names.watch(one).unwrap();
        assert!(names.is_set(one, again) && !names.is_set(one, watches[0]), "a serial number is used once");
    }

    #[test]
    fn more_names_than_words_lose_watches_and_keep_none_that_is_cleared() {
        let names = NameWatch::new();
        let hashes: Vec<_> = (0..crate::base::sized(20_000, 200)).map(|n| NameHash::of(&format!("name {n}"))).collect();
        let watches: Vec<_> = hashes.iter().map(|hash| names.watch(*hash).unwrap()).collect();
        let set = hashes.iter().zip(&watches).filter(|(hash, watch)| names.is_set(**hash, **watch)).count();
        assert!(set <= WORDS * BUCKETS);
        hashes.iter().for_each(|hash| names.clear(*hash));
        assert!(hashes.iter().zip(&watches).all(|(hash, watch)| !names.is_set(*hash, *watch)));
    }
}
