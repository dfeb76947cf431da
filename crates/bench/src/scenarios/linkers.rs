//! What is measured of each [`Linker`]: links, removals, replacements and memory. Every linked function is called and
//! its result checked.

use std::rc::Rc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use jittison_test_support::allocations;
use jittison_test_support::bench::objects::Template;
use jittison_test_support::bench::resident::Resident;

use super::fixture::Fixture;
use crate::measure::checks::check;
use crate::measure::rows::{self, against_a_thousand};
use crate::measure::samples::{BATCH, Samples, single};
use crate::measure::scenario::{Key, Measure, Measures, Scenario, Unit};
use crate::measure::workload::{LIVE_WHILE_GROWING, Workload};
use crate::measure::workload_scenario::scenario;
use crate::peers::linker::Linker;

pub fn scenarios<L: Linker + 'static>(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let mut all = small_scenarios::<L>(workload);
    all.extend([
        scenario("link, medium", L::NAME, workload, link_medium::<L>),
        scenario("memory, growth", L::NAME, workload, growth::<L>),
    ]);
    all
}

/// Those with live modules of one small object, which may all have the same names.
pub fn small_scenarios<L: Linker + 'static>(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![
        small_links::<L>(workload),
        scenario("remove", L::NAME, workload, remove::<L>),
        scenario("churn", L::NAME, workload, churn::<L>),
        scenario("memory, live", L::NAME, workload, memory::<L>),
    ]
}

pub fn small_links<L: Linker + 'static>(workload: &Rc<Workload>) -> Box<dyn Scenario> {
    scenario("link, small", L::NAME, workload, link_small::<L>)
}

/// Links of objects whose bytes are in no cache. For linkers that read the object's bytes while the clock runs.
pub fn cold_links<L: Linker + 'static>(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![
        scenario("link, small, cold", L::NAME, workload, |workload| {
            let fixture = Fixture::<L>::new(workload, &L::objects(workload)?.small)?;
            link_cold(fixture, workload.sizes.small_links, rows::LINK_SMALL_COLD)
        }),
        scenario("link, medium, cold", L::NAME, workload, |workload| {
            let fixture = Fixture::<L>::new(workload, &L::objects(workload)?.medium)?;
            link_cold(fixture, workload.sizes.medium_links, rows::LINK_MEDIUM_COLD)
        }),
    ]
}

fn link_cold<L: Linker>(mut fixture: Fixture<L>, count: usize, row: rows::Row) -> Measures {
    fixture.is_cold = true;
    let (mut links, mut live) = (Samples::default(), Vec::with_capacity(count));
    while live.len() < count.min(L::MAX_LIVE) {
        link_batch(&mut fixture, &mut links, &mut live)?;
    }
    Ok(vec![links.into_measure(row.by(L::NAME))])
}

fn link_small<L: Linker>(workload: &Workload) -> Measures {
    let mut fixture = Fixture::<L>::new(workload, &L::objects(workload)?.small)?;
    let keys = [rows::LINK_SMALL.by(L::NAME), rows::REMOVE_SMALL.by(L::NAME)];
    let (mut measures, allocated) = links(&mut fixture, workload.sizes.small_links, keys)?;
    if L::IS_COUNTED {
        measures.push(single(rows::ALLOCATIONS.by(L::NAME), Unit::Count, allocated));
    }
    Ok(measures)
}

fn link_medium<L: Linker>(workload: &Workload) -> Measures {
    let mut fixture = Fixture::<L>::new(workload, &L::objects(workload)?.medium)?;
    let keys = [rows::LINK_MEDIUM.by(L::NAME), rows::REMOVE_MEDIUM.by(L::NAME)];
    let (mut measures, _) = links(&mut fixture, workload.sizes.medium_links, keys)?;
    let (live, replaced) = workload.sizes.medium_replaced();
    let mut live = fixture.fill(live)?;
    let [_, again] = remove_and_link(&mut fixture, &mut live, replaced)?;
    measures.push(again.into_measure(rows::MEDIUM_AGAIN.by(L::NAME)));
    Ok(measures)
}

