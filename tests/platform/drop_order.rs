//! Session, dylib, tracker and handle can be dropped in any order, on any thread, during unwinding and at the end of the process:
//! without a crash, a leak or a hang. Code stays as long as something may call it.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use jittison::memory::{MemoryManager, SlabPool, SlabPoolOptions};
use jittison::{Function, Jit, ResourceTracker};

use crate::support::*;

/// The number of objects that are initialised and not yet finalised.
static ALIVE: AtomicI64 = AtomicI64::new(0);

/// Serialises the tests that read [`ALIVE`].
static ALIVE_LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

extern "C" fn count(change: i64) {
    ALIVE.fetch_add(change, Ordering::SeqCst);
}

/// An object that counts when it is initialised and finalised.
fn object() -> Option<Vec<u8>> {
    c("extern void count(long); extern int atexit(void (*)(void)); static long state;
       static void handler(void) { count(state - 4); }
       __attribute__((constructor)) static void set(void) { state = 4; atexit(handler); count(1); }
       __attribute__((destructor)) static void unset(void) { count(-1); }
       long test(void) { return state * 10; }")
}

/// Calls its function when it is dropped: the code must still be linked.
struct CallsWhenDropped(Function<extern "C" fn() -> i64>);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        assert_eq!(self.0.call(), 40);
    }
}

/// Any of the four handles. Dropping the last of them ends the session.
type Handle = Box<dyn Any + Send>;

/// Whether the tracker is removed before the drops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum TrackerState {
    Live,
    Removed,
}

/// A session, a dylib, a tracker and a function. The caller owns the memory manager and can check what stays allocated.
fn handles(memory: &Arc<SlabPool>, object: &[u8], tracker_state: TrackerState) -> [Handle; 4] {
    let jit = Jit::builder().memory_manager(memory.clone() as Arc<dyn MemoryManager>).build().unwrap();
    let dylib = jit.create_dylib("dropped").unwrap();
    define_function(&jit, &dylib, "count", count as extern "C" fn(i64));
    let tracker = add(&jit, &dylib, "object.o", object);
    let function = CallsWhenDropped(try_function(&jit, &dylib, "test").unwrap());
    if tracker_state == TrackerState::Removed {
        assert!(!tracker.remove().unwrap().is_complete());
    }
    [Box::new(jit), Box::new(dylib), Box::new(tracker), Box::new(function)]
}

fn pool() -> Arc<SlabPool> {
    Arc::new(SlabPool::new(SlabPoolOptions { trap_freed_code: true, ..SlabPoolOptions::default() }).unwrap())
}

#[track_caller]
fn assert_nothing_left(memory: &SlabPool, case: &str) {
    let statistics = memory.statistics();
    assert_eq!((statistics.allocations, statistics.live_bytes), (0, 0), "{case}");
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "{case}: each object is initialised and finalised once");
}

/// Runs `drop_all` with four handles in every order, with a live tracker and with a removed one.
fn in_every_order(drop_all: impl Fn(Vec<Handle>)) {
    let Some(object) = object() else { return };
    let _lock = ALIVE_LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let memory = pool();
    for tracker_state in [TrackerState::Live, TrackerState::Removed] {
        for order in orders() {
            let mut handles = handles(&memory, &object, tracker_state).map(Some);
            assert_eq!(ALIVE.load(Ordering::SeqCst), 1);
            drop_all(order.iter().map(|index| handles[*index].take().expect("each index once")).collect());
            assert_nothing_left(&memory, &format!("{tracker_state:?}, {order:?}"));
        }
    }
}

/// The 24 permutations of four indices.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..4 * 4 * 4 * 4 {
        let order = [code % 4, code / 4 % 4, code / 16 % 4, code / 64];
        if (0..4).all(|index| order.contains(&index)) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 24);
    orders
}

#[test]
fn handles_can_be_dropped_in_any_order() {
    in_every_order(|handles| handles.into_iter().for_each(drop));
}

#[test]
fn handles_can_be_dropped_in_any_order_on_another_thread() {
    in_every_order(|handles| thread::spawn(move || handles.into_iter().for_each(drop)).join().unwrap());
}

#[test]
fn handles_can_be_dropped_in_any_order_each_on_its_own_thread() {
    in_every_order(|handles| {
        for handle in handles {
            thread::spawn(move || drop(handle)).join().unwrap();
        }
    });
}

