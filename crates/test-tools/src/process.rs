//! Tests in their own process, and the number of rounds of a long test.
//!
//! The tests of one file share a process and run at the same time. Some things exist once in a process: the environment, the
//! current directory, limits, signal handlers, variables of the C library, at-fork handlers, the heap, the lists of mappings
//! and descriptors. A test that changes or counts one of them starts with [`own_process!`]:
//!
//! ```ignore
//! #[test]
//! fn a_session_leaves_no_mapping() {
//!     own_process!();
//!     // From here on, nothing else runs in this process.
//! }
//! ```
//!
//! `tests/process_wide.rs` fails if a test uses such a thing without it.

use std::process::{Command, Output};

use crate::cross::emulated;
use crate::require::pass_skips_on;

/// Runs the rest of the calling test in its own process. The outer test passes if that process does.
#[macro_export]
macro_rules! own_process {
    () => {
        if !$crate::is_own_process($crate::this_test!()) {
            return;
        }
    };
}

/// The name that the test harness has for the calling function.
#[macro_export]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::test_around(std::any::type_name_of_val(&here))
    }};
}

/// The environment variable that names the test for which a process was started.
pub const OWN_PROCESS: &str = "JITTISON_TEST_OWN_PROCESS";

/// `program::module::test::here` without the program and without `here`.
pub fn test_around(here: &'static str) -> &'static str {
    let (_, path) = here.split_once("::").unwrap();
    path.strip_suffix("::here").unwrap().trim_end_matches("::{{closure}}")
}

/// True in a process that was started for `test`. In any other process this starts that process, asserts that the test passes,
/// prints its output, and returns false.
pub fn is_own_process(test: &str) -> bool {
    if is_rerun(test) {
        return true;
    }
    let output = rerun(test).output().unwrap();
    print!("{}", assert_passed(test, &output));
    false
}

/// Whether this process was started by [`rerun`] for `test`.
pub fn is_rerun(test: &str) -> bool {
    std::env::var_os(OWN_PROCESS).is_some_and(|name| name == test)
}

/// A command that runs this program: all of its tests, unless the caller adds arguments.
pub fn this_program() -> Command {
    emulated(&std::env::current_exe().unwrap())
}

/// A command that runs `test` in its own process.
pub fn rerun(test: &str) -> Command {
    let mut command = this_program();
    command.args(arguments(test)).env(OWN_PROCESS, test);
    command
}

/// Like [`rerun`], but under another program: this program and its arguments follow the arguments of `tool`.
pub fn rerun_below(mut tool: Command, test: &str) -> Command {
    tool.arg(std::env::current_exe().unwrap()).args(arguments(test)).env(OWN_PROCESS, test);
    tool
}

pub fn arguments(test: &str) -> [&str; 4] {
    ["--exact", test, "--test-threads=1", "--nocapture"]
}

/// Asserts that a process which [`rerun`] started ran `test` and that the test passed. Returns its standard output.
pub fn assert_passed(test: &str, output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}: {}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "no test is called {test}: {out}");
    pass_skips_on(&err);
    out.into_owned()
}

// ---- rounds -----------------------------------------------------------------

/// The number of rounds of a long test: `full` if `JITTISON_FULL` is 1, otherwise an eighth. `.ci/run` sets it to `models`, which is
/// for the models of `tests/loom_suite.rs` only.
pub fn rounds(full: usize) -> usize {
    let is_full = std::env::var_os("JITTISON_FULL").is_some_and(|value| value == "1");
    if is_full { full } else { full.div_ceil(8) }
}
