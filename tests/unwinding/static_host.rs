//! The program of `static_programs.rs`: links the object that it is told, has panics pass through it, and prints what came
//! of it.

use std::panic::{catch_unwind, resume_unwind};

use jittison::Jit;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;

/// Panics with positive numbers; prints a backtrace for minus one.
extern "C-unwind" fn panics(x: i64) -> i64 {
    if x > 0 {
        resume_unwind(Box::new(x));
    }
    if x == -1 {
        let text = std::backtrace::Backtrace::force_capture().to_string();
        // Of linked frames, nobody knows the names.
        println!("{} linked frames in a backtrace", text.matches("<unknown>").count());
    }
    x
}

fn main() {
    let jit = Jit::new().unwrap();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let address = ExecutorAddr::new(panics as *const () as u64);
    jit.main_dylib().define_absolute([(Name::new("panics"), address, flags)]).unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object_file(&tracker, std::env::args().nth(1).unwrap()).unwrap();
    // SAFETY: the test's own object, in which this is the function's signature.
    let outer = unsafe { jit.lookup::<extern "C-unwind" fn(i64) -> i64>("outer") }.unwrap();
    assert_eq!(outer.call(0), 10);
    println!("code runs");
    let description = jit.memory_map().unwrap().windows[0].description;
    println!("{description}");
    if description.contains("no exception can cross its code") {
        return;
    }
    assert_eq!(outer.call(-1), 0);
    let is_caught = |x: &i64| catch_unwind(|| outer.call(*x)).unwrap_err().downcast_ref::<i64>() == Some(x);
    println!("{} panics were caught", (1..=100).filter(is_caught).count());
    drop(outer);
    assert!(tracker.remove().unwrap().is_complete());
}