#[test]
fn handles_can_be_dropped_by_four_threads_at_once() {
    for _ in 0..5 {
        in_every_order(|handles| {
            let start = Barrier::new(4);
            thread::scope(|scope| {
                for handle in handles {
                    scope.spawn(|| {
                        start.wait();
                        drop(handle);
                    });
                }
            });
        });
    }
}

#[test]
fn handles_can_be_dropped_in_any_order_while_a_panic_unwinds() {
    in_every_order(|handles| {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            // Locals are dropped in reverse, which also covers every order.
            let [a, b, c, d] = <[Handle; 4]>::try_from(handles).unwrap_or_else(|_| unreachable!("four handles"));
            let (_a, _b, _c, _d) = (a, b, c, d);
            std::panic::resume_unwind(Box::new("unwinding"));
        }));
        assert!(unwound.is_err());
    });
}

#[test]
fn handles_can_be_dropped_in_any_order_at_the_end_of_their_thread() {
    thread_local! {
        static KEPT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    }
    in_every_order(|handles| {
        let keep = move || KEPT.with_borrow_mut(|kept| kept.extend(handles));
        thread::spawn(keep).join().unwrap();
    });
}

// ---- the end of the process -------------------------------------------------

static KEPT_IN_STATIC: OnceLock<(Jit, ResourceTracker, CallsWhenDropped)> = OnceLock::new();

thread_local! {
    static KEPT_IN_THREAD: RefCell<Option<(CallsWhenDropped, ResourceTracker, Jit)>> = const { RefCell::new(None) };
}

/// Keeps live code in a static, in a thread-local of the thread that ends the process, and in a thread that calls it for ever.
fn keep_live_code() {
    let Some(object) = object() else { return };
    let live = || {
        let jit = new_jit();
        define_function(&jit, jit.main_dylib(), "count", count as extern "C" fn(i64));
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        let function = function::<extern "C" fn() -> i64>(&jit, "test");
        (jit, tracker, function)
    };
    let (jit, tracker, function) = live();
    let calling = function.clone();
    assert!(KEPT_IN_STATIC.set((jit, tracker, CallsWhenDropped(function))).is_ok());
    let (jit, tracker, function) = live();
    KEPT_IN_THREAD.set(Some((CallsWhenDropped(function), tracker, jit)));
    let called = Arc::new(Barrier::new(2));
    let seen = called.clone();
    thread::spawn(move || {
        assert_eq!(calling.call(), 40);
        called.wait();
        loop {
            assert_eq!(calling.call(), 40);
        }
    });
    seen.wait();
    println!("{KEPT}");
}

/// What [`keep_live_code`] prints at its end.
const KEPT: &str = "live code is kept";

/// Runs the calling test in its own process. Asserts that the process keeps live code and exits with 0. True in that
/// process.
fn assert_exits_normally(test: &str) -> bool {
    if is_rerun(test) {
        return true;
    }
    let run = rerun(test).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    // After a signal there is no code, and after a panic it is not 0.
    assert_eq!(run.status.code(), Some(0), "{} {output}{}", run.status, String::from_utf8_lossy(&run.stderr));
    assert!(output.contains(KEPT) || object().is_none(), "{output}");
    false
}

#[test]
fn a_process_that_returns_from_main_with_live_code_exits_normally() {
    if assert_exits_normally(this_test!()) {
        keep_live_code();
    }
}

#[test]
fn a_process_that_calls_exit_with_live_code_exits_normally() {
    if assert_exits_normally(this_test!()) {
        keep_live_code();
        std::process::exit(0);
    }
}

#[test]
fn a_process_whose_linked_code_calls_exit_exits_normally() {
    if assert_exits_normally(this_test!()) {
        keep_live_code();
        let Some(object) = c("extern void exit(int); long call_exit(void) { exit(0); return 1; }") else { return };
        let jit = new_jit();
        let _tracker = add(&jit, jit.main_dylib(), "exits.o", &object);
        long(&jit, "call_exit");
        std::process::exit(1);
    }
}

#[test]
fn a_process_that_exits_while_another_thread_removes_and_adds_exits_normally() {
    if assert_exits_normally(this_test!()) {
        keep_live_code();
        let Some(object) = c("long churned(void) { return 3; }") else { return };
        let (jit, _, _) = KEPT_IN_STATIC.get().expect("set by keep_live_code");
        let begun = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    let tracker = add(jit, jit.main_dylib(), "churned.o", &object);
                    assert_eq!(long(jit, "churned"), 3);
                    assert!(tracker.remove().unwrap().is_complete());
                    if round == 10 {
                        begun.wait();
                    }
                }
            });
            begun.wait();
            std::process::exit(0);
        });
    }
}
