//! [`CodeCache`]: compiled code by key, bounded in bytes and in entries. When it is full, the entry that was used least recently
//! is evicted.
//!
//! Each entry has a dylib of its own, so entries may define the same names. What runs is never freed: a caller holds its entry,
//! and the dylib is removed when the last holder drops the entry. The cache is one of the holders, until it evicts the entry.
//!
//! ```
//! # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/add.o"));
//! use jittison::{Function, Jit};
//! use jittison_cache::{CodeCache, Limits};
//!
//! type Add = extern "C" fn(i32, i32) -> i32;
//!
//! # fn main() -> Result<(), jittison::Error> {
//! let jit = Jit::new()?;
//! let cache: CodeCache<u64, Function<Add>> = CodeCache::new(&jit, Limits { bytes: 1 << 20, entries: 100 });
//!
//! let contract = 0xabcd;
//! let entry = cache.get_or_compile(&contract, |dylib, tracker| {
//!     jit.link_object(tracker, "add.o", ADD)?;
//!     // Safety: the function has this signature.
//!     unsafe { jit.lookup_in(dylib, "add") }
//! })?;
//! assert_eq!(entry.call(40, 2), 42);
//! assert!(entry.bytes() > 0);
//! assert_eq!(cache.statistics().entries, 1);
//! # Ok(()) }
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod entries;
mod objects;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jittison::error::Result;
use jittison::{Jit, JitDylib, ResourceTracker};
use lru::DefaultHasher;
use parking_lot::Mutex;

use crate::entries::{Entries, Listed};

pub use objects::ObjectCache;

/// Compiled code by key. Shared by reference between threads.
///
/// A drop of the cache evicts all entries.
///
/// No lock is held while code of keys and values runs (`Hash`, `Eq`, `Clone`, `Drop`). So that code may call the cache, and a
/// panic of it leaves the cache as it is.
pub struct CodeCache<K, V> {
    jit: Jit,
    limits: Limits,
    hasher: DefaultHasher,
    state: Mutex<State<K, V>>,
    /// Bytes of evicted entries that somebody still holds.
    evicted_bytes: Arc<AtomicU64>,
    next_number: AtomicU64,
}

/// What a cache holds at most. The entry that was added last stays even if it is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of code, constants, data and their bookkeeping in code memory.
    pub bytes: u64,
    /// Number of entries.
    pub entries: usize,
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Entries in the cache.
    pub entries: usize,
    /// Bytes of the entries in the cache.
    pub bytes: u64,
    /// Bytes of entries that were evicted and that somebody still holds.
    pub evicted_bytes: u64,
    /// Calls that found their entry.
    pub hits: u64,
    /// Calls that compiled.
    pub misses: u64,
    /// Entries that were evicted, by the limits or by [`CodeCache::evict`].
    pub evictions: u64,
}

struct State<K, V> {
    entries: Entries<K, V>,
    statistics: Statistics,
}

/// An entry of a cache: what the compiler returned, mostly handles of functions. A clone keeps the entry's code and names, also
/// after eviction.
pub struct Entry<V>(Arc<Shared<V>>);

struct Shared<V> {
    /// Dropped first: handles of functions pin the code.
    value: V,
    code: Code,
}

/// The code of an entry. The drop removes it.
struct Code {
    dylib: JitDylib,
    jit: Jit,
    bytes: u64,
    /// Where the bytes are counted while the entry is evicted and held.
    evicted_bytes: Arc<AtomicU64>,
    /// Relaxed: the drop of the last `Arc` orders it.
    is_evicted: AtomicBool,
}

impl<K: Hash + Eq + Clone, V> CodeCache<K, V> {
    /// Makes an empty cache in a session.
    pub fn new(jit: &Jit, limits: Limits) -> CodeCache<K, V> {
        let state = State { entries: Entries::new(), statistics: Statistics::default() };
        let (hasher, evicted_bytes, next_number) = (DefaultHasher::default(), Arc::default(), AtomicU64::new(0));
        CodeCache { jit: jit.clone(), limits, hasher, state: Mutex::new(state), evicted_bytes, next_number }
    }

    /// The entry of a key, if there is one. It counts as used.
    pub fn get(&self, key: &K) -> Option<Entry<V>> {
        let found = self.find(key)?;
        let mut state = self.state.lock();
        state.entries.promote(found.number);
        state.statistics.hits += 1;
        drop(state);
        Some(found.entry)
    }

