//! [`run`]: compares the programs of consecutive seeds, on several threads, and then minimizes those that are wrong.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::draw::draw;
use crate::expected::{Expected, concerned};
use crate::features::Feature;
use crate::minimize::minimize;
use crate::outcome::{Outcome, compare};
use crate::program::Program;
use crate::report::{Report, WrongClass};
use crate::tools::Tools;

pub struct Options {
    /// The seed of the first program.
    pub seed: u64,
    pub count: u64,
    pub threads: usize,
    /// The program `jittison`.
    pub jittison: PathBuf,
    /// Objects and programs are built here. A cache of compiled objects stays.
    pub directory: PathBuf,
    /// At most this many wrong programs are minimized.
    pub minimize_max: usize,
}

/// The comparison of one program.
pub struct Compared {
    pub seed: u64,
    pub program: Program,
    /// `Err`: an object could not be built.
    pub outcome: Result<Outcome, String>,
}

pub fn run(options: &Options) -> Result<Report, String> {
    let expected = Expected::read(include_str!("expected.txt"))?;
    let tools = Tools::new(&options.jittison, &options.directory)?;
    let mut report = Report::default();
    let work = options.directory.join(std::process::id().to_string());
    for compared in compare_all(&tools, options, &work) {
        report.add(&compared, &expected);
    }
    minimize_wrong(&tools, options, &work, &mut report);
    let _ = fs::remove_dir_all(&work);
    Ok(report)
}

/// Compares all programs. The order is that of the seeds, whatever thread took which.
fn compare_all(tools: &Tools, options: &Options, work: &Path) -> Vec<Compared> {
    let next = AtomicU64::new(options.seed);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in 0..options.threads.max(1) {
            let (next, results) = (&next, &results);
            scope.spawn(move || {
                let directory = work.join(format!("worker{worker}"));
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.seed + options.count {
                        break;
                    }
                    let program = draw(seed);
                    let outcome = compare(tools, &program, &directory);
                    results.lock().expect("no thread panics").push(Compared { seed, program, outcome });
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|compared| compared.seed);
    results
}

/// Minimizes unexpected wrong programs in the order of their seeds. One that has all features of a minimized program belongs
/// to the class of that program.
fn minimize_wrong(tools: &Tools, options: &Options, work: &Path, report: &mut Report) {
    let directory = work.join("minimize");
    for (seed, program) in std::mem::take(&mut report.unexpected) {
        report.wrong_seeds.push(seed);
        let Some(Outcome::Wrong(difference)) = compare(tools, &program, &directory).ok() else {
            report.unsteady.push(seed);
            continue;
        };
        let sets = concerned(&program, &difference);
        let is_known = |class: &&mut WrongClass| sets.iter().any(|features| class.features.is_subset(features));
        if let Some(class) = report.classes.iter_mut().find(is_known) {
            class.seeds.push(seed);
            continue;
        }
        if report.classes.len() >= options.minimize_max {
            report.not_minimized.push(seed);
            continue;
        }
        let smallest = minimize(tools, &program, &directory);
        report.classes.push(class_of(tools, seed, smallest, &directory));
    }
}

fn class_of(tools: &Tools, seed: u64, program: Program, directory: &Path) -> WrongClass {
    let outcome = compare(tools, &program, directory);
    let features: BTreeSet<Feature> = match &outcome {
        Ok(Outcome::Wrong(difference)) => concerned(&program, difference).into_iter().next().unwrap_or_default(),
        _ => BTreeSet::new(),
    };
    let outcome = outcome.unwrap_or(Outcome::Agree);
    WrongClass { seeds: vec![seed], program, outcome, features: without_circumstances(features) }
}

/// The features that say what a program has, without those that every program has in one form or another.
fn without_circumstances(features: BTreeSet<Feature>) -> BTreeSet<Feature> {
    let is_circumstance = |feature: &Feature| {
        ["program=", "model=gas", "model=gcc", "model=-fPIC", "definitions=", "order=definition-", "order=import-"]
            .iter()
            .any(|start| feature.starts_with(start))
    };
    features.into_iter().filter(|feature| !is_circumstance(feature)).collect()
}
