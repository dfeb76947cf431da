//! SQLite, compiled as one object of 1.7 MB, linked in one process: the first link of all, which touches every page of memory for
//! the first time, and the same again when that is warm.
//!
//! There is one first link in a process, so each round starts a few, as many for every competitor. The object is made by
//! `benches/real_programs/run`, and it is missing where that has not what it needs.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use jittison::Jit;
use serde_json::{Value, json};

use crate::objects::Instance;
use crate::orc;
use crate::ours::{self, Scene, WHO, remove_now};
use crate::programs;
use crate::rows;
use crate::samples::{Samples, single};
use crate::scenario::{Key, Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::{Workload, write_one};

type Measures = Result<Vec<Measure>, String>;

const PROCESSES: usize = 5;
/// In each process, behind the first.
const LINKS: usize = 40;

/// The version of the source that the script takes.
const VERSION: u64 = 3_050_002;

/// Of an object that is there by now.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    const GROUP: &str = "link, SQLite";
    let by_us = |_: &Workload| {
        let mut command = Command::new(std::env::current_exe().map_err(words)?);
        measured(command.arg("--first").arg(object_path()), WHO)
    };
    let mut all = vec![scenario(GROUP, WHO, workload, by_us)];
    all.extend(orc::set_ups(peers).into_iter().map(|orc| {
        let file = OnceCell::new();
        scenario(GROUP, orc.who, workload, move |workload| {
            measured(&mut orc.command("large", &written(&file, workload)?, LINKS, 0), orc.who)
        })
    }));
    all
}

fn object_path() -> PathBuf {
    programs::input("sqlite/plain/sqlite3.o")
}

/// For a peer's program.
fn written(place: &OnceCell<PathBuf>, workload: &Workload) -> Result<PathBuf, String> {
    if let Some(path) = place.get() {
        return Ok(path.clone());
    }
    let path = workload.scratch.path("sqlite");
    write_one(&path, &workload.objects.runtime, &read(&object_path())?, 0).map_err(words)?;
    Ok(place.get_or_init(|| path).clone())
}

fn read(path: &Path) -> Result<Instance, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Instance { bytes: bytes.into(), entry: "sqlite3_libversion_number".to_string(), expected: VERSION })
}

/// What a process of ours does: it has linked nothing but the library, as those of the peers.
pub fn be_first(workload: &Workload, object: &Path) -> Result<(), String> {
    let instance = read(object)?;
    let jit = Jit::builder().library("libm.so.6").build().map_err(words)?;
    let scene = Scene::unused(jit, workload, &workload.objects.small)?;
    let (mut first, mut again) = (Samples::default(), Samples::default());
    for number in 0..=LINKS {
        let samples = if number == 0 { &mut first } else { &mut again };
        let (address, tracker) = samples.one(|| scene.link(&instance))?;
        ours::check_with(address, &instance, 0)?;
        remove_now(tracker)?;
    }
    let median = |samples: Samples| samples.into_measure(rows::SQLITE_FIRST.by(WHO)).value;
    println!("{}", json!({ "first": { "value": median(first) }, "again": { "value": median(again) } }));
    Ok(())
}

/// The medians of what some processes tell.
fn measured(command: &mut Command, who: &str) -> Measures {
    let told = (0..PROCESSES).map(|_| told_by(command)).collect::<Result<Vec<Value>, String>>()?;
    let median = |name: &str, key: Key| {
        let value = |told: &Value| told[name]["value"].as_f64().ok_or_else(|| format!("no figure `{name}` in {told}"));
        let mut values = told.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
        values.sort_by(f64::total_cmp);
        Ok::<Measure, String>(single(key, Unit::Nanoseconds, values[values.len() / 2]))
    };
    Ok(vec![median("first", rows::SQLITE_FIRST.by(who))?, median("again", rows::SQLITE_AGAIN.by(who))?])
}

fn told_by(command: &mut Command) -> Result<Value, String> {
    let output = command.output().map_err(words)?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("not JSON: {error}"))
}
