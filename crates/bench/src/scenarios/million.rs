//! The costs of a removal, a link and a replacement among a million live modules, and the memory of the modules. Only
//! jittison takes part: the other competitors would exceed the number of mappings that Linux allows a process.
//!
//! One session grows through all steps, because linking and removing a million modules takes longer than all the
//! measurements. For the same reason only the first round measures this. A window of 2 GiB, the default, has space
//! for 700,000 of these modules, so this session may open another one.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;

use jittison::Jit;
use jittison::memory::OnFull;
use jittison::session::ResourceTracker;

use super::fixture::Fixture;
use super::linkers::{SETTLING, churn_of, removals_beside};
use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::single;
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::ours::Jittison;
use jittison_test_support::bench::resident::Resident;

const MILLION: usize = 1_000_000;
/// The number of live modules to compare with; its own figure is in the row already.
const BASE: usize = 1_000;
/// Between the largest number that peers reach and a million.
const BETWEEN: usize = 100_000;
/// A million modules take three gigabytes; other programs need some more.
const NEEDED_BYTES: u64 = 5_000_000_000;

/// Empty, with a message, if there is too little memory.
pub fn scenarios(workload: &Rc<Workload>, is_quick: bool) -> Vec<Box<dyn Scenario>> {
    if is_quick {
        return Vec::new();
    }
    if available_bytes().is_some_and(|available| available < NEEDED_BYTES) {
        eprintln!("skipped: a million live modules (they need {} GB of free memory)", NEEDED_BYTES / 1_000_000_000);
        return Vec::new();
    }
    let is_done = Cell::new(false);
    let once = move |workload: &Workload| if is_done.replace(true) { Ok(Vec::new()) } else { million(workload) };
    vec![scenario("remove, churn and memory of a million", JITTISON, workload, once)]
}

fn available_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"))?;
    kilobytes.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn million(workload: &Workload) -> Measures {
    let jit = Jit::builder().on_full(OnFull::OpenAnother).build().map_err(to_text)?;
    let mut fixture = Fixture::of(Jittison::of(jit, workload)?, &workload.objects.small)?;
    let (before, content_before) = (Resident::measure()?, fixture.linker.jit.memory_statistics().live_bytes);
    let (mut live, removals, churns) = (Vec::new(), workload.sizes.removals, workload.sizes.churns);
    fill_to(BASE, &mut fixture, &mut live)?;
    let mut removed = removals_beside(&mut fixture, &mut live, removals)?;
    fill_to(BETWEEN, &mut fixture, &mut live)?;
    let mut measures = churn_of(&mut fixture, &mut live, churns)?;

    fill_to(MILLION, &mut fixture, &mut live)?;
    let (full, content) = (Resident::measure()?, fixture.linker.jit.memory_statistics().live_bytes - content_before);
    let of_million = removals_beside(&mut fixture, &mut live, removals)?;
    measures.extend(churn_of(&mut fixture, &mut live, churns)?);
    removed.extend(of_million.iter().cloned());
    measures.extend(of_million);
    measures.extend(rows::against_a_thousand(&removed, JITTISON));

    fixture.remove_all(live)?;
    thread::sleep(SETTLING);
    let left = Resident::measure()?.bytes - before.bytes;
    fixture.linker.jit.release_free();
    let released = Resident::measure()?.bytes - before.bytes;
    let each = |more: f64| more / MILLION as f64;
    measures.extend([
        single(rows::RESIDENT.at(MILLION, JITTISON), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::CONTENT.at(MILLION, JITTISON), Unit::Bytes, each(content as f64)),
        single(rows::LEFTOVER.at(MILLION, JITTISON), Unit::Bytes, left),
        single(rows::RELEASED.at(MILLION, JITTISON), Unit::Bytes, released),
        single(rows::MAPPINGS.at(MILLION, JITTISON), Unit::Count, each(full.mappings - before.mappings)),
    ]);
    Ok(measures)
}

fn fill_to(count: usize, fixture: &mut Fixture<Jittison>, live: &mut Vec<ResourceTracker>) -> Result<(), String> {
    live.extend(fixture.fill(count - live.len())?);
    Ok(())
}
