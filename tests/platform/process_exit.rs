//! The process exits with live code: exit handlers and finalisers run once and in exact reverse, whatever other threads do.

use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use jittison::Jit;

use crate::support::*;

extern "C" fn report(event: i64) {
    // On its own line, whatever was printed before.
    let line = format!("\n{event}\n");
    // SAFETY: the pointer and the length of `line`. The write is unbuffered, so no event is lost or written twice.
    unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
}

fn reporting_jit() -> Jit {
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "report", report as extern "C" fn(i64));
    jit
}

fn object(base: i64) -> Option<Vec<u8>> {
    cpp(&format!(
        "#include <cstdlib>
         extern \"C\" void report(long);
         struct Noted {{ long n; explicit Noted(long n) : n({base} + n) {{ report({base} + n); }} ~Noted() {{ report(-n); }} }};
         static Noted one(1); static Noted two(2);
         static void handler() {{ report({base} + 7); }}
         __attribute__((destructor)) static void finalise() {{ report({base} + 9); }}
         extern \"C\" long live{base}() {{ static long once = atexit(handler); return once + one.n + two.n; }}"
    ))
}

/// Runs the calling test in its own process and returns the events that it reports: at least one, unless there is no
/// compiler. `None` in that process.
fn events_of_own_process(test: &str) -> Option<Vec<i64>> {
    if is_rerun(test) {
        return None;
    }
    let run = rerun(test).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(0), "{output}{}", String::from_utf8_lossy(&run.stderr));
    let events: Vec<i64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(!events.is_empty() || object(0).is_none(), "no event was reported: {output}");
    Some(events)
}

static KEPT: OnceLock<Vec<Jit>> = OnceLock::new();

/// Keeps two sessions with live code. The second has two live objects, a third that is removed, and a fourth that is never
/// initialised. One thread calls live code until the end, and another also links and removes.
fn keep_live_code() {
    let objects: Option<Vec<_>> = [100, 200, 300, 400, 500].into_iter().map(object).collect();
    let Some(objects) = objects else { return };
    let (first, second) = (reporting_jit(), reporting_jit());
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
    // Two threads call until the end. The first of them also links and removes.
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

/// Each event once. The newest session comes first. In a session exit handlers run first, in reverse order, then finalisers.
const EXPECTED: [i64; 24] = [
    101, 102, 201, 202, 301, 302, 401, 402, 407, -402, -401, 409, // up to the removal
    307, -302, -301, 207, -202, -201, 309, 209, // the second session
    107, -102, -101, 109, // the first
];

fn assert_expected(events: &[i64]) {
    // Empty without a compiler.
    if !events.is_empty() {
        assert_eq!(events, EXPECTED);
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_a_process_returns_from_main() {
    match events_of_own_process(this_test!()) {
        Some(events) => assert_expected(&events),
        None => keep_live_code(),
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_a_process_exits() {
    match events_of_own_process(this_test!()) {
        Some(events) => assert_expected(&events),
        None => {
            keep_live_code();
            std::process::exit(0);
        }
    }
}

#[test]
fn finalisers_run_once_and_in_order_when_linked_code_exits_the_process_from_an_exit_handler() {
    let exits = "#include <stdlib.h>
        extern void report(long);
        static void handler(void) { report(1); exit(0); }
        static void next(void) { report(2); }
        __attribute__((destructor)) static void finalise(void) { report(3); }
        long test(void) { return atexit(next) + atexit(handler); }";
    match events_of_own_process(this_test!()) {
        Some(events) => assert!(events.is_empty() || events == [1, 2, 3], "{events:?}"),
        None => {
            let Some(object) = c(exits) else { return };
            let jit = reporting_jit();
            drop(add(&jit, jit.main_dylib(), "exits.o", &object));
            assert_eq!(long(&jit, "test"), 0);
            assert!(KEPT.set(vec![jit]).is_ok());
        }
    }
}

#[test]
fn removed_code_that_is_held_at_exit_is_finalised_too() {
    match events_of_own_process(this_test!()) {
        Some(events) => assert!(events.is_empty() || events == [101, 102, 107, -102, -101, 109], "{events:?}"),
        None => {
            let Some(object) = object(100) else { return };
            let jit = reporting_jit();
            let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
            let live = function::<extern "C" fn() -> i64>(&jit, "live100");
            live.call();
            assert!(!tracker.remove().unwrap().is_complete());
            std::mem::forget(live);
            assert!(KEPT.set(vec![jit]).is_ok());
        }
    }
}
