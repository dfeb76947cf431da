//! Whatever a window is refused, at whichever call: a clear error, nothing leaked, and a session that goes on. The calls
//! below the mapper are refused in `tests/refused_calls`.

use std::sync::Arc;
use std::sync::Mutex;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{MemoryManager, MemoryMapper, Released, SlabPool, SlabPoolOptions};
use jittison::session::{ExecutionSession, ReclaimPolicy, SymbolFlags};

use crate::environments::deny;
use crate::ladder::{jit_over, rungs};
use crate::overheard::{Call, Listener, Overheard, Range};
use crate::slab::{make, plan};
use crate::support::*;

/// Which call is refused: the first of its kind after so many.
#[derive(Default)]
struct Refusal(Mutex<Option<(Call, usize)>>);

impl Refusal {
    fn arm(&self, call: Call, after: usize) {
        *self.0.lock().unwrap() = Some((call, after));
    }

    /// Whether a call was refused since it was armed.
    fn disarm(&self) -> bool {
        self.0.lock().unwrap().take().is_none()
    }

    fn has_refused(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

impl Listener for Refusal {
    fn hear(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
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
    let pool = SlabPool::with_mapper(Overheard { inner, listener: refusal.clone() }, options).unwrap();
    (Arc::new(pool), refusal)
}

#[test]
fn a_link_or_a_removal_that_a_window_refuses_at_any_call_leaks_nothing() {
    let Some(object) = cpp("static const long constant[9] = { 5 }; static long state = 1; static char zero[9000];
                            extern \"C\" long test() { if (zero[5]) throw 1; return constant[zero[7]] + state++; }")
    else {
        return;
    };
    for (mapper, _) in rungs() {
        for trap_freed_code in [true, false] {
            let options = SlabPoolOptions { trap_freed_code, returns_memory: false, ..Default::default() };
            let (memory, refusal) = refusing(mapper, options);
            let jit = jit_over(memory.clone());
            // Once undisturbed, so that what stays from the first time is not taken for a leak.
            links_on(&jit);
            for call in [Call::Open, Call::Seal] {
                let mut refused = 0;
                for after in 0.. {
                    let before = (held(&jit), jit.main_dylib().symbol_count());
                    let tracker = jit.main_dylib().create_tracker().unwrap();
                    jit.add_object(&tracker, "object.o", &object[..]).unwrap();
                    refusal.arm(call, after);
                    match try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test") {
                        Ok(test) => {
                            assert!(!refusal.has_refused(), "no call of a link may fail unseen");
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
                // Three parts; and the code once more, where it is filled with traps.
                assert!(refused >= 3, "{call:?} was refused {refused} times");
            }
        }
    }
}

#[test]
fn a_window_that_is_refused_leaves_no_mapping_and_the_next_is_asked_for() {
    own_process!();
    for (mapper, _) in rungs() {
        let before = mappings().len();
        let refusal = Arc::new(Refusal::default());
        refusal.arm(Call::Map, 0);
        let asking = Overheard { inner: mapper, listener: refusal.clone() };
        let memory = SlabPool::with_mapper(asking, SlabPoolOptions::default()).unwrap();
        assert!(refusal.disarm() && memory.window().1 < 1 << 30, "it was halved");
        drop(make(&memory, &plan(100, 100, (100, 0))));
        drop(memory);
        assert!(mappings().len() <= before + 2, "{before} -> {}", mappings().len());
    }
}

#[test]
fn pages_that_the_kernel_will_not_take_back_are_kept_counted_and_offered_again() {
    const MIB: u64 = 1 << 20;
    for (mapper, _) in rungs() {
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
            assert!(refusal.disarm(), "{call:?} was asked for");
            let second = memory.release_free();
            assert_eq!(first.bytes + second.bytes, resident);
            assert_eq!(second.bytes > 0, call == Call::Purge);
            assert_eq!(memory.release_free(), Released::default());
            // What comes again is zero where it should be, whoever refused what.
            let mut again = memory.allocate(&plan(4 * MIB, 4 * MIB, (4 * MIB, 4 * MIB))).unwrap();
            assert!(again.working(SegmentKind::Data).iter().all(|byte| *byte == 0));
            drop(again);
            memory.release_free();
        }
        assert_eq!((memory.statistics().allocations, memory.statistics().resident_bytes), (0, 0));
    }
}

#[test]
fn without_a_thread_memory_stays_until_somebody_asks() {
    own_process!();
    let memory = SlabPool::new(SlabPoolOptions { trap_freed_code: false, ..Default::default() }).unwrap();
    deny(libc::SYS_clone3);
    deny(libc::SYS_clone);
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "no thread can be had");
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
fn without_a_thread_whoever_lets_go_of_what_is_removed_gives_it_back_by_the_background_policy_too() {
    own_process!();
    let session = ExecutionSession::with_policy(ReclaimPolicy::Background);
    let main = session.create_dylib("main").unwrap();
    deny(libc::SYS_clone3);
    deny(libc::SYS_clone);
    // Each time anew: that no thread could be had once does not mean that one is there.
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
