//! Promises of the cache: limits, order of eviction, counters, and that held code stays.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use jittison::link::{GraphBuilder, NewBlock, NewSymbol};
use jittison::{Error, Function, Jit, JitDylib, ResourceTracker};
use jittison_cache::{CodeCache, Limits};

type Get = extern "C" fn() -> u32;
type Cache = CodeCache<u32, Function<Get>>;

/// A function that returns `value`, which has 16 bits, in a block of 256 bytes.
fn compile(jit: &Jit, dylib: &JitDylib, tracker: &ResourceTracker, value: u32) -> Result<Function<Get>, Error> {
    let mut graph = GraphBuilder::new("contract");
    let mut code = if cfg!(target_arch = "x86_64") {
        // mov $value, %eax; ret
        [&[0xb8][..], &value.to_le_bytes(), &[0xc3]].concat()
    } else {
        // mov w0, #value; ret
        [0x5280_0000 | value << 5, 0xd65f_03c0].map(u32::to_le_bytes).concat()
    };
    code.resize(256, 0);
    let text = graph.add_block(NewBlock::code(code));
    graph.add_symbol(NewSymbol::function("run", text, 0));
    jit.link_graph(tracker, graph.finish()?)?;
    // Safety: the function has this signature.
    unsafe { jit.lookup_in(dylib, "run") }
}

fn run(jit: &Jit, cache: &Cache, key: u32) -> u32 {
    cache.get_or_compile(&key, |dylib, tracker| compile(jit, dylib, tracker, key * 10)).unwrap().call()
}

fn cache(entries: usize, bytes: u64) -> (Jit, Cache) {
    let jit = Jit::new().unwrap();
    let cache = CodeCache::new(&jit, Limits { bytes, entries });
    (jit, cache)
}

#[test]
fn an_entry_is_compiled_once_and_entries_may_define_the_same_name() {
    let (jit, cache) = cache(10, u64::MAX);
    assert_eq!([1, 2, 1, 2].map(|key| run(&jit, &cache, key)), [10, 20, 10, 20]);
    let counters = cache.statistics();
    assert_eq!((counters.entries, counters.hits, counters.misses, counters.evictions), (2, 2, 2, 0));
    assert_eq!(counters.bytes, cache.get(&1).unwrap().bytes() + cache.get(&2).unwrap().bytes());
}

#[test]
fn the_least_recently_used_entry_is_evicted_and_its_memory_freed() {
    let (jit, cache) = cache(2, u64::MAX);
    let live = jit.memory_statistics().live_bytes;
    run(&jit, &cache, 1);
    let one = jit.memory_statistics().live_bytes - live;
    assert_eq!([2, 1, 3].map(|key| run(&jit, &cache, key)), [20, 10, 30]);
    assert!(cache.get(&2).is_none() && cache.get(&1).is_some() && cache.get(&3).is_some());
    assert_eq!(jit.memory_statistics().live_bytes - live, 2 * one);
    assert_eq!(cache.statistics().evictions, 1);
    cache.clear();
    assert_eq!(jit.memory_statistics().live_bytes, live);
    assert_eq!((cache.statistics().bytes, cache.statistics().entries), (0, 0));
}

#[test]
fn bytes_are_limited_and_the_newest_entry_stays_even_if_it_is_too_large() {
    let (jit, cache) = cache(100, 1000);
    (0..20).for_each(|key| assert_eq!(run(&jit, &cache, key), key * 10));
    let counters = cache.statistics();
    assert!(counters.bytes <= 1000 && counters.entries >= 1 && counters.evictions > 10, "{counters:?}");
    let tiny: Cache = CodeCache::new(&jit, Limits { bytes: 1, entries: 100 });
    assert_eq!([1, 2].map(|key| run(&jit, &tiny, key)), [10, 20]);
    assert_eq!(tiny.statistics().entries, 1);
}

#[test]
fn an_evicted_entry_stays_as_long_as_a_caller_holds_it() {
    let (jit, cache) = cache(1, u64::MAX);
    let live = jit.memory_statistics().live_bytes;
    let held = cache.get_or_compile(&1, |dylib, tracker| compile(&jit, dylib, tracker, 7)).unwrap();
    run(&jit, &cache, 2);
    assert!(cache.get(&1).is_none());
    assert_eq!(held.call(), 7);
    assert_eq!(cache.statistics().evicted_bytes, held.bytes());
    drop(held);
    assert_eq!(cache.statistics().evicted_bytes, 0);
    assert!(cache.evict(&2) && !cache.evict(&2));
    assert_eq!(jit.memory_statistics().live_bytes, live);
}

/// Symptom: eviction removed the dylib of an entry that a caller held. Code that was not linked yet could not be linked any more, and
/// an address lost its memory.
#[test]
fn an_evicted_entry_keeps_its_names_and_its_memory_as_long_as_a_caller_holds_it() {
    let jit = Jit::new().unwrap();
    let live = jit.memory_statistics().live_bytes;
    let cache = CodeCache::new(&jit, Limits { bytes: u64::MAX, entries: 1 });
    let held = cache.get_or_compile(&1, |dylib, tracker| {
        drop(compile(&jit, dylib, tracker, 7)?);
        Ok((dylib.clone(), jit.address_of(dylib, "run")?))
    });
    let held = held.unwrap();
    let bytes = jit.memory_statistics().live_bytes - live;
    assert!(cache.evict(&1) && cache.get(&1).is_none());
    assert_eq!(jit.address_of(&held.0, "run").unwrap(), held.1);
    assert_eq!(jit.memory_statistics().live_bytes, live + bytes);
    let dylib = held.0.clone();
    drop(held);
    assert!(dylib.is_defunct());
    assert_eq!(jit.memory_statistics().live_bytes, live);
}

