//! Runs the models of `loom_tests/` as a child cargo, so that plain `cargo test` covers them, and then once more for
//! every seeded bug: a model that cannot fail proves nothing.
//!
//! Nothing is listed here by hand. The models are the `#[test]` functions of `loom_tests/loom_*.rs`, each of which must
//! have printed its number of executions; the seeded bugs are what `src/` names in `seeded_bug!("...")`.
//!
//! The models are built once, in a target directory below the outer one, so the outer build lock is never asked for. The
//! environment variable `SEEDED_BUG` switches a seeded bug on (`seeded_bug!` in `src/sync.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// One child build at a time: each wants the whole machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_model_passes_and_says_how_many_schedules_it_tried() {
    let Some(run) = run_models(&model_files(), None) else { return };
    assert!(run.succeeded, "a model failed\n{}", run.output);
    let models = models();
    assert!(!models.is_empty(), "loom_tests/ holds no model");
    for model in models {
        let executions = executions(&run.output, &model);
        assert!(executions > 0, "`{model}` has not printed its executions\n{}", run.output);
        println!("{model}: executions: {executions}");
    }
}

#[test]
fn every_seeded_bug_is_caught_by_an_assertion_of_a_model() {
    let mutants = mutants();
    assert!(!mutants.is_empty(), "src/ names no seeded bug");
    let models = models();
    for (mutant, sources) in mutants {
        // Those that name the source which it is in come first: mostly one of them has it, and the others need not be run.
        let (near, far): (Vec<_>, Vec<_>) = model_files().into_iter().partition(|file| names_any(file, &sources));
        let (mut caught, begun) = (None, Instant::now());
        for files in [near, far] {
            if files.is_empty() || caught.is_some() {
                continue;
            }
            let Some(run) = run_models(&files, Some(&mutant)) else { return };
            // Without a line of this, it did not build.
            let caught_by: Vec<_> = models.iter().filter(|model| has_found_a_fault(&run.output, model)).collect();
            if !run.succeeded && caught_by.is_empty() {
                panic!("`{mutant}` made a model fail, and not by an assertion\n{}", run.output);
            }
            caught = (!run.succeeded).then(|| format!("{caught_by:?}"));
        }
        let caught = caught.unwrap_or_else(|| panic!("`{mutant}` was not caught"));
        println!("{mutant}: caught by {caught}, in {} s with its build", begun.elapsed().as_secs());
    }
}

/// Whether a model says of one of `sources` that it checks it.
fn names_any(file: &Path, sources: &[String]) -> bool {
    let text = fs::read_to_string(file).expect("the source can be read");
    sources.iter().any(|source| text.contains(source.as_str()))
}

struct Run {
    succeeded: bool,
    output: String,
}

/// Builds and runs the models of some files: all of them, or, with a seeded bug, up to the first that fails. `None` where
/// that is not possible.
fn run_models(files: &[PathBuf], mutant: Option<&str>) -> Option<Run> {
    if cfg!(loom) {
        eprintln!("skipped: this is the models' own build");
        return None;
    }
    let cargo = Path::new(env!("CARGO"));
    if !cargo.exists() {
        eprintln!("skipped: {} is missing", cargo.display());
        return None;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the directory lies in the target directory");
    let directory = target.join("loom");
    let mut command = Command::new(cargo);
    command.args(["test", "--release"]);
    if mutant.is_none() {
        command.arg("--no-fail-fast");
    }
    for file in files {
        command.arg("--test").arg(file.file_stem().expect("a file has a name"));
    }
    // The models are small and this crate is not: most of the time goes into building it, once for every seeded bug.
    command.args([
        "--config",
        "profile.release.opt-level=0",
        "--config",
        "profile.release.codegen-units=16",
        "--config",
        "profile.release.package.'*'.opt-level=3",
    ]);
    // Each model on a thread that bears its name, for the panic messages, even on one core.
    command.args(["--", "--nocapture", "--test-threads=2"]);
    match mutant {
        // A bug shows with few preemptions; that all is well, only with all of them.
        Some(mutant) => command.env("SEEDED_BUG", mutant).env("MODEL_PREEMPTIONS_AT_MOST", "3"),
        None => command.env_remove("SEEDED_BUG").env_remove("MODEL_PREEMPTIONS_AT_MOST"),
    };
    let output = command
        .current_dir(root())
        .env("CARGO_TARGET_DIR", directory)
        .env("RUSTFLAGS", "--cfg loom -A warnings")
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_TERM_COLOR", "never")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUST_TEST_THREADS")
        .env_remove("LOOM_CHECKPOINT_FILE")
        .env_remove("LOOM_LOG")
        .output()
        .expect("cargo can be started");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Some(Run { succeeded: output.status.success(), output: text.concat() })
}

/// The number that `model` printed, zero if none.
fn executions(output: &str, model: &str) -> u64 {
    let label = format!("{model}: executions: ");
    let after = output.match_indices(&label).map(|(at, _)| &output[at + label.len()..]);
    let digits = after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter_map(|digits| digits.parse().ok()).max().unwrap_or(0)
}

/// Whether `model` stopped at an assertion of its own, came to a deadlock, wrote memory that loom watches with nothing to
/// order it, or drove the session into a state that the session itself takes for impossible. The last aborts the process, so
/// other models of its file may not get to speak.
fn has_found_a_fault(output: &str, model: &str) -> bool {
    let thread = format!("thread '{model}' ");
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        let Some((_, place)) = line.split_once(&thread) else { continue };
        let found_by_loom = ["deadlock; threads = ", "Causality violation: "];
        let message = lines.clone().next().unwrap_or_default();
        let is_loom_s = found_by_loom.iter().any(|found| message.starts_with(found));
        let is_assertion = ["panicked at loom_tests/", "panicked at src/session/"].iter().any(|at| place.contains(at));
        if is_assertion || is_loom_s {
            return true;
        }
    }
    false
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

/// The names of the `#[test]` functions of all model files.
fn models() -> Vec<String> {
    let mut models = Vec::new();
    for file in model_files() {
        let text = fs::read_to_string(file).expect("the source can be read");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim() == "#[test]" {
                let function = lines.by_ref().find_map(|line| line.trim().strip_prefix("fn "));
                let name = function.and_then(|function| function.split('(').next());
                models.push(name.expect("a function follows its attribute").to_string());
            }
        }
    }
    models
}

/// Every name that a file below `src/` gives to `seeded_bug!`, and those files, as the models name them.
fn mutants() -> BTreeMap<String, Vec<String>> {
    let mut mutants: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources(&root().join("src")) {
        let text = fs::read_to_string(&path).expect("the source can be read");
        let source = path.strip_prefix(root()).expect("it lies in here").to_string_lossy().into_owned();
        for rest in text.split("seeded_bug!(\"").skip(1) {
            let name = rest.split('"').next().unwrap_or_default().to_string();
            mutants.entry(name).or_default().push(source.clone());
        }
    }
    mutants
}

/// Every `.rs` file at or below `directory`.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).expect("the directory can be read");
    for path in entries.map(|entry| entry.expect("the entry can be read").path()) {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
