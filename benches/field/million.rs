//! What a removal, a link and a replacement cost beside a million live modules, and what those take of memory: jittison alone,
//! since nobody else here has room for them in the mappings that Linux gives a process.
//!
//! One session grows through all steps, because to make and to remove a million takes longer than everything that is measured of
//! them; for the same reason it is done in the first round only. A window of 2 GiB, which a session has unless told otherwise, has
//! room for 700,000 of these modules, so this session may open another.

use std::cell::Cell;
use std::rc::Rc;

use jittison::Jit;
use jittison::memory::OnFull;
use jittison::session::ResourceTracker;

use crate::ours::{self, Scene, WHO, remove_now};
use crate::resident::Resident;
use crate::rows;
use crate::samples::single;
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

const MILLION: usize = 1_000_000;
/// Live modules whose removal the others' are held against; its figure itself is in the row already.
const BASE: usize = 1_000;
/// Between the largest that peers reach and the million.
const BETWEEN: usize = 100_000;
/// A million take three gigabytes, and whatever else runs wants some.
const NEEDED_BYTES: u64 = 5_000_000_000;

/// None, with a word about it, where the memory is short.
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
    vec![scenario("remove, churn and memory of a million", WHO, workload, once)]
}

fn available_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"))?;
    kilobytes.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn million(workload: &Workload) -> Measures {
    let jit = Jit::builder().on_full(OnFull::OpenAnother).build().map_err(words)?;
    let mut scene = Scene::of(jit, workload, &workload.objects.small)?;
    let (before, content_before) = (Resident::measure()?, scene.jit.memory_statistics().live_bytes);
    let (mut live, removals, churns) = (Vec::new(), workload.sizes.removals, workload.sizes.churns);
    fill_to(BASE, &mut scene, &mut live)?;
    let mut removed = ours::remove_and_link(&mut scene, &mut live, removals)?;
    fill_to(BETWEEN, &mut scene, &mut live)?;
    let mut measures = ours::churn_of(&mut scene, &mut live, churns)?;

    fill_to(MILLION, &mut scene, &mut live)?;
    let (full, content) = (Resident::measure()?, scene.jit.memory_statistics().live_bytes - content_before);
    let of_million = ours::remove_and_link(&mut scene, &mut live, removals)?;
    measures.extend(ours::churn_of(&mut scene, &mut live, churns)?);
    removed.extend(of_million.iter().cloned());
    measures.extend(of_million);
    measures.extend(ours::against_a_thousand(&removed, WHO));

    live.into_iter().try_for_each(remove_now)?;
    scene.jit.release_free();
    let left = Resident::measure()?.bytes - before.bytes;
    let each = |more: f64| more / MILLION as f64;
    measures.extend([
        single(rows::RESIDENT.at(MILLION, WHO), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::CONTENT.at(MILLION, WHO), Unit::Bytes, each(content as f64)),
        single(rows::LEFT.at(MILLION, WHO), Unit::Bytes, left),
        single(rows::MAPPINGS.at(MILLION, WHO), Unit::Count, each(full.mappings - before.mappings)),
    ]);
    Ok(measures)
}

fn fill_to(count: usize, scene: &mut Scene, live: &mut Vec<ResourceTracker>) -> Result<(), String> {
    live.extend(scene.fill(count - live.len())?);
    Ok(())
}
