//! Destructors of thread-local variables run when their thread ends, or ahead of their code's removal by that thread; and
//! never into code that is gone.

use std::sync::atomic::{AtomicI64, Ordering};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;

use crate::support::*;

static ALIVE: AtomicI64 = AtomicI64::new(0);
static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

const SOURCE: &str = "
    extern \"C\" long alive;
    struct Witness { long x = 5; Witness() { __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST); }
                     ~Witness() { __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST); } };
    thread_local Witness witness;
    extern \"C\" long touch() { return witness.x++; }";

#[test]
fn destructors_run_when_their_thread_ends_or_removes_their_code() {
    let _turn = LOCK.lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = new_jit();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let at = ExecutorAddr::new(ALIVE.as_ptr() as u64);
    jit.main_dylib().define_absolute([(Name::new("alive"), at, flags)]).unwrap();
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| assert_eq!((touch.call(), touch.call()), (5, 6)));
        let threads: Vec<_> = (0..4).map(spawn).collect();
        // Joined, and not only over: the end of the scope does not wait for destructors.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "all four threads have ended");
    assert_eq!((touch.call(), ALIVE.load(Ordering::SeqCst)), (5, 1));
    drop(touch);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "this thread's, ahead of the removal");
}

#[test]
fn a_thread_that_ends_after_the_removal_of_what_it_owes_to_calls_nothing() {
    let _turn = LOCK.lock();
    let Some(object) = cpp(SOURCE) else { return };
    let jit = new_jit();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let at = ExecutorAddr::new(ALIVE.as_ptr() as u64);
    jit.main_dylib().define_absolute([(Name::new("alive"), at, flags)]).unwrap();
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch");
    let (touched, removed) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let (touched, removed) = (&touched, &removed);
        let thread = scope.spawn(move || {
            touch.call();
            drop(touch);
            touched.wait();
            removed.wait();
        });
        touched.wait();
        assert!(tracker.remove().unwrap().is_complete());
        removed.wait();
        thread.join().unwrap();
    });
    // Freed code is filled with traps: a call into it would have ended the process.
    assert_eq!(ALIVE.swap(0, Ordering::SeqCst), 1, "forgotten, not destroyed");
}