#[test]
fn a_failed_compilation_adds_nothing_and_may_be_tried_again() {
    let (jit, cache) = cache(10, u64::MAX);
    let live = jit.memory_statistics().live_bytes;
    let failed = cache.get_or_compile(&1, |dylib, tracker| {
        compile(&jit, dylib, tracker, 1)?;
        Err(Error::other("the compiler gives up"))
    });
    assert!(failed.is_err() && cache.get(&1).is_none());
    let panicking = std::panic::AssertUnwindSafe(|| {
        cache.get_or_compile(&1, |dylib, tracker| {
            compile(&jit, dylib, tracker, 1)?;
            std::panic::resume_unwind(Box::new("the compiler panics"))
        })
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(jit.memory_statistics().live_bytes, live);
    assert_eq!(run(&jit, &cache, 1), 10);
}

#[test]
fn a_dropped_cache_frees_its_entries_and_leaves_held_ones_to_their_holders() {
    let (jit, cache) = cache(10, u64::MAX);
    let live = jit.memory_statistics().live_bytes;
    let held = cache.get_or_compile(&1, |dylib, tracker| compile(&jit, dylib, tracker, 7)).unwrap();
    run(&jit, &cache, 2);
    drop(cache);
    assert_eq!(held.call(), 7);
    drop(held);
    assert_eq!(jit.memory_statistics().live_bytes, live);
}

#[test]
fn threads_run_entries_while_others_are_evicted() {
    let (jit, cache) = cache(8, u64::MAX);
    let live = jit.memory_statistics().live_bytes;
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (jit, cache, wrong) = (&jit, &cache, &wrong);
            scope.spawn(move || {
                for round in 0..2000 {
                    let key = (round * 7 + thread * 3) % 32;
                    wrong.fetch_add(u64::from(run(jit, cache, key) != key * 10), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(wrong.into_inner(), 0);
    let counters = cache.statistics();
    assert_eq!((counters.entries, counters.evicted_bytes), (8, 0));
    assert_eq!(counters.hits + counters.misses, 8000);
    drop(cache);
    assert_eq!(jit.memory_statistics().live_bytes, live);
}

/// The cache of keys that call it.
type CallingCache = CodeCache<CallingKey, u32>;

/// A key whose code calls the cache, and panics on demand. All have one hash, so keys are compared.
struct CallingKey {
    number: u32,
    cache: Weak<CallingCache>,
    is_panicking: bool,
}

impl CallingKey {
    fn new(number: u32, cache: &Arc<CallingCache>) -> CallingKey {
        CallingKey { number, cache: Arc::downgrade(cache), is_panicking: false }
    }

    fn call_cache(&self) {
        self.cache.upgrade().into_iter().for_each(|cache| _ = cache.statistics());
    }
}

impl Hash for CallingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.call_cache();
        0.hash(state);
    }
}

impl PartialEq for CallingKey {
    fn eq(&self, other: &CallingKey) -> bool {
        self.call_cache();
        assert!(!self.is_panicking && !other.is_panicking, "the comparison panics");
        self.number == other.number
    }
}

impl Eq for CallingKey {}

impl Clone for CallingKey {
    fn clone(&self) -> CallingKey {
        self.call_cache();
        CallingKey { number: self.number, cache: self.cache.clone(), is_panicking: self.is_panicking }
    }
}

impl Drop for CallingKey {
    fn drop(&mut self) {
        self.call_cache();
    }
}

fn calling_cache(entries: usize) -> Arc<CallingCache> {
    Arc::new(CodeCache::new(&Jit::new().unwrap(), Limits { bytes: u64::MAX, entries }))
}

/// Runs on a thread of its own, so that a deadlock fails the test.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        send.send(()).unwrap();
    });
    let ended = receive.recv_timeout(std::time::Duration::from_secs(60));
    assert_ne!(ended, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "a lock is held while code of a key runs");
    thread.join().unwrap();
}

/// Symptom: keys were hashed, compared and dropped under the lock of the cache, so a key that called the cache waited for ever.
#[test]
fn code_of_keys_may_call_the_cache() {
    ends(|| {
        let cache = calling_cache(2);
        let key = |number| CallingKey::new(number, &cache);
        for number in [1, 2, 3, 3, 2] {
            assert_eq!(*cache.get_or_compile(&key(number), |_, _| Ok(number)).unwrap(), number);
        }
        assert!(cache.get(&key(1)).is_none() && cache.get(&key(3)).is_some());
        let counters = cache.statistics();
        assert_eq!((counters.entries, counters.hits, counters.misses, counters.evictions), (2, 3, 3, 1));
        assert!(cache.evict(&key(2)) && !cache.evict(&key(2)));
        cache.clear();
        assert_eq!(cache.statistics().evictions, 3);
        // A key that compiles another one meanwhile, in its own place.
        let compiled = cache.get_or_compile(&key(4), |_, _| {
            assert_eq!(*cache.get_or_compile(&key(4), |_, _| Ok(1)).unwrap(), 1);
            Ok(2)
        });
        assert_eq!((*compiled.unwrap(), cache.statistics().entries), (1, 1));
    });
}

#[test]
fn a_comparison_that_panics_changes_nothing() {
    ends(|| {
        let cache = calling_cache(10);
        drop(cache.get_or_compile(&CallingKey::new(1, &cache), |_, _| Ok(1)).unwrap());
        let mut panicking = CallingKey::new(1, &cache);
        panicking.is_panicking = true;
        let call = std::panic::AssertUnwindSafe(|| cache.evict(&panicking));
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(cache.get(&CallingKey::new(1, &cache)).map(|entry| *entry), Some(1));
    });
}
