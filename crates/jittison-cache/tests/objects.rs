//! Promises of the cache of objects: one compilation for all sessions, the limit, counters.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use jittison::link::ObjectBuffer;
use jittison::{Error, Jit};
use jittison_cache::ObjectCache;
use jittison_test_tools::c;

fn bytes(size: usize) -> ObjectBuffer {
    vec![0; size].into()
}

#[test]
fn threads_of_several_sessions_compile_a_key_once_and_share_its_bytes() {
    let Some(add) = c("int add(int a, int b) { return a + b; }") else { return };
    let (cache, compiled, start) = (ObjectCache::new(1 << 20), AtomicUsize::new(0), Barrier::new(8));
    let addresses: Vec<_> = std::thread::scope(|scope| {
        let run = || {
            let jit = Jit::new().unwrap();
            start.wait();
            let compile = || {
                compiled.fetch_add(1, Ordering::Relaxed);
                Ok(add.clone().into())
            };
            let object = cache.get_or_compile("add", compile).unwrap();
            let address = object.as_ptr() as usize;
            let tracker = jit.main_dylib().create_tracker().unwrap();
            jit.link_object(&tracker, "add.o", object).unwrap();
            // Safety: the function has this signature.
            let sum = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add") }.unwrap();
            assert_eq!(sum.call(2, 3), 5);
            address
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(compiled.load(Ordering::Relaxed), 1);
    assert!(addresses.iter().all(|address| *address == addresses[0]), "{addresses:?}");
    assert_eq!((cache.misses(), cache.hits(), cache.len(), cache.bytes()), (1, 7, 1, add.len() as u64));
}

#[test]
fn a_cache_never_holds_more_bytes_than_its_limit() {
    let cache = ObjectCache::<u32>::new(1000);
    for key in 0..100 {
        cache.get_or_compile(&key, || Ok(bytes(300))).unwrap();
        assert!(cache.bytes() <= 1000, "{cache:?}");
    }
    assert!((1..=3).contains(&cache.len()), "{cache:?}");
    // Larger than the cache.
    assert_eq!(cache.get_or_compile(&1000, || Ok(bytes(2000))).unwrap().len(), 2000);
    assert!(cache.get(&1000).is_none());
    cache.clear();
    assert_eq!((cache.bytes(), cache.is_empty()), (0, true));
}

#[test]
fn a_compilation_that_fails_or_panics_adds_nothing_and_another_one_follows() {
    let cache = ObjectCache::<String>::new(1000);
    let error = cache.get_or_compile("a", || Err(Error::other("no register left"))).unwrap_err();
    assert_eq!(error.to_string(), "no register left");
    let panic = std::panic::AssertUnwindSafe(|| cache.get_or_compile("a", || panic!("the compiler is broken")));
    assert!(std::panic::catch_unwind(panic).is_err());
    assert!(cache.get("a").is_none());
    assert_eq!(cache.get_or_compile("a", || Ok(bytes(10))).unwrap().len(), 10);
    assert!(cache.remove("a") && !cache.remove("a"));
    assert_eq!((cache.misses(), cache.hits()), (2, 0));
}
