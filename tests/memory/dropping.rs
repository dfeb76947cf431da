//! Removing modules, dylibs and thousands of objects at once: the removed code is freed, and nothing else is. Names and
//! addresses can be reused.

use fastrand::Rng;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use jittison::base::SegmentKind;
use jittison::link::ObjectBuffer;
use jittison::memory::{Finalized, MemoryManager, SlabPool, SlabPoolOptions};

use crate::slab::{held as pool_held, make, plan};
use crate::support::*;

#[test]
fn four_dylibs_are_removed_in_reverse_order_and_then_their_session() {
    let Some(object) = c("long value = 4; long test(void) { return value; }") else { return };
    let memory = Arc::new(SlabPool::new(SlabPoolOptions::default()).unwrap());
    let jit = jittison::Jit::builder().memory_manager(memory.clone()).build().unwrap();
    let mut dylibs: Vec<_> = (0..4).map(|number| jit.create_dylib(&format!("module {number}")).unwrap()).collect();
    for dylib in &dylibs {
        drop(add(&jit, dylib, "module.o", &object));
        assert_eq!(long_in(&jit, dylib, "test"), 4);
    }
    while let Some(dylib) = dylibs.pop() {
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
        assert_eq!(pool_held(&memory).0, dylibs.len());
        assert!(dylibs.iter().all(|dylib| long_in(&jit, dylib, "test") == 4));
    }
    drop(jit);
    assert_eq!((pool_held(&memory), Arc::strong_count(&memory)), ((0, 0, 0), 1));
}

