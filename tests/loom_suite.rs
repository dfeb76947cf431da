//! Runs the loom models of `loom_tests/`, so that plain `cargo test` covers them. Each model runs without a seeded bug. For each
//! seeded bug, one model runs and must fail. A model that cannot fail proves nothing.
//!
//! Schedules have few preemptions; that is the depth that finds each seeded bug. With `JITTISON_FULL`, the models without a bug
//! run with every schedule.
//!
//! A child cargo builds the models once, in a separate target directory, so it never waits for the lock of the outer build.
//! The environment variable `SEEDED_BUG` switches a seeded bug on (`seeded_bug!` in `src/sync.rs`).
//!
//! The suite reads three lists from the sources:
//!
//! - The models are the `#[test]` functions of `loom_tests/loom_*.rs`. Each must print its number of executions.
//! - The seeded bugs are the names that `src/` gives to `seeded_bug!`. A model must catch each.
//! - The table in `loom_tests/README.md` names a model for each seeded bug. That model must catch it. For a bug
//!   without a row, the suite tries first the model files that name the source of the bug, and then the others.
//!
//! Each run is a process with one model. Two processes run at a time.
#![cfg(not(loom))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use jittison_test_tools::rust_files;

#[test]
fn every_model_passes_and_prints_its_number_of_schedules() {
    let models = models();
    assert!(!models.is_empty(), "loom_tests/ holds no model");
    for_each_in_parallel(&models, |model| {
        let run = model.run(None);
        assert!(run.succeeded, "{} failed\n{}", model.name, run.output);
        let executions = executions(&run.output, &model.name);
        assert!(executions > 0, "`{}` did not print its number of executions\n{}", model.name, run.output);
        format!("{}: executions: {executions}", model.name)
    });
}

#[test]
fn every_seeded_bug_is_caught_by_an_assertion_of_a_model() {
    let models = models();
    let documented = documented();
    let bugs: Vec<_> = seeded_bugs().into_iter().collect();
    assert!(!bugs.is_empty(), "src/ names no seeded bug");
    for_each_in_parallel(&bugs, |(bug, sources)| {
        if let Some(name) = documented.get(bug) {
            let model =
                models.iter().find(|model| model.name == *name).expect("another test checks that the model exists");
            assert!(model.catches(bug), "{README} says that `{name}` catches `{bug}`, but it does not");
            return format!("{bug}: caught by {name}");
        }
        // A model usually catches the bugs of the sources that its file names.
        let (near, far): (Vec<_>, Vec<_>) = models.iter().partition(|model| model.names_any(sources));
        let caught = near.into_iter().chain(far).find(|model| model.catches(bug));
        let name = &caught.unwrap_or_else(|| panic!("no model catches `{bug}`")).name;
        format!("{bug}: caught by {name}; {README} has no row for it")
    });
}

#[test]
fn the_table_of_seeded_bugs_names_bugs_and_models_that_exist() {
    let (bugs, models) = (seeded_bugs(), models());
    for (bug, model) in documented() {
        assert!(bugs.contains_key(&bug), "{README} has a row for `{bug}`, but src/ has no such `seeded_bug!`");
        assert!(models.iter().any(|one| one.name == model), "{README} names the model `{model}`, which does not exist");
    }
}

/// The result of [`Model::run`].
struct Run {
    succeeded: bool,
    output: String,
}

/// A `#[test]` function of a model file.
struct Model {
    name: String,
    file: PathBuf,
}

impl Model {
    /// Runs this model alone.
    fn run(&self, bug: Option<&str>) -> Run {
        let binaries = built();
        let target = self.file.file_stem().expect("a file has a name").to_string_lossy();
        let binary = binaries.get(&*target).unwrap_or_else(|| panic!("Cargo.toml has no `[[test]]` named {target}"));
        let mut command = Command::new(binary);
        // With two threads, the harness runs the test on a thread with its name, and the panic message contains the name.
        command.args(["--exact", &self.name, "--nocapture", "--test-threads=2"]).current_dir(root());
        for variable in ["SEEDED_BUG", "MODEL_PREEMPTIONS_AT_MOST", "LOOM_CHECKPOINT_FILE", "LOOM_LOG"] {
            command.env_remove(variable);
        }
        if let Some(bug) = bug {
            command.env("SEEDED_BUG", bug);
        }
        if bug.is_some() || std::env::var_os("JITTISON_FULL").is_none() {
            command.env("MODEL_PREEMPTIONS_AT_MOST", "3");
        }
        let output = command.env("RUST_BACKTRACE", "0").output().expect("a model can be started");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let is_run = text.contains("running 1 test");
        assert!(is_run, "{target} has no test `{}`\n{text}", self.name);
        Run { succeeded: output.status.success(), output: text }
    }

    /// Whether this model fails with a seeded bug, by an assertion or by a report of loom. Panics on any other failure.
    fn catches(&self, bug: &str) -> bool {
        let run = self.run(Some(bug));
        if !run.succeeded && !self.has_detected_a_fault(&run.output) {
            panic!("`{bug}` made {} fail, but not by an assertion or a report of loom\n{}", self.name, run.output);
        }
        !run.succeeded
    }

