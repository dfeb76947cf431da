//! The instant-evict race: several threads remove a module at the moment when its lookup returns. Nothing may leak.
//!
//! These tests link tens of thousands of objects. `tests/session/evict.rs` repeats the session's part of the race a million times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use jittison::link::ObjectBuffer;
use jittison::session::Visibility;
use jittison::{Jit, JitDylib};

use crate::support::*;

/// A module with data, zero fill, an initialiser that its result depends on, and a call into `base`.
fn module() -> Option<ObjectBuffer> {
    c("extern long base(long); static long state; static long zero[8];
       __attribute__((constructor)) static void set(void) { state = 4; }
       long test(void) { return base(state) + zero[3]++; }")
    .map(ObjectBuffer::from)
}

fn world() -> Option<(Jit, JitDylib, ObjectBuffer)> {
    let module = module()?;
    let base = c("long base(long x) { return x * 10; }")?;
    let jit = new_jit();
    let library = jit.create_dylib("base").unwrap();
    add(&jit, &library, "base.o", &base).transfer_to(&library.default_tracker().unwrap()).unwrap();
    Some((jit, library, module))
}

/// Adds, calls and removes modules. Every other module is removed while a handle holds it.
fn churn(jit: &Jit, dylib: &JitDylib, module: &ObjectBuffer, rounds: usize) {
    for round in 0..rounds {
        let tracker = add_object(jit, dylib, "module.o", module.clone());
        let test = try_function::<extern "C" fn() -> i64>(jit, dylib, "test").unwrap();
        if round % 2 == 0 {
            let removal = tracker.remove().unwrap();
            assert_eq!(test.call(), 40);
            drop(test);
            assert!(removal.is_complete());
        } else {
            assert_eq!(test.call(), 40);
            drop(test);
            assert!(tracker.remove().unwrap().is_complete());
        }
    }
}

#[test]
fn two_threads_that_evict_twenty_thousand_modules_leave_nothing() {
    let Some((jit, library, module)) = world() else { return };
    thread::scope(|scope| {
        for _ in 0..2 {
            let dylib = jit.create_dylib("evicting").unwrap();
            dylib.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
            let (jit, module) = (&jit, &module);
            scope.spawn(move || {
                churn(jit, &dylib, module, 10_000);
                assert_eq!(dylib.symbol_count(), 0);
                assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
            });
        }
    });
    assert_eq!((held(&jit).0, jit.layer().key_count()), (1, 1), "only the library is left");
    assert!(library.clear().unwrap().is_empty());
    assert_eq!((held(&jit), jit.layer().key_count()), ((0, 0, 0), 0));
    // One range per pool and per shard that the two threads and this thread used.
    let ranges = jit.memory_statistics().free_ranges;
    assert!(ranges.is_multiple_of(3) && ranges <= 9, "{ranges}");
}

#[test]
fn two_threads_that_evict_in_one_dylib_leave_nothing() {
    let Some((jit, library, _)) = world() else { return };
    let dylib = jit.create_dylib("shared").unwrap();
    dylib.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let objects: Option<Vec<_>> =
        (0..2).map(|i| c(&format!("extern long base(long); long test{i}(void) {{ return base({i}); }}"))).collect();
    let Some(objects) = objects else { return };
    thread::scope(|scope| {
        for (index, object) in objects.into_iter().enumerate() {
            let (jit, dylib, object) = (&jit, &dylib, ObjectBuffer::from(object));
            scope.spawn(move || {
                for _ in 0..2000 {
                    let tracker = add_object(jit, dylib, "module.o", object.clone());
                    assert_eq!(long_in(jit, dylib, &format!("test{index}")), index as i64 * 10);
                    assert!(tracker.remove().unwrap().is_complete());
                }
            });
        }
    });
    assert_eq!((dylib.symbol_count(), held(&jit).0), (0, 1));
}

#[test]
fn a_lookup_that_races_with_a_removal_finds_a_complete_module_or_none() {
    let Some((jit, library, module)) = world() else { return };
    let dylib = jit.create_dylib("raced").unwrap();
    dylib.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let found = AtomicU64::new(0);
    let count = || found.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let finder = scope.spawn(|| {
            for _ in 0..1_000_000 {
                if let Ok(test) = try_function::<extern "C" fn() -> i64>(&jit, &dylib, "test") {
                    assert!(test.call() >= 40);
                    found.fetch_add(1, Ordering::Relaxed);
                }
                if count() == 2_000 {
                    break;
                }
            }
        });
        for round in 0.. {
            if finder.is_finished() {
                break;
            }
            let tracker = add_object(&jit, &dylib, "module.o", module.clone());
            thread::yield_now();
            // In three of four rounds remove at once. In the fourth wait until the other thread has found the module.
            let before = count();
            while round % 4 == 0 && count() == before && !finder.is_finished() {
                thread::yield_now();
            }
            tracker.remove().unwrap();
        }
        finder.join().unwrap();
    });
    assert_eq!(count(), 2_000);
    assert_eq!((dylib.symbol_count(), held(&jit).0), (0, 1));
    assert!(library.clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn two_threads_that_remove_one_module_both_see_it_gone() {
    let Some((jit, library, module)) = world() else { return };
    let dylib = jit.create_dylib("twice").unwrap();
    dylib.set_link_order(&[(library, Visibility::ExportedOnly)]).unwrap();
    for _ in 0..500 {
        let tracker = add_object(&jit, &dylib, "module.o", module.clone());
        assert_eq!(long_in(&jit, &dylib, "test"), 40);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| tracker.remove().unwrap().wait().unwrap());
            }
        });
        assert_eq!(held(&jit).0, 1);
    }
}
