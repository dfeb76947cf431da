//! The system calls of a warm link and of a removal, in all threads, counted by strace.
//!
//! The counted process removes a batch, links a batch in its place, and so on, as for the times. It reads its CPU
//! time before and after each batch. That read is a system call that serves no other purpose, so it marks the batch
//! in the trace. The first half of the batches warms the memory and is not counted.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::fixture::Fixture;
use super::linkers::remove_and_link;
use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::{BATCH, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::orc;
use crate::peers::ours::Jittison;

const LIVE: usize = 1_000;
const BATCHES: usize = 32;
const OPERATIONS: usize = BATCHES * BATCH;

/// Empty, with a message, without strace.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    const GROUP: &str = "link and remove, system calls";
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: system calls (strace counts them)");
        return Vec::new();
    }
    let measure_ours = |workload: &Workload| {
        let mut command = Command::new(std::env::current_exe().map_err(to_text)?);
        counted(workload, command.arg("--counted"), JITTISON)
    };
    let mut all = vec![scenario(GROUP, JITTISON, workload, measure_ours)];
    all.extend(orc::set_ups(peers).into_iter().map(|orc| {
        scenario(GROUP, orc.competitor, workload, move |workload| {
            counted(workload, &orc.command("remove", workload.small_file()?, OPERATIONS, LIVE), orc.competitor)
        })
    }));
    all
}

/// The process that strace traces.
pub fn run_under_strace(workload: &Workload) -> Result<(), String> {
    let mut fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
    let mut live = fixture.fill(LIVE)?;
    remove_and_link(&mut fixture, &mut live, OPERATIONS).map(drop)
}

fn counted(workload: &Workload, command: &Command, competitor: &str) -> Measures {
    let trace = workload.scratch.path().join("system calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(&trace).arg(command.get_program()).args(command.get_args());
    let output = strace.output().map_err(|error| format!("strace: {error}"))?;
    if !output.status.success() {
        return Err(format!("under strace: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let batches = calls_of_batches(&String::from_utf8_lossy(&std::fs::read(&trace).map_err(to_text)?));
    if batches.len() != 2 * BATCHES {
        return Err(format!(
            "the trace has {} marked batches of removals and links; expected {}",
            batches.len(),
            2 * BATCHES
        ));
    }
    // Removals and links alternate.
    let warm = &batches[BATCHES..];
    let each = |first: usize| warm.iter().skip(first).step_by(2).sum::<usize>() as f64 / (OPERATIONS / 2) as f64;
    Ok(vec![
        single(rows::LINK_CALLS.by(competitor), Unit::Count, each(1)),
        single(rows::REMOVE_CALLS.by(competitor), Unit::Count, each(0)),
    ])
}

/// The number of calls between every other pair of marks. A line of strace looks like `1234 mprotect(0x7f…`.
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
            && begins_call(call)
        {
            *calls += 1;
        }
    }
    batches
}

/// Whether a line is the start of a call, not a signal, an exit or the rest of an interrupted call. A call that reads
/// a clock belongs to the measurement.
fn begins_call(call: &str) -> bool {
    call.starts_with(|character: char| character.is_ascii_lowercase()) && !call.starts_with("clock_gettime(")
}
