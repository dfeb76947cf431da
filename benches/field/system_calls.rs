//! How many system calls a warm link and a removal make: counted by strace, those of all threads.
//!
//! Whoever is counted removes a batch, links a batch in its place, and so on, as for the times. Before and after each batch it
//! reads its CPU time, which takes a system call and is done for nothing else: these are the marks between which the others are
//! counted. The first half of the batches warms the memory, and is not counted.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::orc;
use crate::ours::{self, Scene, WHO};
use crate::rows;
use crate::samples::{BATCH, single};
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

const LIVE: usize = 1_000;
const BATCHES: usize = 32;
const OPERATIONS: usize = BATCHES * BATCH;

/// None, with a word about it, without strace.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    const GROUP: &str = "link and remove, system calls";
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: system calls (strace counts them)");
        return Vec::new();
    }
    let by_us = |workload: &Workload| {
        let mut command = Command::new(std::env::current_exe().map_err(words)?);
        counted(workload, command.arg("--counted"), WHO)
    };
    let mut all = vec![scenario(GROUP, WHO, workload, by_us)];
    all.extend(orc::set_ups(peers).into_iter().map(|orc| {
        scenario(GROUP, orc.who, workload, move |workload| {
            counted(workload, &orc.command("remove", workload.small_file()?, OPERATIONS, LIVE), orc.who)
        })
    }));
    all
}

/// What this program does under strace.
pub fn be_counted(workload: &Workload) -> Result<(), String> {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let mut live = scene.fill(LIVE)?;
    ours::remove_and_link(&mut scene, &mut live, OPERATIONS).map(drop)
}

fn counted(workload: &Workload, command: &Command, who: &str) -> Measures {
    let trace = workload.scratch.path("system calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(&trace).arg(command.get_program()).args(command.get_args());
    let output = strace.output().map_err(|error| format!("strace: {error}"))?;
    if !output.status.success() {
        return Err(format!("under strace: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let batches = calls_of_batches(&String::from_utf8_lossy(&std::fs::read(&trace).map_err(words)?));
    if batches.len() != 2 * BATCHES {
        return Err(format!("{} batches of removals and links are marked, not {}", batches.len(), 2 * BATCHES));
    }
    // Removals and links by turns.
    let warm = &batches[BATCHES..];
    let each = |first: usize| warm.iter().skip(first).step_by(2).sum::<usize>() as f64 / (OPERATIONS / 2) as f64;
    Ok(vec![
        single(rows::LINK_CALLS.by(who), Unit::Count, each(1)),
        single(rows::REMOVE_CALLS.by(who), Unit::Count, each(0)),
    ])
}

/// The calls between each mark and the next but one, by strace's lines: `1234 mprotect(0x7f…`.
fn calls_of_batches(trace: &str) -> Vec<usize> {
    let (mut batches, mut open) = (Vec::new(), None);
    for line in trace.lines() {
        let call = line.trim_start_matches(|character: char| character.is_ascii_digit()).trim_start();
        if call.starts_with("clock_gettime(CLOCK_PROCESS_CPUTIME_ID") {
            match open.take() {
                Some(calls) => batches.push(calls),
                None => open = Some(0),
            }
        } else if let Some(calls) = &mut open
            && is_made(call)
        {
            *calls += 1;
        }
    }
    batches
}

/// Whether a line is a call, and not a signal, an end, or the rest of one whose beginning stands above. Where reading a clock takes
/// a call at all, it is the measurement's.
fn is_made(call: &str) -> bool {
    call.starts_with(|character: char| character.is_ascii_lowercase()) && !call.starts_with("clock_gettime(")
}