/// Links many modules, all live at once, then removes them in random order. Also returns the heap allocations per
/// link.
pub fn links<L: Linker>(
    fixture: &mut Fixture<L>,
    count: usize,
    [link_key, remove_key]: [Key; 2],
) -> Result<(Vec<Measure>, f64), String> {
    let count = count.min(L::MAX_LIVE);
    let (mut links, mut live, mut allocated) = (Samples::default(), Vec::with_capacity(count), 0);
    while live.len() < count {
        allocated += link_batch(fixture, &mut links, &mut live)?;
    }
    let (linked, mut removals, mut rng) = (live.len(), Samples::default(), Rng::with_seed(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let module = live.swap_remove(rng.usize(..live.len()));
            removals.one(|| fixture.linker.remove(module))?;
        }
        Ok::<(), String>(())
    })?;
    // Rounded down: the vector of samples grows a few times.
    let allocated = (allocated as f64 / linked as f64).floor();
    Ok((vec![links.into_measure(link_key), removals.into_measure(remove_key)], allocated))
}

/// Times the links of a batch, then calls what was linked. Returns the heap allocations of all links.
fn link_batch<L: Linker>(
    fixture: &mut Fixture<L>,
    links: &mut Samples,
    live: &mut Vec<L::Live>,
) -> Result<u64, String> {
    let (batch, mut linked) = (fixture.make_batch()?, Vec::with_capacity(BATCH));
    let before = allocations();
    links.batch(|links| {
        let mut link = |instance, input| links.one(|| fixture.linker.link(instance, input));
        batch.iter().for_each(|ready| linked.push(link(&ready.instance, &ready.input)));
    });
    let allocated = allocations() - before;
    for (ready, linked) in batch.iter().zip(linked) {
        let (address, module) = linked?;
        check(address, &ready.instance)?;
        live.push(module);
    }
    Ok(allocated)
}

fn remove<L: Linker>(workload: &Workload) -> Measures {
    removals::<L>(workload, &L::objects(workload)?.small)
}

/// The costs of a removal and of a link, with increasing numbers of live instances of the same object.
pub fn removals<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for count in workload.sizes.removals_beside.iter().filter(|live| **live <= L::MAX_LIVE) {
        let mut fixture = Fixture::<L>::new(workload, template)?;
        let mut live = fixture.fill(*count)?;
        measures.extend(removals_beside(&mut fixture, &mut live, workload.sizes.removals)?);
    }
    measures.extend(against_a_thousand(&measures, L::NAME));
    Ok(measures)
}

/// The costs of a removal and of a link beside the modules in `live`.
pub fn removals_beside<L: Linker>(fixture: &mut Fixture<L>, live: &mut Vec<L::Live>, operations: usize) -> Measures {
    let count = live.len();
    let [removals, links] = remove_and_link(fixture, live, operations)?;
    Ok(vec![
        removals.into_measure(rows::REMOVE.at(count, L::NAME)),
        links.into_measure(rows::LINK_BESIDE.at(count, L::NAME)),
    ])
}

/// Repeatedly removes a batch of random modules and links as many new ones. Returns the times of both.
pub fn remove_and_link<L: Linker>(
    fixture: &mut Fixture<L>,
    live: &mut Vec<L::Live>,
    operations: usize,
) -> Result<[Samples; 2], String> {
    let (mut removals, mut links, mut rng) = (Samples::default(), Samples::default(), Rng::with_seed(3));
    for _ in 0..operations / BATCH {
        let victims: Vec<L::Live> = (0..BATCH).map(|_| live.swap_remove(rng.usize(..live.len()))).collect();
        removals.batch(|removals| {
            victims.into_iter().try_for_each(|victim| removals.one(|| fixture.linker.remove(victim)))
        })?;
        link_batch(fixture, &mut links, live)?;
    }
    Ok([removals, links])
}

fn churn<L: Linker>(workload: &Workload) -> Measures {
    churns::<L>(workload, &L::objects(workload)?.small, workload.sizes.churns_of)
}