    /// The entry of a key. If there is none, `compile` links the code of a new one under the given tracker and returns what the
    /// entry holds. Then entries are evicted until the limits hold.
    ///
    /// `compile` runs without a lock. If two threads compile one key at a time, one of the two results is dropped, and both get
    /// the other one.
    ///
    /// # Errors
    /// Those of `compile`, and [`ErrorKind::SessionEnded`](jittison::ErrorKind::SessionEnded). Then nothing is added.
    pub fn get_or_compile(
        &self,
        key: &K,
        compile: impl FnOnce(&JitDylib, &ResourceTracker) -> Result<V>,
    ) -> Result<Entry<V>> {
        if let Some(entry) = self.get(key) {
            return Ok(entry);
        }
        let compiled = self.compile(compile)?;
        self.state.lock().statistics.misses += 1;
        let (hash, new_key) = (self.hasher.hash_one(key), Arc::new(key.clone()));
        let mut compared = 0;
        let mut state = self.state.lock();
        while let Some(other) = state.entries.after(hash, compared) {
            drop(state);
            if *other.key == *key {
                self.state.lock().entries.promote(other.number);
                return Ok(other.entry);
            }
            compared = other.number;
            drop(other);
            state = self.state.lock();
        }
        // Under the lock that was held when the last other entry had been compared.
        state.statistics.bytes += compiled.bytes();
        state.entries.add(hash, new_key, compiled.clone());
        let evicted = self.shrink(&mut state);
        drop(state);
        evicted.into_iter().for_each(Listed::evict);
        Ok(compiled)
    }

    /// Evicts an entry. Returns whether there was one.
    pub fn evict(&self, key: &K) -> bool {
        let Some(found) = self.find(key) else { return false };
        let mut state = self.state.lock();
        let taken = state.take(found.number);
        drop(state);
        let is_taken = taken.is_some();
        taken.into_iter().for_each(Listed::evict);
        is_taken
    }

    /// Evicts all entries.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        let mut evicted = Vec::with_capacity(state.entries.len());
        while let Some(oldest) = state.take_oldest() {
            evicted.push(oldest);
        }
        drop(state);
        evicted.into_iter().for_each(Listed::evict);
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        let state = self.state.lock();
        let evicted_bytes = self.evicted_bytes.load(Ordering::Relaxed);
        Statistics { entries: state.entries.len(), evicted_bytes, ..state.statistics }
    }

    /// Looks for the entry of a key. Compares keys without the lock.
    fn find(&self, key: &K) -> Option<Listed<K, V>> {
        let (hash, mut compared) = (self.hasher.hash_one(key), 0);
        loop {
            let other = self.state.lock().entries.after(hash, compared)?;
            if *other.key == *key {
                return Some(other);
            }
            compared = other.number;
        }
    }

    /// Compiles an entry in a dylib of its own. If that fails, the dylib is removed.
    fn compile(&self, compile: impl FnOnce(&JitDylib, &ResourceTracker) -> Result<V>) -> Result<Entry<V>> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let dylib = self.jit.create_dylib(&format!("cache entry {number} of {self:p}"))?;
        let (jit, evicted_bytes) = (self.jit.clone(), self.evicted_bytes.clone());
        // From here on the drop of `code` removes the dylib.
        let mut code = Code { dylib, jit, bytes: 0, evicted_bytes, is_evicted: AtomicBool::new(false) };
        let tracker = code.dylib.create_tracker()?;
        let value = compile(&code.dylib, &tracker)?;
        code.bytes = self.jit.usage_of_dylib(&code.dylib).total();
        Ok(Entry(Arc::new(Shared { value, code })))
    }

    /// Takes the entries out that exceed the limits, those that were used least recently first.
    fn shrink(&self, state: &mut State<K, V>) -> Vec<Listed<K, V>> {
        let mut evicted = Vec::new();
        while state.entries.len() > 1
            && (state.entries.len() > self.limits.entries || state.statistics.bytes > self.limits.bytes)
        {
            evicted.extend(state.take_oldest());
        }
        evicted
    }
}

impl<K, V> State<K, V> {
    fn take(&mut self, number: u64) -> Option<Listed<K, V>> {
        let taken = self.entries.take(number);
        self.count_eviction(taken)
    }

    fn take_oldest(&mut self) -> Option<Listed<K, V>> {
        let taken = self.entries.take_oldest();
        self.count_eviction(taken)
    }

    /// Counts that an entry was taken out.
    fn count_eviction(&mut self, taken: Option<Listed<K, V>>) -> Option<Listed<K, V>> {
        if let Some(taken) = &taken {
            self.statistics.bytes -= taken.entry.bytes();
            self.statistics.evictions += 1;
        }
        taken
    }
}

impl<K, V> Listed<K, V> {
    /// Drops the references of the cache. The caller holds no lock.
    fn evict(self) {
        let code = &self.entry.0.code;
        code.evicted_bytes.fetch_add(code.bytes, Ordering::Relaxed);
        code.is_evicted.store(true, Ordering::Relaxed);
    }
}

impl<V> Entry<V> {
    /// Bytes of the entry in code memory.
    pub fn bytes(&self) -> u64 {
        self.0.code.bytes
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if *self.is_evicted.get_mut() {
            self.evicted_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        // An error means that the session has ended, so nothing is left to remove.
        let _ = self.jit.session().remove_dylib(&self.dylib);
    }
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Entry<V> {
        Entry(self.0.clone())
    }
}

impl<V> Deref for Entry<V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0.value
    }
}

impl<V: fmt::Debug> fmt::Debug for Entry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.0.value, self.0.code.bytes)
    }
}

impl<K: Hash + Eq, V> fmt::Debug for CodeCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let Limits { bytes, entries } = self.limits;
        write!(
            f,
            "cache with {} of {entries} entries, {} of {bytes} bytes",
            state.entries.len(),
            state.statistics.bytes
        )
    }
}
