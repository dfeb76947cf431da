//! Checks the sources of the tests: a test that changes or counts process-wide state runs in its own process.
//!
//! The tests of one program run at the same time in one process. Two tests that set the same variable of the C library fail
//! sometimes, and a count of descriptors includes those of other tests. [`PROCESS_WIDE`] lists the calls and names that use
//! such state. A test that uses one of them, directly or through a function or constant, must first call `own_process!();` or
//! run itself with `rerun(this_test!())` (`crates/test-tools/src/process.rs`).
//!
//! If other tests cannot disturb a use, its function has a comment `// Shares the process: <why>`.
//!
//! The check reads text and does not parse Rust. It finds functions by name within one directory of `tests/`, and ignores
//! methods.

use std::collections::BTreeMap;
use std::path::Path;

use jittison_test_tools::rust_files;

/// Text that uses process-wide state, in Rust or in the C code of an object.
const PROCESS_WIDE: [&str; 44] = [
    // Variables and state of the C library.
    "optopt",
    "optind",
    "opterr",
    "setlocale(",
    "srand(",
    "mallinfo",
    "malloc_trim(",
    "sbrk(",
    // The environment and the current directory.
    "set_var(",
    "remove_var(",
    "setenv(",
    "putenv(",
    "clearenv(",
    "set_current_dir(",
    "chdir(",
    "umask(",
    // Limits and rights.
    "setrlimit(",
    "prctl(",
    "personality(",
    "unshare(",
    "setpriority(",
    "sched_setaffinity(",
    // Signals and timers.
    "sigaction(",
    "libc::signal(",
    "sigprocmask(",
    "alarm(",
    "setitimer(",
    // Handlers.
    "pthread_atfork(",
    "panic::set_hook(",
    "take_hook(",
    "set_global_default(",
    // Static TLS space.
    "-ftls-model=initial-exec",
    "-ftls-model=local-exec",
    // Descriptors.
    "dup2(",
    "close_range(",
    // Counters of the kernel.
    "/proc/self",
    "getrusage(",
    "mincore(",
    // Functions that can be replaced: a call in progress in any session of the process keeps the replaced version.
    ".patchable(",
    // Lists for debuggers and profilers.
    "__jit_debug_descriptor",
    "/tmp/perf-",
    "JITTISON_PERF\"",
    "JITTISON_GDB\"",
    "perf-{",
];

const SHARES: &str = "// Shares the process: ";
const MARKS: [&str; 2] = ["own_process!(", "this_test!("];

/// Files that start the processes, or that contain the texts to look for.
const EXCLUDED: [&str; 4] = [
    "crates/test-tools/src/process.rs",
    "crates/test-support/src/bench/",
    "tests/process_wide.rs",
    "tests/architecture/",
];

/// The directory of the shared helpers.
const SUPPORT: &str = "crates/test-support/src";

#[test]
fn a_test_that_touches_process_wide_state_runs_in_its_own_process() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut groups: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    for (file, text) in test_files(root) {
        // Unit tests see the functions of their file. Tests in a directory of `tests/` see those of the directory.
        let (group, _) = file.rsplit_once('/').unwrap();
        let is_unit = file.starts_with("src/");
        let group = if is_unit { file.as_str() } else { group };
        groups.entry(group.to_string()).or_default().extend(items(&file, &text, is_unit));
    }
    let shared = groups.remove(SUPPORT).expect("the helpers are in a directory");
    let faults: Vec<_> = groups.values().flat_map(|group| faults(group, &shared)).collect();
    assert!(
        faults.is_empty(),
        "{}\nBegin the test with `own_process!();` (crates/test-tools/src/process.rs). If other tests cannot disturb the \
         use, add a comment `{SHARES}…` with the reason to its function.",
        faults.join("\n")
    );
}

/// Text that bypasses a helper, and that helper.
const BYPASSES: [(&str, &str); 5] = [
    ("Command::new(std::env::current_exe", "rerun(this_test!())"),
    ("Command::new(env::current_exe", "rerun(this_test!())"),
    ("Command::new(\"", "require(tool)"),
    ("println!(\"skipped", "require_that(is_met, what it needs)"),
    ("is_alone(", "own_process!()"),
];

