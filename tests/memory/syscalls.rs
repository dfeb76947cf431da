//! Warm linking and removing make no system call. strace counts the calls of two runs that differ only in their number of
//! rounds.

use std::sync::Arc;

use jittison::link::ObjectBuffer;

use crate::support::*;

const ROUNDS: &str = "JITTISON_TEST_ROUNDS";

#[test]
fn a_thousand_more_links_and_removals_make_no_more_system_calls() {
    let test = this_test!();
    if is_rerun(test) {
        return work(std::env::var(ROUNDS).unwrap().parse().unwrap());
    }
    let Some(object) = object() else { return };
    let dir = PrivateDir::new();
    dir.write("object.o", object);
    let Some(few) = count(test, &dir, 200) else { return };
    let many = count(test, &dir, 1200).unwrap();
    println!("{few} and {many} system calls");
    assert!(many.abs_diff(few) < 10, "{few} system calls for 200 links and removals, {many} for 1200");
}

fn object() -> Option<Vec<u8>> {
    c("
        static long state = 7; static char zero[200]; static const char *const words[] = { \"a\", \"b\" };
        long one(long x) { return x + state; } long two(long x) { return x * 2; }
        static long (*const table[])(long) = { one, two };
        long test(void) { return table[0](1) + table[1](2) + zero[5] + (words[1][0] == 'b'); }")
}

/// Runs this test under strace and returns the total number of system calls. `None` without strace.
fn count(test: &str, dir: &PrivateDir, rounds: usize) -> Option<u64> {
    let report = dir.path("report");
    let mut strace = require("strace")?;
    strace.args(["-f", "-c", "-o"]).arg(&report);
    let run = rerun_below(strace, test)
        .env(ROUNDS, rounds.to_string())
        .env("JITTISON_TEST_OBJECT", dir.path("object.o"))
        .output()
        .unwrap();
    assert_passed(test, &run);
    let report = std::fs::read_to_string(&report).unwrap();
    let total = report.lines().find(|line| line.ends_with(" total")).unwrap();
    // `100.00  seconds  usecs/call  calls  [errors]  total`
    Some(total.split_whitespace().nth(3).unwrap().parse().unwrap())
}

fn work(rounds: usize) {
    let path = std::env::var("JITTISON_TEST_OBJECT").unwrap();
    let object = ObjectBuffer::new(Arc::<[u8]>::from(std::fs::read(path).unwrap()));
    let jit = new_jit();
    let round = || {
        let tracker = add_object(&jit, jit.main_dylib(), "object.o", object.clone());
        assert_eq!(long(&jit, "test"), 13);
        assert!(tracker.remove().unwrap().is_complete());
    };
    (0..100).for_each(|_| round()); // the warm-up
    (0..rounds).for_each(|_| round());
    assert_eq!(held(&jit), (0, 0, 0));
}
