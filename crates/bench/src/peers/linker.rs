//! [`Linker`]: a competitor that is a library in this process. Each is measured in the same way as jittison.
//!
//! The input of each batch is prepared before the clock starts, in the form that the linker takes. The clock covers
//! the time from there to the entry's address, and for a removal the drop of the live module.

use std::rc::Rc;

use jittison::base::ExecutorAddr;

use crate::measure::rows::{self, Row};
use crate::measure::samples::{BATCH, Samples, single};
use crate::measure::scenario::{Measure, Scenario, Unit};
use crate::measure::workload::{MAX_MAPPED, Workload};
use crate::peers::ours::{LIVE_WHILE_GROWING, against_a_thousand, check};
use crate::scenarios::registry::scenario;
use fastrand::Rng;
use jittison_test_support::allocations;
use jittison_test_support::bench::objects::{Instance, Objects, Template};
use jittison_test_support::bench::resident::Resident;

type Measures = Result<Vec<Measure>, String>;

pub trait Linker: Sized {
    const NAME: &'static str;

    /// An instance in the form that this linker takes.
    type Input;
    /// A linked module; dropping it removes it.
    type Live;

    fn new(workload: &Workload) -> Result<Self, String>;

    /// The objects whose instances it links.
    fn objects(workload: &Workload) -> Result<&Objects, String>;

    fn prepare(&self, instance: &Instance) -> Result<Self::Input, String>;

    /// Links a module and returns the address of its entry.
    fn link(&mut self, input: &Self::Input) -> Result<(ExecutorAddr, Self::Live), String>;
}

pub fn scenarios<L: Linker + 'static>(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, round: fn(&Workload) -> Measures| scenario(group, L::NAME, workload, round);
    vec![
        of("link, small", link_small::<L>),
        of("link, medium", link_medium::<L>),
        of("remove", remove::<L>),
        of("churn", churn::<L>),
        of("memory, live", memory::<L>),
        of("memory, growth", growth::<L>),
    ]
}

/// A linker and what it links.
struct Fixture<'a, L> {
    linker: L,
    template: &'a Template,
    number: u32,
}

/// An instance that is ready to be linked.
struct Ready<L: Linker> {
    instance: Instance,
    input: L::Input,
}

impl<'a, L: Linker> Fixture<'a, L> {
    /// Links and removes a first module, which pays for one-time work.
    fn new(workload: &Workload, template: &'a Template) -> Result<Fixture<'a, L>, String> {
        let mut fixture = Fixture { linker: L::new(workload)?, template, number: 0 };
        drop(fixture.fill(1)?);
        Ok(fixture)
    }

    fn small(workload: &'a Workload) -> Result<Fixture<'a, L>, String> {
        Fixture::new(workload, &L::objects(workload)?.small)
    }

    fn next(&mut self) -> Result<Ready<L>, String> {
        self.number += 1;
        let instance = self.template.instance(self.number);
        let input = self.linker.prepare(&instance)?;
        Ok(Ready { instance, input })
    }

    fn make_batch(&mut self) -> Result<Vec<Ready<L>>, String> {
        (0..BATCH).map(|_| self.next()).collect()
    }

    fn link_checked(&mut self, ready: &Ready<L>) -> Result<L::Live, String> {
        let (address, live) = self.linker.link(&ready.input)?;
        check(address, &ready.instance)?;
        Ok(live)
    }

    fn fill(&mut self, count: usize) -> Result<Vec<L::Live>, String> {
        let mut link_next = || {
            let ready = self.next()?;
            self.link_checked(&ready)
        };
        (0..count).map(|_| link_next()).collect()
    }
}

fn link_small<L: Linker>(workload: &Workload) -> Measures {
    let (fixture, rows) = (Fixture::<L>::small(workload)?, [&rows::LINK_SMALL, &rows::REMOVE_SMALL]);
    let (mut measures, allocated) = links(fixture, workload.sizes.small_links, rows)?;
    measures.push(single(rows::ALLOCATIONS.by(L::NAME), Unit::Count, allocated));
    Ok(measures)
}

fn link_medium<L: Linker>(workload: &Workload) -> Measures {
    let fixture = Fixture::<L>::new(workload, &L::objects(workload)?.medium)?;
    Ok(links(fixture, workload.sizes.medium_links, [&rows::LINK_MEDIUM, &rows::REMOVE_MEDIUM])?.0)
}

/// Links many modules, all live at once, then removes them in random order. Also returns the heap allocations per
/// link.
fn links<L: Linker>(
    mut fixture: Fixture<L>,
    count: usize,
    [link_row, remove_row]: [&Row; 2],
) -> Result<(Vec<Measure>, f64), String> {
    let (mut links, mut live, mut allocated) = (Samples::default(), Vec::with_capacity(count), 0);
    while live.len() < count {
        let batch = fixture.make_batch()?;
        let mut linked = Vec::with_capacity(BATCH);
        let before = allocations();
        links.batch(|links| {
            batch.iter().for_each(|ready| linked.push(links.one(|| fixture.linker.link(&ready.input))));
        });
        allocated += allocations() - before;
        for (ready, linked) in batch.iter().zip(linked) {
            let (address, module) = linked?;
            check(address, &ready.instance)?;
            live.push(module);
        }
    }
    let (linked, mut removals, mut rng) = (live.len(), Samples::default(), Rng::with_seed(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let module = live.swap_remove(rng.usize(..live.len()));
            removals.one(|| drop(module));
        }
    });
    let measures = vec![links.into_measure(link_row.by(L::NAME)), removals.into_measure(remove_row.by(L::NAME))];
    // Rounded down: the vector of samples grows a few times.
    Ok((measures, (allocated as f64 / linked as f64).floor()))
}

fn remove<L: Linker>(workload: &Workload) -> Measures {
    removals::<L>(workload, &L::objects(workload)?.small)
}

/// Measures the same as [`ours::removals`](crate::peers::ours::removals); [`churns`] likewise.
pub fn removals<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    let counts = workload.sizes.removals_beside.iter().filter(|live| **live <= MAX_MAPPED);
    let by_count = counts.map(|live| remove_beside::<L>(workload, template, *live));
    let mut measures = by_count.collect::<Result<Vec<_>, String>>()?;
    measures.extend(against_a_thousand(&measures, L::NAME));
    Ok(measures)
}

