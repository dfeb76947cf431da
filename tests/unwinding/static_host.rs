//! The program of `static_programs.rs`: links the object that its argument names, lets panics pass through it, and prints the
//! results.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::memory::{SingleMapper, SlabPool, SlabPoolOptions};
use jittison::session::SymbolFlags;
use jittison::{Function, Jit};

/// Panics with positive numbers. For negative numbers it prints the number of linked frames in a backtrace.
extern "C-unwind" fn panics(x: i64) -> i64 {
    if x > 0 {
        resume_unwind(Box::new(x));
    }
    if x < 0 {
        let text = std::backtrace::Backtrace::force_capture().to_string();
        // Linked frames have no names in a backtrace.
        let frames = text.matches("<unknown>").count();
        println!("{x}: {frames} linked frames in a backtrace");
    }
    x
}

/// A session that has linked the object, and the object's function `outer`.
fn linked(pool: Option<SlabPool>) -> (Jit, Function<extern "C-unwind" fn(i64) -> i64>) {
    let jit = match pool {
        None => Jit::new(),
        Some(pool) => Jit::builder().memory_manager(Arc::new(pool)).build(),
    }
    .unwrap();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let address = ExecutorAddr::new(panics as *const () as u64);
    jit.main_dylib().define_absolute([(Name::new("panics"), address, flags)]).unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object_file(&tracker, std::env::args().nth(1).unwrap()).unwrap();
    // SAFETY: the test's own object, with the signature in its source.
    let outer = unsafe { jit.lookup::<extern "C-unwind" fn(i64) -> i64>("outer") }.unwrap();
    assert_eq!(outer.call(0), 10);
    println!("{}", jit.memory_map().unwrap().windows[0].description);
    (jit, outer)
}

/// Captures a backtrace through a frame without a description. The unwinder must stop there.
fn backtrace_through_undescribed_frame(jit: &Jit) {
    // SAFETY: the test's own object, with the signature in its source.
    let bare = unsafe { jit.lookup::<extern "C-unwind" fn(i64) -> i64>("bare") }.unwrap();
    assert_eq!(bare.call(-2), -2);
}

/// The loader's counts of objects that were ever added and removed.
fn object_counts() -> (u64, u64) {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, counts: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `info` is valid during the call, and `counts` is the pointer passed below.
        unsafe { *counts.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        0
    }
    let mut counts = (0, 0);
    // SAFETY: `note` writes `counts` and keeps no pointer.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut counts).cast()) };
    counts
}

/// Unwinders cache the list of objects while these counts do not change, so windows must change them.
fn expect_counts_to_follow_sessions() {
    let before = object_counts();
    let session = linked(None);
    let during = object_counts();
    drop(session);
    let after = object_counts();
    assert!(during.0 > before.0 && during.1 == before.1, "{before:?}, then {during:?}");
    assert!(after.0 == during.0 && after.1 > during.1, "{during:?}, then {after:?}");
    println!("added and removed objects are counted");
}

/// Makes `count` panics. Returns how many were caught with their original value.
fn caught(outer: &Function<extern "C-unwind" fn(i64) -> i64>, count: i64) -> usize {
    let is_caught = |x: &i64| catch_unwind(|| outer.call(*x)).unwrap_err().downcast_ref::<i64>() == Some(x);
    (1..=count).filter(is_caught).count()
}

fn main() {
    let (jit, outer) = linked(None);
    assert_eq!(outer.call(-1), 0);
    backtrace_through_undescribed_frame(&jit);
    println!("{} panics were caught with the system mapper", caught(&outer, 100));
    let pool = SlabPool::with_mapper(SingleMapper, SlabPoolOptions::default()).unwrap();
    let (mapped_once, same) = linked(Some(pool));
    backtrace_through_undescribed_frame(&mapped_once);
    println!("{} panics were caught with the single mapper", caught(&same, 100));

    expect_counts_to_follow_sessions();

    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert_eq!(caught(&linked(None).1, 1), 1);
            }
        });
        let throwers = [(); 2].map(|()| scope.spawn(|| caught(&outer, 1000)));
        let count: usize = throwers.into_iter().map(|thrower| thrower.join().unwrap()).sum();
        is_done.store(true, Ordering::Relaxed);
        others.join().unwrap();
        println!("{count} panics were caught while sessions came and went");
    });

    // SAFETY: the child uses only state of the thread that forked it.
    match unsafe { libc::fork() } {
        0 => {
            println!("{} panics were caught in a forked child", caught(&outer, 100));
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child. The kernel writes `status`.
            assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
        }
    }
}
