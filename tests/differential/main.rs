//! Small programs of several objects answer as they do when they are linked natively.
//!
//! `crates/differential` draws the programs. It also has a command that compares more of them and shows each one.

use std::path::Path;
use std::thread;

use jittison_differential::{Options, run};
use jittison_test_tools::{require, rounds};

const TOOLS: [&str; 8] = ["gcc", "g++", "clang++-19", "as", "ld", "ar", "clang-19", "llvm-mc-19"];

/// The number of programs with all rounds.
const PROGRAMS: usize = 256;

#[test]
fn small_programs_answer_as_linked_natively() {
    if TOOLS.iter().any(|tool| require(tool).is_none()) {
        return;
    }
    let options = Options {
        seed: 1,
        count: rounds(PROGRAMS) as u64,
        threads: thread::available_parallelism().map_or(1, usize::from),
        jittison: env!("CARGO_BIN_EXE_jittison").into(),
        directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential"),
        minimize_max: 3,
    };
    let report = run(&options).expect("the tools run");
    if let Some(faults) = report.faults() {
        panic!("\n{faults}");
    }
    // Else the programs would say little.
    assert!(report.agreed() * 10 > report.count() * 6, "\n{}", report.summary());
}