fn remove_beside<L: Linker>(workload: &Workload, template: &Template, count: usize) -> Result<Measure, String> {
    let mut fixture = Fixture::<L>::new(workload, template)?;
    let (mut live, mut removals, mut rng) = (fixture.fill(count)?, Samples::default(), Rng::with_seed(3));
    for _ in 0..workload.sizes.removals / BATCH {
        let victims: Vec<L::Live> = (0..BATCH).map(|_| live.swap_remove(rng.usize(..live.len()))).collect();
        removals.batch(|removals| victims.into_iter().for_each(|victim| removals.one(|| drop(victim))));
        live.extend(fixture.fill(BATCH)?);
    }
    Ok(removals.into_measure(rows::REMOVE.at(count, L::NAME)))
}

fn churn<L: Linker>(workload: &Workload) -> Measures {
    churns::<L>(workload, &L::objects(workload)?.small)
}

pub fn churns<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.churns_of.iter().filter(|live| **live <= MAX_MAPPED) {
        let samples = churn_of::<L>(workload, template, *live)?;
        measures.push(single(rows::CHURN_RATE.at(*live, L::NAME), Unit::PerSecond, samples.per_second()));
        measures.push(samples.into_measure(rows::CHURN.at(*live, L::NAME)));
    }
    Ok(measures)
}

fn churn_of<L: Linker>(workload: &Workload, template: &Template, count: usize) -> Result<Samples, String> {
    let mut fixture = Fixture::<L>::new(workload, template)?;
    let mut live = fixture.fill(count)?;
    replace(&mut fixture, &mut live, workload.sizes.churns)
}

/// Links modules with names that were never used before; each replaces another.
fn replace<L: Linker>(fixture: &mut Fixture<L>, live: &mut [L::Live], operations: usize) -> Result<Samples, String> {
    let (mut samples, mut rng) = (Samples::default(), Rng::with_seed(3));
    for _ in 0..operations / BATCH {
        let batch = fixture.make_batch()?;
        samples.batch(|samples| {
            batch.iter().try_for_each(|ready| {
                samples.one(|| {
                    live[rng.usize(..live.len())] = fixture.link_checked(ready)?;
                    Ok::<(), String>(())
                })
            })
        })?;
    }
    Ok(samples)
}

fn memory<L: Linker>(workload: &Workload) -> Measures {
    let counts = workload.sizes.residents.iter().filter(|live| **live <= MAX_MAPPED);
    Ok(counts.map(|live| memory_of::<L>(workload, *live)).collect::<Result<Vec<_>, String>>()?.concat())
}

fn memory_of<L: Linker>(workload: &Workload, count: usize) -> Measures {
    let mut fixture = Fixture::<L>::small(workload)?;
    let before = Resident::measure()?;
    let live = fixture.fill(count)?;
    let full = Resident::measure()?;
    drop(live);
    let left = Resident::measure()?;
    let each = |more: f64| more / count as f64;
    Ok(vec![
        single(rows::RESIDENT.at(count, L::NAME), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::LEFTOVER.at(count, L::NAME), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(count, L::NAME), Unit::Count, each(full.mappings - before.mappings)),
    ])
}

fn growth<L: Linker>(workload: &Workload) -> Measures {
    let (mut fixture, operations) = (Fixture::<L>::small(workload)?, workload.sizes.churns);
    let mut live = fixture.fill(LIVE_WHILE_GROWING)?;
    // As many replacements as jittison needs to reach a steady state.
    replace(&mut fixture, &mut live, operations)?;
    replace(&mut fixture, &mut live, operations)?;
    let before = Resident::measure()?;
    replace(&mut fixture, &mut live, operations)?;
    Ok(vec![single(rows::GROWTH.by(L::NAME), Unit::Bytes, before.grown()? / operations as f64)])
}
