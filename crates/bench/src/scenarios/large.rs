//! SQLite, compiled into one object of 1.7 MB: the first link in a process, which touches every page for the first
//! time, and later links into warm memory.
//!
//! A process has only one first link, so each round starts a few processes, the same number for every competitor.
//! `benches/real_programs/run` builds the object; without its prerequisites the object is missing.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use jittison::Jit;
use serde_json::{Value, json};

use super::programs;
use crate::measure::checks::check_with;
use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::{Samples, single};
use crate::measure::scenario::{Key, Measure, Measures, Scenario, Unit, to_text};
use crate::measure::workload::{Workload, write_one};
use crate::measure::workload_scenario::scenario;
use crate::peers::orc;
use crate::peers::ours::{Jittison, link, remove_now};
use jittison_test_support::bench::objects::Instance;

const PROCESSES: usize = 5;
/// Links in each process after the first.
const LINKS: usize = 40;

/// The version of the source that the script downloads.
const VERSION: u64 = 3_050_002;

/// The scenarios; the object must exist by now.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    const GROUP: &str = "link, SQLite";
    let measure_ours = |_: &Workload| {
        let mut command = Command::new(std::env::current_exe().map_err(to_text)?);
        measured(command.arg("--first").arg(object_path()), JITTISON)
    };
    let mut all = vec![scenario(GROUP, JITTISON, workload, measure_ours)];
    all.extend(orc::set_ups(peers).into_iter().map(|orc| {
        let file = OnceCell::new();
        scenario(GROUP, orc.competitor, workload, move |workload| {
            measured(&mut orc.command("large", &write_for_peer(&file, workload)?, LINKS, 0), orc.competitor)
        })
    }));
    all
}

fn object_path() -> PathBuf {
    programs::input("sqlite/plain/sqlite3.o")
}

/// Writes the object for a peer's program.
fn write_for_peer(file: &OnceCell<PathBuf>, workload: &Workload) -> Result<PathBuf, String> {
    if let Some(path) = file.get() {
        return Ok(path.clone());
    }
    let path = workload.scratch.path().join("sqlite");
    write_one(&path, &workload.objects.runtime, &read(&object_path())?, 0).map_err(to_text)?;
    Ok(file.get_or_init(|| path).clone())
}

fn read(path: &Path) -> Result<Instance, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Instance { bytes: bytes.into(), entry: "sqlite3_libversion_number".to_string(), expected: VERSION })
}

/// The process that measures jittison. Before the first link it has linked only the runtime library, as the peers'
/// processes have.
pub fn measure_first_links(workload: &Workload, object: &Path) -> Result<(), String> {
    let instance = read(object)?;
    let jit = Jit::builder().library("libm.so.6").build().map_err(to_text)?;
    let Jittison { jit, dylib, .. } = Jittison::of(jit, workload)?;
    let (mut first, mut again) = (Samples::default(), Samples::default());
    for number in 0..=LINKS {
        let samples = if number == 0 { &mut first } else { &mut again };
        let (address, tracker) = samples.one(|| link(&jit, &dylib, &instance))?;
        check_with(address, &instance, 0)?;
        remove_now(tracker)?;
    }
    let median = |samples: Samples| samples.into_measure(rows::SQLITE_FIRST.by(JITTISON)).value;
    println!("{}", json!({ "first": { "value": median(first) }, "again": { "value": median(again) } }));
    Ok(())
}

/// The medians of what several processes print.
fn measured(command: &mut Command, competitor: &str) -> Measures {
    let output = (0..PROCESSES).map(|_| output_of(command)).collect::<Result<Vec<Value>, String>>()?;
    let median = |name: &str, key: Key| {
        let value =
            |output: &Value| output[name]["value"].as_f64().ok_or_else(|| format!("no figure `{name}` in {output}"));
        let mut values = output.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
        values.sort_by(f64::total_cmp);
        Ok::<Measure, String>(single(key, Unit::Nanoseconds, values[values.len() / 2]))
    };
    Ok(vec![median("first", rows::SQLITE_FIRST.by(competitor))?, median("again", rows::SQLITE_AGAIN.by(competitor))?])
}

fn output_of(command: &mut Command) -> Result<Value, String> {
    let output = command.output().map_err(to_text)?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("not JSON: {error}"))
}
