//! The program of `static_programs.rs`: links the object that it is told, has panics pass through it, and prints what came
//! of it.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::memory::{SingleMapper, SlabPool, SlabPoolOptions};
use jittison::session::SymbolFlags;
use jittison::{Function, Jit};

/// Panics with positive numbers; for negative ones, prints how many linked frames a backtrace has.
extern "C-unwind" fn panics(x: i64) -> i64 {
    if x > 0 {
        resume_unwind(Box::new(x));
    }
    if x < 0 {
        let text = std::backtrace::Backtrace::force_capture().to_string();
        // Of linked frames, nobody knows the names.
        let frames = text.matches("<unknown>").count();
        println!("{x}: {frames} linked frames in a backtrace");
    }
    x
}

/// A session that has linked the object, and the object's function.
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
    // SAFETY: the test's own object, in which this is the function's signature.
    let outer = unsafe { jit.lookup::<extern "C-unwind" fn(i64) -> i64>("outer") }.unwrap();
    assert_eq!(outer.call(0), 10);
    println!("{}", jit.memory_map().unwrap().windows[0].description);
    (jit, outer)
}

/// Unwinders end where a frame has no description, and go no further.
fn ask_through_a_frame_without_description(jit: &Jit) {
    // SAFETY: the test's own object, in which this is the function's signature.
    let bare = unsafe { jit.lookup::<extern "C-unwind" fn(i64) -> i64>("bare") }.unwrap();
    assert_eq!(bare.call(-2), -2);
}

/// How many objects the program was ever told that it has, and has no more.
fn told_of_objects() -> (u64, u64) {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, told: *mut libc::c_void) -> libc::c_int {
        // SAFETY: a record that is there during the call, and what was passed below.
        unsafe { *told.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        0
    }
    let mut told = (0, 0);
    // SAFETY: `note` writes what it is passed, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut told).cast()) };
    told
}

/// Unwinders remember what they were told for as long as these counts stay.
fn expect_counts_to_follow_sessions() {
    let before = told_of_objects();
    let session = linked(None);
    let during = told_of_objects();
    drop(session);
    let after = told_of_objects();
    assert!(during.0 > before.0 && during.1 == before.1, "{before:?}, then {during:?}");
    assert!(after.0 == during.0 && after.1 > during.1, "{during:?}, then {after:?}");
    println!("objects that come and go are counted");
}

/// How many of so many panics came through, each with what it was thrown with.
fn caught(outer: &Function<extern "C-unwind" fn(i64) -> i64>, count: i64) -> usize {
    let is_caught = |x: &i64| catch_unwind(|| outer.call(*x)).unwrap_err().downcast_ref::<i64>() == Some(x);
    (1..=count).filter(is_caught).count()
}

fn main() {
    let (jit, outer) = linked(None);
    assert_eq!(outer.call(-1), 0);
    ask_through_a_frame_without_description(&jit);
    println!("{} panics were caught with the system mapper", caught(&outer, 100));
    let pool = SlabPool::with_mapper(SingleMapper, SlabPoolOptions::default()).unwrap();
    let (mapped_once, same) = linked(Some(pool));
    ask_through_a_frame_without_description(&mapped_once);
    println!("{} panics were caught with the single mapper", caught(&same, 100));

    expect_counts_to_follow_sessions();

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(caught(&linked(None).1, 1), 1);
            }
        });
        let throwers = [(); 2].map(|()| scope.spawn(|| caught(&outer, 1000)));
        let count: usize = throwers.into_iter().map(|thrower| thrower.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        others.join().unwrap();
        println!("{count} panics were caught while sessions came and went");
    });

    // SAFETY: the child does no more than the thread that forked it could.
    match unsafe { libc::fork() } {
        0 => {
            println!("{} panics were caught in a forked child", caught(&outer, 100));
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: the child that was forked above; its status may be written.
            assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
        }
    }
}
