//! Destructors of thread-local variables run on their own thread: when the thread ends, or before the removal of their code if
//! nothing else defers the removal. Until then pending destructors defer the removal, and the removal's obstacles name the
//! thread.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use jittison::{Function, Jit, ReclaimPolicy};

use crate::support::*;

static ALIVE: AtomicI64 = AtomicI64::new(0);
static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

const SOURCE: &str = "
    extern \"C\" long alive;
    struct Witness { long x = 5; Witness() { __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST); }
                     ~Witness() { __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST); } };
    thread_local Witness witness;
    extern \"C\" long touch() { return witness.x++; }";

type Touch = Function<extern "C" fn() -> i64>;

fn alive() -> i64 {
    ALIVE.load(Ordering::SeqCst)
}

/// Defines `alive`, in which objects count their witnesses.
fn counting(jit: Jit) -> Jit {
    ALIVE.store(0, Ordering::SeqCst);
    define_absolute(jit.main_dylib(), "alive", ALIVE.as_ptr() as u64);
    jit
}

/// Serialises the tests that use [`ALIVE`].
fn lock() -> std::sync::MutexGuard<'static, ()> {
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A thread that makes calls on request.
struct Caller {
    requests: Option<Sender<(Touch, Sender<i32>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Caller {
    fn new() -> Caller {
        let (requests, received) = channel::<(Touch, Sender<i32>)>();
        let thread = std::thread::spawn(move || {
            for (touch, reply) in received {
                touch.call();
                drop(touch);
                // SAFETY: returns a number.
                reply.send(unsafe { libc::gettid() }).unwrap();
            }
        });
        Caller { requests: Some(requests), thread: Some(thread) }
    }

    /// The thread calls `touch` and drops the handle. Returns the kernel's id of the thread.
    fn call(&self, touch: &Touch) -> i32 {
        let (reply, replies) = channel();
        self.requests.as_ref().unwrap().send((touch.clone(), reply)).unwrap();
        replies.recv().unwrap()
    }

    /// Ends the thread, and waits until its destructors have run.
    fn end(mut self) {
        self.requests.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn destructors_run_when_their_thread_ends_or_removes_their_code() {
    let _lock = lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = counting(new_jit());
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| assert_eq!((touch.call(), touch.call()), (5, 6)));
        let threads: Vec<_> = (0..4).map(spawn).collect();
        // Joined, because the end of the scope does not wait for thread-local destructors.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(alive(), 0, "all four threads have ended");
    assert_eq!((touch.call(), alive()), (5, 1));
    drop(touch);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(alive(), 0, "the destructor of this thread runs before the removal");
}

#[test]
fn pending_thread_local_destructors_defer_the_removal_of_their_module() {
    let _lock = lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = counting(new_jit());
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    let (first, second) = (Caller::new(), Caller::new());
    let mut threads = [first.call(&touch), second.call(&touch)];
    threads.sort_unstable_by_key(i32::to_string);
    touch.call();
    assert_eq!(alive(), 3);
    let removal = tracker.remove().unwrap();
    assert_eq!(alive(), 3, "the handle also defers the destructor of this thread");
    assert_eq!(removal.obstacles().len(), 4);
    assert_eq!(removal.obstacles()[0], "an owned handle");
    drop(touch);
    assert_eq!(alive(), 2, "the destructor of this thread has run");
    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (2, 0));
    assert_eq!(removal.obstacles(), threads.map(|thread| format!("thread {thread} has pending destructors of o.o")));
    assert!(jit.address_of(jit.main_dylib(), "touch").is_err(), "the name is removed at once");
    first.end();
    assert_eq!((alive(), removal.is_complete()), (1, false));
    second.end();
    assert_eq!((alive(), removal.is_complete()), (0, true));
    assert_eq!((removal.obstacles(), held(&jit)), (Vec::new(), (0, 0, 0)));
}

#[test]
fn removed_code_that_is_still_held_may_register_more_destructors() {
    let _lock = lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = counting(new_jit());
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    let removal = tracker.remove().unwrap();
    let caller = Caller::new();
    caller.call(&touch);
    drop(touch);
    assert_eq!((alive(), removal.is_complete(), removal.blockers()), (1, false, (1, 0)));
    caller.end();
    assert_eq!((alive(), removal.is_complete(), held(&jit)), (0, true, (0, 0, 0)));
}

#[test]
fn pending_destructors_follow_a_tracker_transfer() {
    let _lock = lock();
    let (Some(object), Some(other)) = (cpp(SOURCE), c("long other(void) { return 1; }")) else { return };
    let jit = counting(new_jit());
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let destination = add(&jit, jit.main_dylib(), "other.o", &other);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    let caller = Caller::new();
    caller.call(&touch);
    drop(touch);
    tracker.transfer_to(&destination).unwrap();
    let removal = destination.remove().unwrap();
    assert_eq!((removal.is_complete(), removal.obstacles().len()), (false, 1));
    caller.end();
    assert_eq!((alive(), removal.is_complete(), held(&jit)), (0, true, (0, 0, 0)));
}

#[test]
fn a_cycle_of_modules_is_freed_if_only_the_removing_thread_has_pending_destructors() {
    let _lock = lock();
    let object = |me: usize, next: usize| {
        cpp(&SOURCE
            .replace("touch()", &format!("touch{me}()"))
            .replace("thread_local", &format!("extern \"C\" long touch{next}(); thread_local"))
            .replace("witness.x++", &format!("witness.x > 99 ? touch{next}() : witness.x++"))
            .replace("Witness", &format!("Witness{me}"))
            .replace("witness;", &format!("witness{me};"))
            .replace("witness.", &format!("witness{me}.")))
    };
    let (Some(a), Some(b)) = (object(0, 1), object(1, 0)) else { return };
    let jit = counting(new_jit());
    let trackers = [add(&jit, jit.main_dylib(), "a.o", &a), add(&jit, jit.main_dylib(), "b.o", &b)];
    assert_eq!((long(&jit, "touch0"), long(&jit, "touch1"), alive()), (5, 5, 2));
    assert_eq!(trackers[0].dependencies().len(), 1);
    assert!(!trackers[0].remove().unwrap().is_complete(), "the other module refers to this one");
    assert_eq!(alive(), 2, "the other module may still use this one");
    assert!(trackers[1].remove().unwrap().is_complete());
    assert_eq!((alive(), held(&jit)), (0, (0, 0, 0)));
}

#[test]
fn a_module_outlives_its_session_until_its_pending_destructors_have_run() {
    let _lock = lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = counting(new_jit());
    let memory = jit.layer().memory().clone();
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    let caller = Caller::new();
    caller.call(&touch);
    drop((touch, jit, tracker));
    assert_eq!((alive(), memory.statistics().allocations), (1, 1));
    caller.end();
    assert_eq!((alive(), memory.statistics().allocations), (0, 0));
}

#[test]
fn under_the_explicit_policy_reclaim_runs_the_destructors_of_the_calling_thread() {
    let _lock = lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = Jit::builder().library("libstdc++.so.6").reclaim_policy(ReclaimPolicy::Explicit).build().unwrap();
    let jit = counting(jit);
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    touch.call();
    let removal = tracker.remove().unwrap();
    drop(touch);
    assert_eq!((alive(), removal.is_complete()), (1, false));
    assert_eq!(jit.session().reclaim(), 1);
    assert_eq!((alive(), removal.is_complete()), (0, true));
}

/// The standard library of Rust passes the address of a variable of its own, which holds the address of its `__dso_handle`. Its
/// thread-local variables were never dropped.
#[test]
fn destructors_run_that_are_registered_with_the_address_of_a_pointer_to_the_handle() {
    let _lock = lock();
    let source = "int __cxa_thread_atexit_impl(void (*)(void *), void *, void *); extern void *__dso_handle __attribute__((weak));
         extern long alive;
         static void **const volatile pointer = &__dso_handle;
         static void end(void *step) { __atomic_fetch_sub(&alive, (long)step, __ATOMIC_SEQ_CST); }
         static const volatile long none[] = {0, 5, 4095, 123456789};
         long touch(void) {
             __atomic_fetch_add(&alive, 3, __ATOMIC_SEQ_CST);
             return __cxa_thread_atexit_impl(end, (void *)3, (void *)&pointer);
         }
         long refused(void) {
             long count = 0;
             for (int i = 0; i < 4; i++) count += __cxa_thread_atexit_impl(end, (void *)3, (void *)&none[i]) == -1;
             return count;
         }";
    let Some(object) = c(source) else { return };
    let jit = counting(new_jit());
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    assert_eq!(long(&jit, "refused"), 4, "words that lead to no handle");
    let caller = Caller::new();
    caller.call(&touch);
    assert_eq!((touch.call(), alive()), (0, 6), "each was registered");
    drop(touch);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete(), "the other thread keeps the code");
    caller.end();
    assert_eq!((alive(), removal.is_complete()), (0, true), "both destructors have run");
}