    /// Whether the file of this model names one of `sources`.
    fn names_any(&self, sources: &[String]) -> bool {
        let text = fs::read_to_string(&self.file).expect("the source can be read");
        sources.iter().any(|source| text.contains(source.as_str()))
    }

    /// Whether the run ended with a failed assertion of the model or of the session, or with a deadlock or an unordered access
    /// that loom reports.
    fn has_detected_a_fault(&self, output: &str) -> bool {
        let thread = format!("thread '{}' ", self.name);
        let mut lines = output.lines();
        while let Some(line) = lines.next() {
            let Some((_, place)) = line.split_once(&thread) else { continue };
            let reports_of_loom = ["deadlock; threads = ", "Causality violation: "];
            let message = lines.clone().next().unwrap_or_default();
            let is_report_of_loom = reports_of_loom.iter().any(|report| message.starts_with(report));
            let is_assertion =
                ["panicked at loom_tests/", "panicked at src/session/"].iter().any(|at| place.contains(at));
            if is_assertion || is_report_of_loom {
                return true;
            }
        }
        false
    }
}

/// Calls `action` on each item, two at a time, and prints the results. All items run before a failure fails the test.
fn for_each_in_parallel<T: Sync>(items: &[T], action: impl Fn(&T) -> String + Sync) {
    built();
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| action(item))) {
                Ok(line) => println!("{line}, {:.1} s", start.elapsed().as_secs_f64()),
                Err(_) => _ = failed.fetch_add(1, Ordering::Relaxed),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    assert_eq!(failed.into_inner(), 0, "some of {} items failed; the panics are printed above", items.len());
}

/// The binaries of the model files, by target name. Built once.
fn built() -> &'static BTreeMap<String, PathBuf> {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> BTreeMap<String, PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the directory is inside the target directory");
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--release", "--message-format=json-render-diagnostics"]);
    for file in model_files() {
        command.arg("--test").arg(file.file_stem().expect("a file has a name"));
    }
    // The models run for seconds, and the crates are large. The least time in total takes a build that optimises the
    // scheduler of the models and nothing else.
    for option in [
        "profile.release.opt-level=0",
        "profile.release.codegen-units=16",
        "profile.release.package.loom.opt-level=3",
        "profile.release.package.generator.opt-level=3",
    ] {
        command.args(["--config", option]);
    }
    let output = command
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target.join("loom"))
        .env("RUSTFLAGS", "--cfg loom -A warnings")
        .env("CARGO_TERM_COLOR", "never")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "the models do not build\n{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let binaries = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let binary = message["executable"].as_str()?;
        Some((message["target"]["name"].as_str()?.to_string(), PathBuf::from(binary)))
    });
    binaries.collect()
}

/// The number of executions that `model` printed, or zero.
fn executions(output: &str, model: &str) -> u64 {
    let label = format!("{model}: executions: ");
    let after = output.match_indices(&label).map(|(at, _)| &output[at + label.len()..]);
    let digits = after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter_map(|digits| digits.parse().ok()).max().unwrap_or(0)
}

fn model_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("loom_tests")).expect("the directory can be read");
    let paths = entries.map(|entry| entry.expect("the entry can be read").path());
    let is_model = |path: &PathBuf| {
        let name = path.file_name().expect("an entry has a name").to_string_lossy();
        name.starts_with("loom_") && name.ends_with(".rs")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_model).collect();
    files.sort();
    files
}

/// The `#[test]` functions of all model files. Their names must differ.
fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for file in model_files() {
        let text = fs::read_to_string(&file).expect("the source can be read");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim() == "#[test]" {
                let function = lines.by_ref().find_map(|line| line.trim().strip_prefix("fn "));
                let name = function.and_then(|function| function.split('(').next());
                let name = name.expect("a function follows its attribute").to_string();
                models.push(Model { name, file: file.clone() });
            }
        }
    }
    let names: BTreeSet<_> = models.iter().map(|model| &model.name).collect();
    assert_eq!(names.len(), models.len(), "two models have one name");
    models
}

const README: &str = "loom_tests/README.md";

/// The model that the table names for each seeded bug: the first name in backticks in the last column.
fn documented() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(README)).expect("the file can be read");
    let (_, table) = text.split_once("| seeded bug |").expect("the file has the table of seeded bugs");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let in_backticks = |cell: &str| cell.split('`').nth(1).map(str::to_string);
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let pair = in_backticks(cells[0]).zip(in_backticks(cells.last().expect("a row has cells")));
        pair.unwrap_or_else(|| panic!("{README}: `{row}` needs a bug and a model in backticks"))
    })
    .collect()
}

/// The names that files in `src/` pass to `seeded_bug!`, and for each the paths of these files.
fn seeded_bugs() -> BTreeMap<String, Vec<String>> {
    let mut bugs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, text) in rust_files(&root(), "src") {
        for rest in text.split("seeded_bug!(").skip(1) {
            let Some(rest) = rest.trim_start().strip_prefix('"') else { continue };
            let name = rest.split('"').next().unwrap_or_default().to_string();
            bugs.entry(name).or_default().push(source.clone());
        }
    }
    bugs
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
