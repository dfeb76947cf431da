//! A test that changes or counts what exists once in a process has a process of its own: the sources of the tests, checked.
//!
//! The tests of one program run at the same time in one process. Two that set the same variable of the C library fail now and
//! then; a count of descriptors includes those of the neighbours. [`PROCESS_WIDE`] lists the calls and names that touch such
//! things. A test that has one of them, itself or in a function or constant that it uses, must first say `own_process!();`,
//! or run itself with `rerun(this_test!())` (`tests/support/process.rs`).
//!
//! A use that other tests cannot disturb stands behind a comment `// Shares the process: <why>` in its function.
//!
//! The check reads text, not Rust: functions by their names within a directory of `tests/`, and methods not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Text that touches what a process has once, in Rust or in the C of an object.
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
    // The environment and the directory.
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
    // Room for thread-locals at fixed places.
    "-ftls-model=initial-exec",
    "-ftls-model=local-exec",
    // Descriptors of everybody.
    "dup2(",
    "close_range(",
    // What the kernel counts.
    "/proc/self",
    "getrusage(",
    "mincore(",
    // Replaced versions: a call of the host into linked code holds them, whichever session it is of.
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

/// The files that make the processes, or name the calls to look for.
const LEFT_OUT: [&str; 3] = ["tests/support/process.rs", "tests/process_wide.rs", "tests/architecture.rs"];

#[test]
fn a_test_that_touches_what_a_process_has_once_runs_in_a_process_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut groups: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    for (file, text) in rust_files(root, "tests").into_iter().chain(rust_files(root, "src")) {
        if LEFT_OUT.contains(&file.as_str()) {
            continue;
        }
        // Unit tests know the functions of their own file; those of a directory of `tests/`, each other's.
        let (group, _) = file.rsplit_once('/').unwrap();
        let is_unit = file.starts_with("src/");
        let group = if is_unit { file.as_str() } else { group };
        groups.entry(group.to_string()).or_default().extend(items(&file, &text, is_unit));
    }
    let shared = groups.remove("tests/support").expect("the helpers");
    let faults: Vec<_> = groups.values().flat_map(|group| faults(group, &shared)).collect();
    assert!(
        faults.is_empty(),
        "{}\nBegin the test with `own_process!();` (tests/support/process.rs). If other tests cannot disturb the use, say why \
         in a comment `{SHARES}…` in the function that has it.",
        faults.join("\n")
    );
}

/// Text that goes round the helpers, and the helper that does the same.
const BY_HAND: [(&str, &str); 4] = [
    ("Command::new(std::env::current_exe", "rerun(this_test!())"),
    ("Command::new(env::current_exe", "rerun(this_test!())"),
    ("println!(\"skipped", "skip(what it needs)"),
    ("is_alone(", "own_process!()"),
];