#[test]
fn tests_are_skipped_and_rerun_only_by_the_helpers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checked = test_files(root).into_iter().filter(|(file, _)| !file.starts_with("src/bin"));
    let faults: Vec<_> = checked.flat_map(|(file, text)| bypasses(&file, &text)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn bypasses(file: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let found =
            BYPASSES.iter().filter(|(what, _)| line.match_indices(what).any(|(at, _)| starts_word(line, at, &[])));
        faults.extend(
            found.map(|(what, helper)| format!("{file}:{number}: `{what}`: use `{helper}` of crates/test-tools")),
        );
    }
    faults
}

/// A function, constant or static, with its text.
struct Item {
    file: String,
    line: usize,
    name: String,
    is_test: bool,
    is_function: bool,
    /// Visible to other files.
    is_public: bool,
    text: String,
}

/// The items of a file that `rustfmt` has formatted. Of a file in `src/`, only those of its test module.
fn items(file: &str, text: &str, is_unit: bool) -> Vec<Item> {
    let from = match is_unit && !file.ends_with("/tests.rs") {
        true => text.find("#[cfg(test)]").unwrap_or(text.len()),
        false => 0,
    };
    let mut items: Vec<Item> = Vec::new();
    let mut is_test = false;
    for (number, line) in text.lines().enumerate().skip(text[..from].lines().count()) {
        let margin = line.len() - line.trim_start().len();
        let is_outer = margin == 0 || (is_unit && margin == 4);
        let rest = line.trim_start();
        if is_outer && rest == "#[test]" {
            is_test = true;
        }
        match is_outer.then(|| named(rest)).flatten() {
            Some((name, is_function)) => {
                let (file, line_number) = (file.to_string(), number + 1);
                let (is_public, text) = (rest.starts_with("pub"), format!("{line}\n"));
                items.push(Item { file, line: line_number, name, is_test, is_function, is_public, text });
                is_test = false;
            }
            None => {
                if let Some(item) = items.last_mut()
                    && (!rest.starts_with("//") || rest.starts_with(SHARES))
                {
                    item.text.push_str(line);
                    item.text.push('\n');
                }
            }
        }
    }
    items
}

/// The name that a line defines, and whether it names a function.
fn named(line: &str) -> Option<(String, bool)> {
    let mut rest = line;
    for before in ["pub ", "pub(crate) ", "pub(super) ", "unsafe ", "extern \"C\" ", "extern \"C-unwind\" "] {
        rest = rest.strip_prefix(before).unwrap_or(rest);
    }
    let is_function = rest.starts_with("fn ");
    let rest = ["fn ", "const ", "static "].iter().find_map(|start| rest.strip_prefix(start))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    // `static long x` is C.
    let is_item = if is_function { rest[end..].starts_with(['(', '<']) } else { rest[end..].starts_with(':') };
    (end > 0 && is_item).then(|| (rest[..end].to_string(), is_function))
}

/// The faults of the tests in a group, which may use the items of `shared`.
fn faults(group: &[Item], shared: &[Item]) -> Vec<String> {
    let all: Vec<&Item> = group.iter().chain(shared).filter(|item| !item.text.contains(SHARES)).collect();
    // Items that use process-wide state, and through which text. The list grows until a pass adds nothing.
    let mut users: Vec<(&Item, String)> = Vec::new();
    loop {
        let before = users.len();
        for item in all.iter().filter(|item| !item.is_test && !MARKS.iter().any(|mark| item.text.contains(mark))) {
            if !users.iter().any(|(known, _)| std::ptr::eq(*known, *item))
                && let Some((_, by)) = first_use(item, &users)
            {
                users.push((item, by));
            }
        }
        if users.len() == before {
            break;
        }
    }
    let tests = group.iter().filter(|item| item.is_test && !item.text.contains(SHARES));
    tests
        .filter_map(|test| {
            let (at, by) = first_use(test, &users)?;
            let marked = MARKS.iter().filter_map(|mark| test.text.find(mark)).min();
            let is_alone = marked.is_some_and(|marked| marked < at);
            (!is_alone)
                .then(|| format!("{}:{}: `{}` uses {by}, but shares its process", test.file, test.line, test.name))
        })
        .collect()
}

