//! Runs the models of `loom_tests/` as a child cargo, so that plain `cargo test` covers them, and then once more for
//! every seeded bug: a model that cannot fail proves nothing.
//!
//! Nothing is listed here by hand. The models are the `#[test]` functions of `loom_tests/loom_*.rs`, each of which must
//! have printed its number of executions; the seeded bugs are what `src/` names in `cfg(mutant = ...)`. Every variant
//! has a target directory of its own below the outer one, so the outer build lock is never asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// One child build at a time: each wants the whole machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_model_passes_and_says_how_many_schedules_it_tried() {
    let Some(run) = run_models(None) else { return };
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
    for mutant in mutants {
        let Some(run) = run_models(Some(&mutant)) else { return };
        let failed = !run.succeeded && run.output.contains("test result: FAILED");
        assert!(failed, "`{mutant}` was not caught, or did not build\n{}", run.output);
        let by_a_model = run.output.lines().any(|line| line.contains("panicked at") && line.contains("loom_tests"));
        assert!(by_a_model, "`{mutant}` failed elsewhere than in an assertion of a model\n{}", run.output);
        let caught_by: Vec<_> = models().into_iter().filter(|model| has_failed(&run.output, model)).collect();
        assert!(!caught_by.is_empty(), "`{mutant}`: no model is reported as failed\n{}", run.output);
        println!("{mutant}: caught by {}", caught_by.join(", "));
    }
}

struct Run {
    succeeded: bool,
    output: String,
}

/// Builds and runs the models, with a seeded bug or without. `None` where that is not possible.
fn run_models(mutant: Option<&str>) -> Option<Run> {
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
    let (directory, flags) = match mutant {
        None => (target.join("loom"), "--cfg loom".to_string()),
        Some(mutant) => (target.join(format!("loom-{mutant}")), format!("--cfg loom --cfg mutant=\"{mutant}\"")),
    };
    let output = Command::new(cargo)
        .args(["test", "--release", "--no-fail-fast", "--test", "loom_*", "--", "--nocapture"])
        .current_dir(root())
        .env("CARGO_TARGET_DIR", directory)
        .env("RUSTFLAGS", flags)
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

/// Whether the harness lists `model` among the failures, one per line and indented.
fn has_failed(output: &str, model: &str) -> bool {
    output.lines().any(|line| line.strip_prefix("    ") == Some(model))
}

/// The names of the `#[test]` functions of all model files.
fn models() -> Vec<String> {
    let files = sources(&root().join("loom_tests"));
    let mut models = Vec::new();
    for text in files {
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

/// Every name that `src/` compares `mutant` with, once.
fn mutants() -> Vec<String> {
    let mut mutants: Vec<String> = Vec::new();
    for text in sources(&root().join("src")) {
        let after = text.split("mutant = \"").skip(1);
        mutants.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_string));
    }
    mutants.sort();
    mutants.dedup();
    mutants
}

/// The text of every `.rs` file at or below `directory`.
fn sources(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("the entry can be read").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(&path).expect("the source can be read"));
        }
    }
    texts
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
