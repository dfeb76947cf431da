//! [`ObjectCache`]: compiled objects by key, for several sessions.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::error::Result;
use jittison::link::ObjectBuffer;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Compiled objects by key, bounded in bytes, for all sessions of a program: a controller with several executors compiles once, and
/// links in each of them (ORC: `ObjectCache`). The objects that were used least go first.
///
/// The cache hashes and compares keys under a lock, so this code of a key must not call the cache.
/// All users of an object share its bytes. Each session links them for itself, so a removal in one session touches no other.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/add.o"));
/// use jittison::Jit;
/// use jittison_cache::ObjectCache;
///
/// # fn main() -> Result<(), jittison::Error> {
/// let objects = ObjectCache::new(64 << 20);
/// let sessions = [Jit::new()?, Jit::new()?];
/// for jit in &sessions {
///     let object = objects.get_or_compile("add", || Ok(ADD.into()))?;
///     jit.add_object(&jit.main_dylib().create_tracker()?, "add.o", object)?;
/// }
/// assert_eq!((objects.hits(), objects.misses()), (1, 1));
/// # Ok(()) }
/// ```
pub struct ObjectCache<K> {
    objects: Cache<K, ObjectBuffer, Bytes>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct Bytes;

impl<K> Weighter<K, ObjectBuffer> for Bytes {
    fn weight(&self, _: &K, object: &ObjectBuffer) -> u64 {
        object.len() as u64
    }
}

impl<K: Hash + Eq> ObjectCache<K> {
    /// An empty cache of at most `bytes` bytes of objects. An object that is larger is compiled whenever it is asked for.
    pub fn new(bytes: u64) -> ObjectCache<K> {
        let expected = (bytes / EXPECTED_BYTES).clamp(16, 1 << 16) as usize;
        let objects = Cache::with_weighter(expected, bytes, Bytes);
        ObjectCache { objects, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// The object of a key. If there is none, `compile` makes it. Other threads that ask for the same key meanwhile wait, and get it, too.
    /// `compile` may ask for other keys, and not for this one.
    ///
    /// # Errors
    /// Those of `compile`. Then nothing is added, and a thread that waits compiles itself.
    pub fn get_or_compile<Q>(&self, key: &Q, compile: impl FnOnce() -> Result<ObjectBuffer>) -> Result<ObjectBuffer>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut is_hit = true;
        let object = self.objects.get_or_insert_with(key, || {
            is_hit = false;
            compile()
        });
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        object
    }

    /// The object of a key, if there is one. It counts as used.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<ObjectBuffer>
    where
        K: Borrow<Q>,
    {
        let found = self.objects.get(key)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Removes the object of a key. Returns whether there was one. Code that was linked from it stays.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.objects.remove(key).is_some()
    }

    /// Removes all objects.
    pub fn clear(&self) {
        self.objects.clear();
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.weight()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How often a call found its object, or waited for another thread that made it.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// How often a call compiled.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

impl<K: Hash + Eq> fmt::Debug for ObjectCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache with {} objects, {} bytes", self.len(), self.bytes())
    }
}

/// A size of objects, from which the first size of tables follows.
const EXPECTED_BYTES: u64 = 8 << 10;