/// Where an item first uses process-wide state, and through which text.
fn first_use(item: &Item, users: &[(&Item, String)]) -> Option<(usize, String)> {
    let direct = PROCESS_WIDE.iter().filter_map(|what| {
        let is_start = what.starts_with(|c: char| c.is_alphabetic());
        let at = item.text.match_indices(what).find(|(at, _)| !is_start || starts_word(&item.text, *at, &[]))?.0;
        Some((at, format!("`{what}`")))
    });
    let known = users.iter().filter(|(other, _)| other.name != item.name);
    let visible = known.filter(|(other, _)| other.is_public || other.file == item.file);
    let called = visible.filter_map(|(other, by)| {
        let name = &other.name;
        let is_used = |at: usize| {
            let next = item.text[at + name.len()..].chars().next().unwrap_or(' ');
            let ends = if other.is_function { next == '(' } else { !next.is_alphanumeric() && next != '_' };
            ends && starts_word(&item.text, at, &['.'])
        };
        let at = item.text.match_indices(name).map(|(at, _)| at).find(|at| is_used(*at))?;
        Some((at, format!("`{name}`, which uses {by}")))
    });
    direct.chain(called).min_by_key(|(at, _)| *at)
}

/// Whether the character before `at` is no letter, digit, underscore or one of `others`.
fn starts_word(text: &str, at: usize, others: &[char]) -> bool {
    let previous = text[..at].chars().next_back().unwrap_or(' ');
    !previous.is_alphanumeric() && previous != '_' && !others.contains(&previous)
}

/// The files of the tests, of their helpers, and of `src/`, with the text of each.
fn test_files(root: &Path) -> Vec<(String, String)> {
    let files = ["tests", SUPPORT, "src"].into_iter().flat_map(|dir| rust_files(root, dir));
    files.filter(|(file, _)| !EXCLUDED.iter().any(|excluded| file.starts_with(excluded))).collect()
}

// ---- tests of the check -----------------------------------------------------

fn faults_of(text: &str) -> Vec<String> {
    faults(&items("tests/x/x.rs", text, false), &[])
}

#[test]
fn a_use_is_found_in_a_test_a_helper_and_the_c_code_of_a_constant() {
    for text in [
        "#[test]\nfn t() {\n    set_var(\"A\", \"1\");\n}\n",
        "fn limit() {\n    libc::setrlimit(x);\n}\n#[test]\nfn t() {\n    limit();\n}\n",
        "fn inner() {\n    read(\"/proc/self/fd\");\n}\nfn outer() {\n    inner()\n}\n#[test]\nfn t() {\n    outer();\n}\n",
        "const C: &str = \"\n    int f() { return optopt; }\";\n#[test]\nfn t() {\n    link(C);\n}\n",
        // Too late: the outer process has already changed the variable.
        "#[test]\nfn t() {\n    set_var(\"A\", \"1\");\n    own_process!();\n}\n",
    ] {
        let faults = faults_of(text);
        assert_eq!(faults.len(), 1, "{text}");
        assert!(faults[0].starts_with("tests/x/x.rs:") && faults[0].contains("`t` uses `"), "{faults:?}");
    }
}

#[test]
fn an_own_process_a_reason_and_a_method_of_the_same_name_are_no_fault() {
    for text in [
        "#[test]\nfn t() {\n    own_process!();\n    set_var(\"A\", \"1\");\n}\n",
        "#[test]\nfn t() {\n    let test = this_test!();\n    if is_rerun(test) {\n        set_var(\"A\", \"1\");\n    }\n}\n",
        "#[test]\nfn t() {\n    // Shares the process: it is read.\n    read(\"/proc/self/maps\");\n}\n",
        "fn limit() {\n    libc::setrlimit(x);\n}\n#[test]\nfn t() {\n    link.limit();\n}\n",
        "// set_var(\n#[test]\nfn t() {\n    // set_var(\n    reset_var();\n}\n",
    ] {
        assert_eq!(faults_of(text), [""; 0], "{text}");
    }
}
