//! Any call of a window may fail: the result is a clear error, no leak, and a session that still works. `tests/refused_calls`
//! refuses the system calls below the mapper.

use std::sync::Arc;
use std::sync::Mutex;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{MemoryManager, MemoryMapper, Released, SlabPool, SlabPoolOptions};
use jittison::session::{ExecutionSession, ReclaimPolicy, SymbolFlags};

use crate::environments::deny;
use crate::intercepting_mapper::{Call, InterceptingMapper, Interceptor, Range};
use crate::mapping_modes::{jit_over, mapping_modes};
use crate::slab::{make, plan};
use crate::support::*;

/// Refuses one call: the first of its kind after the given number of others.
#[derive(Default)]
struct Refusal(Mutex<Option<(Call, usize)>>);

impl Refusal {
    fn arm(&self, call: Call, after: usize) {
        *self.0.lock().unwrap() = Some((call, after));
    }

    /// Returns whether a call was refused since [`arm`](Refusal::arm), and refuses no more.
    fn disarm(&self) -> bool {
        self.0.lock().unwrap().take().is_none()
    }

    fn has_refused(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

impl Interceptor for Refusal {
    fn before_call(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        let mut next = self.0.lock().unwrap();
        match &mut *next {
            Some((armed, after)) if *armed == call && *after > 0 => *after -= 1,
            Some((armed, _)) if *armed == call => {
                *next = None;
                return Err(MemoryFault::Refused { step: format!("{call:?}"), problem: "by the test".to_string() });
            }
            _ => {}
        }
        Ok(())
    }
}

fn refusing(inner: &'static dyn MemoryMapper, options: SlabPoolOptions) -> (Arc<SlabPool>, Arc<Refusal>) {
    let refusal = Arc::new(Refusal::default());
    let pool = SlabPool::with_mapper(InterceptingMapper { inner, interceptor: refusal.clone() }, options).unwrap();
    (Arc::new(pool), refusal)
}

#[test]
fn a_link_or_removal_that_a_window_refuses_at_any_call_leaks_nothing() {
    let Some(object) = cpp("static const long constant[9] = { 5 }; static long state = 1; static char zero[9000];
                            extern \"C\" long test() { if (zero[5]) throw 1; return constant[zero[7]] + state++; }")
    else {
        return;
    };
    for (mapper, _) in mapping_modes() {
        for trap_freed_code in [true, false] {
            let options = SlabPoolOptions { trap_freed_code, returns_memory: false, ..Default::default() };
            let (memory, refusal) = refusing(mapper, options);
            let jit = jit_over(memory.clone());
            // One link without a refusal first: memory that the first link keeps is no leak.
            links_on(&jit);
            for call in [Call::Open, Call::Seal] {
                let mut refused = 0;
                for after in 0.. {
                    let before = (held(&jit), jit.main_dylib().symbol_count());
                    let tracker = add_object(&jit, jit.main_dylib(), "object.o", &object[..]);
                    refusal.arm(call, after);
                    match try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test") {
                        Ok(test) => {
                            assert!(!refusal.has_refused(), "a link succeeded although a call was refused");
                            assert_eq!(test.call(), 6);
                        }
                        Err(error) => {
                            let cause = error.root_cause();
                            assert!(matches!(cause.kind(), ErrorKind::Memory(MemoryFault::Refused { .. })), "{error}");
                            assert_says(&error, &["was refused: by the test", "`test`"]);
                        }
                    }
                    assert!(tracker.remove().unwrap().is_complete());
                    let was_refused = refusal.disarm();
                    assert_eq!((held(&jit), jit.main_dylib().symbol_count()), before, "{call:?} after {after}");
                    links_on(&jit);
                    if !was_refused {
                        break;
                    }
                    refused += 1;
                }
                // One call per segment, and one more for the code if it is filled with traps.
                assert!(refused >= 3, "{call:?} was refused {refused} times");
            }
        }
    }
}

#[test]
fn a_refused_window_leaves_no_mapping_and_a_smaller_one_is_requested() {
    own_process!();
    for (mapper, _) in mapping_modes() {
        let before = mappings().len();
        let refusal = Arc::new(Refusal::default());
        refusal.arm(Call::Map, 0);
        let refusing = InterceptingMapper { inner: mapper, interceptor: refusal.clone() };
        let memory = SlabPool::with_mapper(refusing, SlabPoolOptions::default()).unwrap();
        assert!(refusal.disarm() && memory.window().1 < 1 << 30, "the second request has half the size");
        drop(make(&memory, &plan(100, 100, (100, 0))));
        drop(memory);
        assert!(mappings().len() <= before + 2, "{before} -> {}", mappings().len());
    }
}

#[test]
fn pages_whose_purge_fails_stay_counted_and_are_purged_later() {
    const MIB: u64 = 1 << 20;
    for (mapper, _) in mapping_modes() {
        let options =
            SlabPoolOptions { trap_freed_code: false, returns_memory: false, shards: 1, ..Default::default() };
        let (memory, refusal) = refusing(mapper, options);
        for call in [Call::Purge, Call::PurgeTable] {
            let mut one = memory.allocate(&plan(4 * MIB, 4 * MIB, (4 * MIB, 0))).unwrap();
            SegmentKind::ALL.into_iter().for_each(|pool| one.working(pool).fill(0xee));
            drop(one.finalize(Vec::new()).unwrap());
            let resident = memory.statistics().resident_bytes;
            assert!(resident >= 12 * MIB);
            refusal.arm(call, 0);
            let first = memory.release_free();
            assert!(refusal.disarm(), "{call:?} was called");
            let second = memory.release_free();
            assert_eq!(first.bytes + second.bytes, resident);
            assert_eq!(second.bytes > 0, call == Call::Purge);
            assert_eq!(memory.release_free(), Released::default());
            // The zero fill of a reused allocation is zero, whichever call was refused.
            let mut again = memory.allocate(&plan(4 * MIB, 4 * MIB, (4 * MIB, 4 * MIB))).unwrap();
            assert!(again.working(SegmentKind::Data).iter().all(|byte| *byte == 0));
            drop(again);
            memory.release_free();
        }
        assert_eq!((memory.statistics().allocations, memory.statistics().resident_bytes), (0, 0));
    }
}

#[test]
fn without_a_background_thread_memory_stays_until_release_free() {
    own_process!();
    let memory = SlabPool::new(SlabPoolOptions { trap_freed_code: false, ..Default::default() }).unwrap();
    deny(libc::SYS_clone3);
    deny(libc::SYS_clone);
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "no thread can be started");
    for _ in 0..3 {
        let mut one = memory.allocate(&plan(0, 0, (20 << 20, 0))).unwrap();
        one.working(SegmentKind::Data).fill(1);
        drop(one.finalize(Vec::new()).unwrap());
    }
    std::thread::sleep(std::time::Duration::from_millis(2200));
    assert_eq!(memory.statistics().returned_bytes, 0);
    assert!(memory.release_free().bytes >= 20 << 20);
}

#[test]
fn without_a_background_thread_the_drop_of_the_last_pin_reclaims() {
    own_process!();
    let session = ExecutionSession::with_policy(ReclaimPolicy::Background);
    let main = session.create_dylib("main").unwrap();
    deny(libc::SYS_clone3);
    deny(libc::SYS_clone);
    // Several times: one failed start of the thread must not be remembered as a running thread.
    for _ in 0..3 {
        let tracker = main.create_tracker().unwrap();
        tracker.define_absolute([("f".into(), ExecutorAddr::new(8), SymbolFlags::EXPORTED)]).unwrap();
        let (_, pin) = main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        assert!(!removal.is_complete());
        drop(pin);
        assert!(removal.is_complete());
    }
}
