//! Small programs of several objects answer as they do when they are linked natively.
//!
//! `crates/differential` draws the programs. It also has a command that compares more of them and shows each one.

use std::path::Path;
use std::thread;

use jittison_differential::{Options, Report, run};
use jittison_test_tools::{require, rounds};

const TOOLS: [&str; 8] = ["gcc", "g++", "clang++-19", "as", "ld", "ar", "clang-19", "llvm-mc-19"];

/// Programs that were wrong in silence: a weak name that one object hides, a member for a thread-local common symbol, an archive
/// before its user, lists of one priority in sections of two names, a variable of the C library, a definition in a note.
const ONCE_WRONG: [u64; 7] = [50031, 58916, 51473, 56413, 59421, 90583, 100993];

/// The number of programs with all rounds.
const PROGRAMS: usize = 256;

#[test]
fn small_programs_answer_as_linked_natively() {
    if TOOLS.iter().any(|tool| require(tool).is_none()) {
        return;
    }
    let report = compare("differential", 1, rounds(PROGRAMS) as u64);
    // Else the programs would say little.
    assert!(report.agreed() * 10 > report.count() * 6, "\n{}", report.summary());
}

#[test]
fn programs_that_were_wrong_answer_as_linked_natively_or_are_refused() {
    if TOOLS.iter().any(|tool| require(tool).is_none()) {
        return;
    }
    for seed in ONCE_WRONG {
        assert_eq!(compare("once_wrong", seed, 1).count(), 1);
    }
}

/// Compares the programs of consecutive seeds, in a directory of this name.
///
/// # Panics
/// If one of them is wrong.
fn compare(directory: &str, seed: u64, count: u64) -> Report {
    let options = Options {
        seed,
        count,
        threads: thread::available_parallelism().map_or(1, usize::from),
        jittison: env!("CARGO_BIN_EXE_jittison").into(),
        directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory),
        minimize_max: 3,
    };
    let report = run(&options).expect("the tools run");
    if let Some(faults) = report.faults() {
        panic!("\n{faults}");
    }
    report
}
