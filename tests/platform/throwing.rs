//! Exceptions while modules are linked and removed: at reused addresses, from many threads, and with thousands of live modules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jittison::link::ObjectBuffer;
use jittison::{Function, Jit, JitDylib, ResourceTracker};

use crate::support::*;

/// An object that throws and catches through frames. Their number and size depend on `shape`.
fn module(shape: usize) -> Option<ObjectBuffer> {
    let mut frames = String::new();
    let mut outermost = "f".to_string();
    for i in 0..shape % 4 {
        frames +=
            &format!("__attribute__((noinline)) static long g{i}(long x) {{ Count c; return {outermost}(x); }}\n");
        outermost = format!("g{i}");
    }
    let source = format!(
        "static long destroyed;
         struct Count {{ ~Count() {{ destroyed++; }} }};
         static char pad[{}] = {{ 1 }};
         __attribute__((noinline)) static long f(long x) {{ Count c; if (x >= 0) throw x + pad[0] - 1; return x; }}
         {frames}
         extern \"C\" long test(long x) {{
             destroyed = 0;
             try {{ {outermost}(x); }} catch (long caught) {{ return caught * 10 + destroyed; }}
             return -1;
         }}",
        1 + shape * 37
    );
    gxx(&["-O1", "-fPIC"], &source).map(ObjectBuffer::from)
}

fn modules() -> Option<Vec<ObjectBuffer>> {
    (0..6).map(module).collect()
}

type Test = Function<extern "C" fn(i64) -> i64>;

fn load(jit: &Jit, dylib: &JitDylib, object: &ObjectBuffer) -> (ResourceTracker, Test) {
    let tracker = add_object(jit, dylib, "throws.o", object.clone());
    let test = try_function(jit, dylib, "test").unwrap();
    (tracker, test)
}

/// Throws `x` through module `shape`, and checks the caught value and the number of destroyed objects.
fn check(test: &Test, shape: usize, x: i64) {
    assert_eq!(test.call(x), x * 10 + 1 + (shape % 4) as i64);
}

#[test]
fn two_hundred_modules_throw_at_reused_addresses() {
    let Some(modules) = modules() else { return };
    let jit = new_jit();
    let mut pages = Vec::new();
    for round in 0..200 {
        let shape = round * 5 % 6;
        let (tracker, test) = load(&jit, jit.main_dylib(), &modules[shape]);
        check(&test, shape, round as i64);
        pages.push(test.address().value() / 4096);
        drop(test);
        assert!(tracker.remove().unwrap().is_complete());
    }
    pages.sort_unstable();
    pages.dedup();
    assert!(pages.len() < 10, "pages are reused: {pages:x?}");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn eight_threads_throw_while_another_adds_and_removes() {
    let Some(modules) = modules() else { return };
    let jit = new_jit();
    let residents: Vec<_> =
        (0..8).map(|index| load(&jit, &jit.create_dylib("resident").unwrap(), &modules[index % 6])).collect();
    let (stop, thrown) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (index, (_, test)) in residents.iter().enumerate() {
            let (stop, thrown) = (&stop, &thrown);
            scope.spawn(move || {
                let mut x = 0;
                // At least 500, however the threads are scheduled.
                while x < 500 || !stop.load(Ordering::Relaxed) {
                    check(test, index % 6, x);
                    x += 1;
                }
                thrown.fetch_add(x as u64, Ordering::Relaxed);
            });
        }
        let churn = jit.create_dylib("churn").unwrap();
        for round in 0..1500 {
            let shape = round * 7 % 6;
            let (tracker, test) = load(&jit, &churn, &modules[shape]);
            check(&test, shape, round as i64);
            drop(test);
            assert!(tracker.remove().unwrap().is_complete());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(thrown.into_inner() >= 8 * 500);
    drop(residents);
    jit.session().dylibs().iter().for_each(|dylib| drop(dylib.clear().unwrap()));
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn each_of_five_thousand_live_modules_throws() {
    let Some(modules) = modules() else { return };
    let jit = new_jit();
    let mut live: Vec<_> = (0..5000)
        .map(|index| load(&jit, &jit.create_dylib("module").unwrap(), &modules[index % 6]))
        .enumerate()
        .collect();
    for (index, (_, test)) in &live {
        check(test, index % 6, *index as i64);
    }
    // Remove every other module. The others must still throw.
    live.retain(|(index, (tracker, _))| {
        if index % 2 == 0 {
            tracker.remove().unwrap();
        }
        index % 2 != 0
    });
    for (index, (_, test)) in &live {
        check(test, index % 6, *index as i64);
    }
    assert_eq!(held(&jit).0, 2500);
    for (_, (tracker, test)) in live {
        drop(test);
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn the_program_does_not_import_register_frame() {
    // A program that registers frames imports that function by name. The literal is reversed, so that the search does not find it.
    let name: String = "emarf_retsiger__".chars().rev().collect();
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let is_there = program.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    assert!(!is_there, "this program, with all of the library in it, imports {name}");
}
