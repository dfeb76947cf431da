//! What a test needs of the machine: tools, libraries, rights.
//!
//! A test asks for such a thing by [`require`] or [`require_that`]. If it is missing, the test is skipped. One line on the
//! standard error names the test and the thing. The line is also added to the file that `JITTISON_SKIPS` names; `.ci/run`
//! counts them. With `CI` set the test fails.
//!
//! `tests/process_wide.rs` fails if a test starts a tool without [`require`].

use std::env;
use std::fs::{self, Metadata};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cross::of_target;
use crate::process::OWN_PROCESS;

/// A command that runs `tool`: the name of a program in a directory of `PATH`, or a path. If there is no such program, the
/// calling test is skipped: `None`, and the caller must return.
pub fn require(tool: &str) -> Option<Command> {
    let (tool, arguments) = of_target(tool);
    require_that(find(&tool).is_some(), &tool).then(|| {
        let mut command = Command::new(tool);
        command.args(arguments);
        command
    })
}

/// A command that runs the Rust compiler.
pub fn rustc() -> Option<Command> {
    require(&env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string()))
}

/// Returns `is_met`, which says whether the machine meets the need that `needs` describes. If not, the calling test is skipped:
/// the caller must return.
pub fn require_that(is_met: bool, needs: &str) -> bool {
    if !is_met {
        skip(needs);
    }
    is_met
}

/// The file that [`Command`] starts for this name.
pub(crate) fn find(tool: &str) -> Option<Metadata> {
    let program = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        let is_program = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        is_program.then_some(metadata)
    };
    if tool.contains('/') {
        return program(Path::new(tool));
    }
    env::split_paths(&env::var_os("PATH")?).find_map(|directory| program(&directory.join(tool)))
}

const SKIPPED: &str = "skipped: ";

/// Reports that the calling test is skipped, and what it needs. Fails if `CI` is set.
fn skip(needs: &str) {
    let line = format!("{SKIPPED}{}: needs {needs}", calling_test());
    // Directly to the standard error: the harness hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = env::var_os("JITTISON_SKIPS") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
    let is_ci = env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "{line}\nWith CI set a skip is a failure; `.ci/install` installs what tests need.");
}

/// Prints the lines of a child process that name skipped tests. The child has already recorded them.
pub fn pass_skips_on(output: &str) {
    for line in output.lines().filter(|line| line.starts_with(SKIPPED)) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// The name of the test that runs on this thread.
fn calling_test() -> String {
    if let Ok(test) = env::var(OWN_PROCESS) {
        return test;
    }
    // The harness names a thread after its test. With `--test-threads=1` all tests run on the main thread.
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_string(),
        _ => test_of_backtrace(&std::backtrace::Backtrace::force_capture().to_string()).unwrap_or("a test".to_string()),
    }
}

/// The outermost function of this program in a backtrace.
fn test_of_backtrace(frames: &str) -> Option<String> {
    // `session-0123456789abcdef`
    let program = env::current_exe().ok()?;
    let program = format!("{}::", program.file_stem()?.to_str()?.rsplit_once('-')?.0.replace('-', "_"));
    let names = frames.lines().filter_map(|line| line.split_once(": ").map(|(_, name)| name.trim()));
    let mut of_program = names.filter_map(|name| name.strip_prefix(&program));
    of_program.next_back().map(|name| name.trim_end_matches("::{{closure}}").to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{PrivateDir, is_rerun, rerun, this_test};

    const MISSING: &str = "jittison-no-such-tool";

    #[test]
    fn a_test_without_its_tool_is_counted_as_skipped_and_fails_with_ci() {
        let test = this_test!();
        if is_rerun(test) {
            return assert!(require(MISSING).is_none());
        }
        let dir = PrivateDir::new();
        let skips = dir.path("skips.txt");
        let run = |ci: &str| rerun(test).env("CI", ci).env("JITTISON_SKIPS", &skips).output().unwrap();
        let line = format!("skipped: {test}: needs {MISSING}\n");
        let skipped = run("");
        assert!(skipped.status.success(), "{skipped:?}");
        assert!(String::from_utf8(skipped.stderr).unwrap().contains(&line));
        assert_eq!(fs::read_to_string(&skips).unwrap(), line);
        assert!(!run("true").status.success());
    }

    #[test]
    fn a_tool_is_found_by_its_name_and_by_its_path() {
        let program = env::current_exe().unwrap();
        assert!(find("sh").is_some() && find(program.to_str().unwrap()).is_some());
        assert!(find(MISSING).is_none());
        // A directory and a file that is not executable are no programs.
        assert!(find("/").is_none() && find("/proc/self/status").is_none());
    }
}