/// The cost of a replacement, for each of these numbers of live instances of the same object.
pub fn churns<L: Linker>(workload: &Workload, template: &Template, counts: &[usize]) -> Measures {
    let mut measures = Vec::new();
    for count in counts.iter().filter(|live| **live <= L::MAX_LIVE) {
        let mut fixture = Fixture::<L>::new(workload, template)?;
        let mut live = fixture.fill(*count)?;
        measures.extend(churn_of(&mut fixture, &mut live, workload.sizes.churns)?);
    }
    Ok(measures)
}

pub fn churn_of<L: Linker>(fixture: &mut Fixture<L>, live: &mut [L::Live], operations: usize) -> Measures {
    let samples = replace(fixture, live, operations)?;
    let rate = single(rows::CHURN_RATE.at(live.len(), L::NAME), Unit::PerSecond, samples.per_second());
    Ok(vec![rate, samples.into_measure(rows::CHURN.at(live.len(), L::NAME))])
}

/// Links modules that were never linked before; each replaces another.
fn replace<L: Linker>(fixture: &mut Fixture<L>, live: &mut [L::Live], operations: usize) -> Result<Samples, String> {
    let (mut samples, mut rng) = (Samples::default(), Rng::with_seed(3));
    for _ in 0..operations / BATCH {
        let batch = fixture.make_batch()?;
        samples.batch(|samples| {
            batch.iter().try_for_each(|ready| {
                samples.one(|| {
                    let index = rng.usize(..live.len());
                    let new = fixture.link_checked(ready)?;
                    fixture.linker.remove(std::mem::replace(&mut live[index], new))
                })
            })
        })?;
    }
    Ok(samples)
}

fn memory<L: Linker>(workload: &Workload) -> Measures {
    let counts = workload.sizes.residents.iter().filter(|live| **live <= L::MAX_LIVE);
    Ok(counts.map(|live| memory_of::<L>(workload, *live)).collect::<Result<Vec<_>, String>>()?.concat())
}

/// How long after the last removal the memory that is left is measured.
pub(super) const SETTLING: Duration = Duration::from_secs(3);

fn memory_of<L: Linker>(workload: &Workload, count: usize) -> Measures {
    let mut fixture = Fixture::<L>::new(workload, &L::objects(workload)?.small)?;
    let (before, content_before) = (Resident::measure()?, fixture.linker.content_bytes());
    let live = fixture.fill(count)?;
    let (full, content) = (Resident::measure()?, fixture.linker.content_bytes());
    fixture.remove_all(live)?;
    // What is in the background returns memory that stays free for a second or two. ORC has nothing in the background.
    thread::sleep(SETTLING);
    let left = Resident::measure()?;
    let each = |more: f64| more / count as f64;
    let mut measures = vec![
        single(rows::RESIDENT.at(count, L::NAME), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::RSS.at(count, L::NAME), Unit::Bytes, each(full.rss - before.rss)),
    ];
    if let (Some(content), Some(before)) = (content, content_before) {
        measures.push(single(rows::CONTENT.at(count, L::NAME), Unit::Bytes, each((content - before) as f64)));
    }
    measures.extend([
        single(rows::LEFTOVER.at(count, L::NAME), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(count, L::NAME), Unit::Count, each(full.mappings - before.mappings)),
    ]);
    if fixture.linker.release_free() {
        let released = Resident::measure()?.bytes - before.bytes;
        measures.push(single(rows::RELEASED.at(count, L::NAME), Unit::Bytes, released));
    }
    Ok(measures)
}

fn growth<L: Linker>(workload: &Workload) -> Measures {
    let mut fixture = Fixture::<L>::new(workload, &L::objects(workload)?.small)?;
    let (mut live, operations) = (fixture.fill(LIVE_WHILE_GROWING)?, workload.sizes.churns);
    // The first replacements leave free memory that the next ones use; after two the state of jittison is steady.
    replace(&mut fixture, &mut live, operations)?;
    replace(&mut fixture, &mut live, operations)?;
    let before = Resident::measure()?;
    replace(&mut fixture, &mut live, operations)?;
    Ok(vec![single(rows::GROWTH.by(L::NAME), Unit::Bytes, before.grown()? / operations as f64)])
}
