//! The process exits with live code: exit handlers and finalisers run once, in exact reverse, whatever other threads do.

use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use jittison::Jit;

use crate::support::*;

extern "C" fn say(event: i64) {
    // On a line of its own, whatever was printed before.
    let line = format!("\n{event}\n");
    // SAFETY: the line is that long. Nothing is buffered that could be lost, or said twice.
    unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
}

fn saying_jit() -> Jit {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "say", say as *const () as u64);
    jit
}

fn object(base: i64) -> Option<Vec<u8>> {
    cpp(&format!(
        "#include <cstdlib>
         extern \"C\" void say(long);
         struct Noted {{ long n; explicit Noted(long n) : n({base} + n) {{ say({base} + n); }} ~Noted() {{ say(-n); }} }};
         static Noted one(1); static Noted two(2);
         static void handler() {{ say({base} + 7); }}
         __attribute__((destructor)) static void gone() {{ say({base} + 9); }}
         extern \"C\" long live{base}() {{ static long once = atexit(handler); return once + one.n + two.n; }}"
    ))
}

/// What the calling test says in a process of its own; `None` in that process.
fn said_alone(test: &str) -> Option<Vec<i64>> {
    if is_rerun(test) {
        return None;
    }
    let run = rerun(test).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&run.stderr));
    Some(said.lines().filter_map(|line| line.parse().ok()).collect())
}

static KEPT: OnceLock<Vec<Jit>> = OnceLock::new();

/// Two sessions with live code, the second with two objects, of which the second refers to nothing; a third object is
/// removed, and a fourth was never initialised. Threads go on calling.
fn keep_live_code() {
    let objects: Option<Vec<_>> = [100, 200, 300, 400, 500].into_iter().map(object).collect();
    let Some(objects) = objects else { return };
    let (first, second) = (saying_jit(), saying_jit());
    let add = |jit: &Jit, index: usize| add(jit, jit.main_dylib(), &format!("{index}.o"), &objects[index]);
    drop(add(&first, 0));
    assert_eq!(long(&first, "live100"), 203);
    drop(add(&second, 1));
    assert_eq!(long(&second, "live200"), 403);
    drop(add(&second, 2));
    assert_eq!(long(&second, "live300"), 603);
    let removed = add(&second, 3);
    assert_eq!(long(&second, "live400"), 803);
    assert!(removed.remove().unwrap().is_complete());
    // One more thread calls, and one links and removes, until the end.
    let calling = function::<extern "C" fn() -> i64>(&second, "live200");
    let (called, seen) = (Arc::new(Barrier::new(3)), second.clone());
    for index in 0..2 {
        let (called, calling, jit) = (called.clone(), calling.clone(), seen.clone());
        thread::spawn(move || {
            let churned = c("long churned(void) { return 3; }").unwrap();
            called.wait();
            let churn = jit.create_dylib("churn").unwrap();
            loop {
                assert_eq!(calling.call(), 403);
                if index == 0 {
                    let tracker = crate::support::add(&jit, &churn, "churned.o", &churned);
                    jit.address_of(&churn, "churned").unwrap();
                    assert!(tracker.remove().unwrap().is_complete());
                }
            }
        });
    }
    drop(add(&second, 4));
    second.address_of(second.main_dylib(), "live500").unwrap();
    assert!(KEPT.set(vec![first, second]).is_ok());
    called.wait();
}

/// Everything once; the newest session first; in a session handlers first, the last registered first, then finalisers.
const SAID: [i64; 24] = [
    101, 102, 201, 202, 301, 302, 401, 402, 407, -402, -401, 409, // up to the removal
    307, -302, -301, 207, -202, -201, 309, 209, // the second session
    107, -102, -101, 109, // the first
];

fn assert_said(said: &[i64]) {
    if !said.is_empty() {
        assert_eq!(said, SAID);
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_a_process_returns_from_main() {
    match said_alone(this_test!()) {
        Some(said) => assert_said(&said),
        None => keep_live_code(),
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_a_process_exits() {
    match said_alone(this_test!()) {
        Some(said) => assert_said(&said),
        None => {
            keep_live_code();
            std::process::exit(0);
        }
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_linked_code_exits_the_process_from_an_exit_handler() {
    let exits = "#include <stdlib.h>
        extern void say(long);
        static void handler(void) { say(1); exit(0); }
        static void next(void) { say(2); }
        __attribute__((destructor)) static void gone(void) { say(3); }
        long test(void) { return atexit(next) + atexit(handler); }";
    match said_alone(this_test!()) {
        Some(said) => assert!(said.is_empty() || said == [1, 2, 3], "{said:?}"),
        None => {
            let Some(object) = c(exits) else { return };
            let jit = saying_jit();
            drop(add(&jit, jit.main_dylib(), "exits.o", &object));
            assert_eq!(long(&jit, "test"), 0);
            assert!(KEPT.set(vec![jit]).is_ok());
        }
    }
}

#[test]
fn what_was_removed_and_is_held_at_the_exit_is_finalised_too() {
    match said_alone(this_test!()) {
        Some(said) => assert!(said.is_empty() || said == [101, 102, 107, -102, -101, 109], "{said:?}"),
        None => {
            let Some(object) = object(100) else { return };
            let jit = saying_jit();
            let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
            let live = function::<extern "C" fn() -> i64>(&jit, "live100");
            live.call();
            assert!(!tracker.remove().unwrap().is_complete());
            std::mem::forget(live);
            assert!(KEPT.set(vec![jit]).is_ok());
        }
    }
}