#[test]
fn tests_are_skipped_and_run_again_by_the_helpers_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = rust_files(root, "tests").into_iter().chain(rust_files(root, "src"));
    let checked = files.filter(|(file, _)| !LEFT_OUT.contains(&file.as_str()) && !file.starts_with("src/bin"));
    let faults: Vec<_> = checked.flat_map(|(file, text)| by_hand(&file, &text)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn by_hand(file: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let found =
            BY_HAND.iter().filter(|(what, _)| line.match_indices(what).any(|(at, _)| starts_word(line, at, &[])));
        faults
            .extend(found.map(|(what, helper)| {
                format!("{file}:{number}: `{what}`: use `{helper}` of tests/support/process.rs")
            }));
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
    /// Known to other files.
    is_public: bool,
    text: String,
}

/// The items of a file as `rustfmt` lays it out; of a file of `src/`, its test module's.
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

/// The name that a line defines, and whether it is a function's.
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

/// What is wrong with the tests of a group, which may use the items of `shared`.
fn faults(group: &[Item], shared: &[Item]) -> Vec<String> {
    let all: Vec<&Item> = group.iter().chain(shared).filter(|item| !item.text.contains(SHARES)).collect();
    // What touches the process, and by what; grows until nothing is added.
    let mut touches: Vec<(&Item, String)> = Vec::new();
    loop {
        let before = touches.len();
        for item in all.iter().filter(|item| !item.is_test && !MARKS.iter().any(|mark| item.text.contains(mark))) {
            if !touches.iter().any(|(known, _)| std::ptr::eq(*known, *item))
                && let Some((_, by)) = first_use(item, &touches)
            {
                touches.push((item, by));
            }
        }
        if touches.len() == before {
            break;
        }
    }
    let tests = group.iter().filter(|item| item.is_test && !item.text.contains(SHARES));
    tests
        .filter_map(|test| {
            let (at, by) = first_use(test, &touches)?;
            let marked = MARKS.iter().filter_map(|mark| test.text.find(mark)).min();
            let is_alone = marked.is_some_and(|marked| marked < at);
            (!is_alone)
                .then(|| format!("{}:{}: `{}` uses {by}, and shares its process", test.file, test.line, test.name))
        })
        .collect()
}

/// Where an item first touches the process, and by what.
fn first_use(item: &Item, touches: &[(&Item, String)]) -> Option<(usize, String)> {
    let direct = PROCESS_WIDE.iter().filter_map(|what| {
        let is_start = what.starts_with(|c: char| c.is_alphabetic());
        let at = item.text.match_indices(what).find(|(at, _)| !is_start || starts_word(&item.text, *at, &[]))?.0;
        Some((at, format!("`{what}`")))
    });
    let known = touches.iter().filter(|(other, _)| other.name != item.name);
    let visible = known.filter(|(other, _)| other.is_public || other.file == item.file);
    let called = visible.filter_map(|(other, by)| {
        let name = &other.name;
        let is_used = |at: usize| {
            let behind = item.text[at + name.len()..].chars().next().unwrap_or(' ');
            let ends = if other.is_function { behind == '(' } else { !behind.is_alphanumeric() && behind != '_' };
            ends && starts_word(&item.text, at, &['.'])
        };
        let at = item.text.match_indices(name).map(|(at, _)| at).find(|at| is_used(*at))?;
        Some((at, format!("`{name}`, which has {by}")))
    });
    direct.chain(called).min_by_key(|(at, _)| *at)
}

/// Whether no letter, digit or one of `others` stands ahead of `at`.
fn starts_word(text: &str, at: usize, others: &[char]) -> bool {
    let ahead = text[..at].chars().next_back().unwrap_or(' ');
    !ahead.is_alphanumeric() && ahead != '_' && !others.contains(&ahead)
}

fn rust_files(root: &Path, dir: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(dir)).expect("the directory can be read") {
        let entry = entry.expect("the entry can be read");
        let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(rust_files(root, &name));
        } else if name.ends_with(".rs") {
            files.push((name, fs::read_to_string(entry.path()).expect("the source can be read")));
        }
    }
    files.sort();
    files
}

// ---- the check, checked -----------------------------------------------------

fn faults_of(text: &str) -> Vec<String> {
    faults(&items("tests/x/x.rs", text, false), &[])
}

#[test]
fn a_use_is_seen_in_the_test_in_a_helper_and_in_the_c_of_a_constant() {
    for text in [
        "#[test]\nfn t() {\n    set_var(\"A\", \"1\");\n}\n",
        "fn limit() {\n    libc::setrlimit(x);\n}\n#[test]\nfn t() {\n    limit();\n}\n",
        "fn inner() {\n    read(\"/proc/self/fd\");\n}\nfn outer() {\n    inner()\n}\n#[test]\nfn t() {\n    outer();\n}\n",
        "const C: &str = \"\n    int f() { return optopt; }\";\n#[test]\nfn t() {\n    link(C);\n}\n",
        // Too late: the outer process has done it already.
        "#[test]\nfn t() {\n    set_var(\"A\", \"1\");\n    own_process!();\n}\n",
    ] {
        let faults = faults_of(text);
        assert_eq!(faults.len(), 1, "{text}");
        assert!(faults[0].starts_with("tests/x/x.rs:") && faults[0].contains("`t` uses `"), "{faults:?}");
    }
}

#[test]
fn a_process_of_its_own_a_reason_and_another_s_method_are_no_fault() {
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