#[test]
fn values_with_a_linked_destructor_outlive_the_tracker_of_their_module() {
    #[repr(C)]
    struct Value {
        bytes: *const u8,
        destroy: extern "C" fn(*mut Value),
    }
    let Some(object) = c("
        struct value { const char *bytes; void (*destroy)(struct value *); };
        extern void *malloc(unsigned long); extern void free(void *);
        static long alive; static const char text[] = \"still here\";
        static void destroy(struct value *value) { alive--; free(value); }
        long make(void) {
            struct value *value = malloc(sizeof *value);
            value->bytes = text; value->destroy = destroy; alive++;
            return (long)value;
        }
        long count(void) { return alive; }")
    else {
        return;
    };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "values.o", &object);
    let make = function::<extern "C" fn() -> i64>(&jit, "make");
    let keep_alive = function::<extern "C" fn() -> i64>(&jit, "count");
    let values = [make.call(), make.call(), make.call()].map(|value| value as *mut Value);
    drop(make);
    let removal = tracker.remove().unwrap();
    drop(tracker);
    assert!(!removal.is_complete(), "the handle keeps the module");
    for (index, value) in values.into_iter().enumerate() {
        // SAFETY: the module has just made these values, and the handle keeps its code and data.
        unsafe {
            assert_eq!(read((*value).bytes as u64, 10), b"still here");
            ((*value).destroy)(value);
        }
        assert_eq!(keep_alive.call(), 2 - index as i64);
    }
    drop(keep_alive);
    assert!(removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn empty_and_loaded_dylibs_are_removed_and_their_names_are_reused() {
    let Some(object) = c("long state = 1; long test(void) { return state++; }") else { return };
    let jit = new_jit();
    for round in 0..40 {
        let empty = jit.create_dylib("empty").unwrap();
        assert!(jit.address_of(&empty, "test").is_err());
        assert!(jit.session().remove_dylib(&empty).unwrap().is_empty());
        let dylib = jit.create_dylib("loaded").unwrap();
        let _tracker = add(&jit, &dylib, "object.o", &object);
        assert_eq!(long_in(&jit, &dylib, "test"), 1, "fresh in round {round}");
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
        assert_eq!((held(&jit), jit.session().dylibs().len()), ((0, 0, 0), 2));
    }
}

#[test]
fn a_symbol_may_be_defined_after_the_object_that_needs_it() {
    let Some(object) = c("extern long context; long test(void) { return context; }") else { return };
    static CONTEXT: i64 = 31;
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    define_absolute(jit.main_dylib(), "context", &raw const CONTEXT as u64);
    assert_eq!(long(&jit, "test"), 31);
}

#[test]
fn one_removal_frees_ten_thousand_objects_of_one_tracker() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let mut last = String::new();
    for number in 0..10_000 {
        let Some(object) = numbered(number) else { return };
        last = format!("f{number:05}");
        jit.add_object(&tracker, "module.o", object).unwrap();
        assert_eq!(long(&jit, &last), 7);
    }
    let statistics = jit.memory_statistics();
    assert_eq!((statistics.allocations, jit.usage(&tracker).reserved), (10_000, statistics.reserved_bytes));
    assert!(tracker.remove().unwrap().is_complete());
    assert!(jit.address_of(jit.main_dylib(), &last).is_err());
    let statistics = jit.memory_statistics();
    assert_eq!(held(&jit), (0, 0, 0));
    assert_eq!(jit.main_dylib().symbol_count(), 0);
    assert_eq!(statistics.opened_bytes, statistics.free_bytes);
}

/// An object that defines `long f<number>(void)`. It is compiled once; then only the name is patched.
fn numbered(number: usize) -> Option<ObjectBuffer> {
    thread_local!(static TEMPLATE: Option<Vec<u8>> = c("static long seven = 7; long f99999(void) { return seven++; }"));
    TEMPLATE.with(|template| {
        let mut bytes = template.clone()?;
        let at = bytes.windows(6).position(|window| window == b"f99999").unwrap();
        bytes[at + 1..at + 6].copy_from_slice(format!("{number:05}").as_bytes());
        Some(ObjectBuffer::from(bytes))
    })
}

#[test]
fn a_hundred_thousand_allocations_need_no_more_mappings_than_one() {
    own_process!();
    let memory = SlabPool::new(SlabPoolOptions::default()).unwrap();
    let (base, size) = memory.window();
    let within = base.value()..base.value() + size;
    let pieces = || mappings().iter().filter(|mapping| within.contains(&mapping.start)).count();
    let first = make(&memory, &plan(200, 50, (50, 20)));
    let before = pieces();
    let all: Vec<_> = (0..100_000).map(|_| make(&memory, &plan(200, 50, (50, 20)))).collect();
    assert_eq!((pieces(), pool_held(&memory).0), (before, 100_001));
    assert!(before <= 12, "{before}");
    drop((first, all));
    assert_eq!((pieces(), pool_held(&memory)), (before, (0, 0, 0)));
}

#[test]
fn churn_wastes_less_than_15_percent_of_the_live_bytes() {
    // Sizes like those of compiled functions: a median of 2 KiB and a long tail.
    let mut random = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let mut size = move || {
        let normal = (0..12).map(|_| random.usize(..1_000_000) as f64 / 1e6).sum::<f64>() - 6.0;
        (2048.0 * normal.exp()).clamp(64.0, 262_144.0) as u64
    };
    let options = SlabPoolOptions { shards: 1, returns_memory: false, ..SlabPoolOptions::default() };
    for pool in [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data] {
        let memory = SlabPool::new(options).unwrap();
        let mut one = |memory: &SlabPool| {
            let mut sizes = [0; 3];
            sizes[pool.index()] = size();
            make(memory, &plan(sizes[0], sizes[1], (sizes[2], 0)))
        };
        let mut live: Vec<Box<dyn Finalized>> = (0..4000).map(|_| one(&memory)).collect();
        let mut which = Rng::with_seed(7);
        let mut peak = 0;
        for _ in 0..100_000 {
            drop(live.swap_remove(which.usize(..live.len())));
            live.push(one(&memory));
            peak = peak.max(memory.statistics().live_bytes);
        }
        let statistics = memory.statistics();
        let waste = statistics.resident_bytes as f64 / peak as f64 - 1.0;
        println!("{}: {:.1} % more than the {} KiB that were live at the peak", pool.name(), waste * 100.0, peak >> 10);
        assert!(waste < 0.15, "{}: {waste}", pool.name());
    }
}

#[test]
fn every_thread_runs_the_new_code_at_a_reused_address() {
    let module = |number: i64| c(&format!("long test(void) {{ return {number}; }}"));
    let Some(modules) = (0..8).map(module).collect::<Option<Vec<_>>>() else { return };
    let jit = new_jit();
    let (to_caller, from_linker) = sync_channel::<jittison::Function<extern "C" fn() -> i64>>(0);
    let (to_linker, from_caller) = sync_channel(0);
    std::thread::scope(|scope| {
        // This thread runs each version after it has run another version at the same address.
        scope.spawn(move || {
            for test in from_linker {
                let result = test.call();
                drop(test);
                to_linker.send(result).unwrap();
            }
        });
        let mut addresses = std::collections::BTreeSet::new();
        for round in 0..4000 {
            let version = round % modules.len();
            let tracker = add(&jit, jit.main_dylib(), "module.o", &modules[version]);
            let test = function::<extern "C" fn() -> i64>(&jit, "test");
            addresses.insert(jit.address_of(jit.main_dylib(), "test").unwrap());
            to_caller.send(test).unwrap();
            assert_eq!(from_caller.recv().unwrap(), version as i64, "round {round}");
            assert!(tracker.remove().unwrap().is_complete());
        }
        assert_eq!(addresses.len(), 1, "every version had the same address");
        drop(to_caller);
    });
}
