//! [`Linker`]: a competitor that is a library in this process, and what is measured of each of them, the same as of jittison.
//!
//! What a linker is given is made ahead of each batch, outside the clock, in the form that it takes. The clock runs from there
//! to the entry's address, and for a removal over the drop of what is live.

use std::rc::Rc;

use jittison::base::ExecutorAddr;

use crate::allocations::allocations;
use crate::dice::Dice;
use crate::objects::{Instance, Objects, Template};
use crate::ours::{LIVE_WHILE_GROWING, against_a_thousand, check};
use crate::resident::Resident;
use crate::rows::{self, Row};
use crate::samples::{BATCH, Samples, single};
use crate::scenario::{Measure, Scenario, Unit};
use crate::scenarios::scenario;
use crate::workload::{MOST_MAPPED, Workload};

type Measures = Result<Vec<Measure>, String>;

pub trait Linker: Sized {
    const WHO: &'static str;

    /// An instance as this one takes it.
    type Input;
    /// A linked module: removed when it is dropped.
    type Live;

    fn new(workload: &Workload) -> Result<Self, String>;

    /// From what it gets its instances.
    fn objects(workload: &Workload) -> Result<&Objects, String>;

    fn prepare(&self, instance: &Instance) -> Result<Self::Input, String>;

    /// Links a module and tells the address of its entry.
    fn link(&mut self, input: &Self::Input) -> Result<(ExecutorAddr, Self::Live), String>;
}

pub fn scenarios<L: Linker + 'static>(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, round: fn(&Workload) -> Measures| scenario(group, L::WHO, workload, round);
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
struct Scene<'a, L> {
    linker: L,
    template: &'a Template,
    number: u32,
}

/// An instance that waits to be linked.
struct Ready<L: Linker> {
    instance: Instance,
    input: L::Input,
}

impl<'a, L: Linker> Scene<'a, L> {
    /// Links a first module, as all do, which pays for what is done once.
    fn new(workload: &Workload, template: &'a Template) -> Result<Scene<'a, L>, String> {
        let mut scene = Scene { linker: L::new(workload)?, template, number: 0 };
        drop(scene.fill(1)?);
        Ok(scene)
    }

    fn small(workload: &'a Workload) -> Result<Scene<'a, L>, String> {
        Scene::new(workload, &L::objects(workload)?.small)
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
    let (scene, rows) = (Scene::<L>::small(workload)?, [&rows::LINK_SMALL, &rows::REMOVE_SMALL]);
    let (mut measures, allocated) = links(scene, workload.sizes.small_links, rows)?;
    measures.push(single(rows::ALLOCATIONS.by(L::WHO), Unit::Count, allocated));
    Ok(measures)
}

fn link_medium<L: Linker>(workload: &Workload) -> Measures {
    let scene = Scene::<L>::new(workload, &L::objects(workload)?.medium)?;
    Ok(links(scene, workload.sizes.medium_links, [&rows::LINK_MEDIUM, &rows::REMOVE_MEDIUM])?.0)
}

/// Links many, all live at once, then removes them in random order. Tells the heap allocations of a link, too.
fn links<L: Linker>(
    mut scene: Scene<L>,
    count: usize,
    [link_row, remove_row]: [&Row; 2],
) -> Result<(Vec<Measure>, f64), String> {
    let (mut links, mut live, mut allocated) = (Samples::default(), Vec::with_capacity(count), 0);
    while live.len() < count {
        let batch = scene.make_batch()?;
        let mut linked = Vec::with_capacity(BATCH);
        let before = allocations();
        links.batch(|links| {
            batch.iter().for_each(|ready| linked.push(links.one(|| scene.linker.link(&ready.input))));
        });
        allocated += allocations() - before;
        for (ready, linked) in batch.iter().zip(linked) {
            let (address, module) = linked?;
            check(address, &ready.instance)?;
            live.push(module);
        }
    }
    let (linked, mut removals, mut dice) = (live.len(), Samples::default(), Dice(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let module = live.swap_remove(dice.roll(live.len()));
            removals.one(|| drop(module));
        }
    });
    let measures = vec![links.into_measure(link_row.by(L::WHO)), removals.into_measure(remove_row.by(L::WHO))];
    // The samples' vector grows a few times in all.
    Ok((measures, (allocated as f64 / linked as f64).floor()))
}

fn remove<L: Linker>(workload: &Workload) -> Measures {
    removals::<L>(workload, &L::objects(workload)?.small)
}

/// As of jittison, and so are [`churns`].
pub fn removals<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    let counts = workload.sizes.removals_beside.iter().filter(|live| **live <= MOST_MAPPED);
    let by_count = counts.map(|live| remove_beside::<L>(workload, template, *live));
    let mut measures = by_count.collect::<Result<Vec<_>, String>>()?;
    measures.extend(against_a_thousand(&measures, L::WHO));
    Ok(measures)
}

fn remove_beside<L: Linker>(workload: &Workload, template: &Template, count: usize) -> Result<Measure, String> {
    let mut scene = Scene::<L>::new(workload, template)?;
    let (mut live, mut removals, mut dice) = (scene.fill(count)?, Samples::default(), Dice(3));
    for _ in 0..workload.sizes.removals / BATCH {
        let victims: Vec<L::Live> = (0..BATCH).map(|_| live.swap_remove(dice.roll(live.len()))).collect();
        removals.batch(|removals| victims.into_iter().for_each(|victim| removals.one(|| drop(victim))));
        live.extend(scene.fill(BATCH)?);
    }
    Ok(removals.into_measure(rows::REMOVE.at(count, L::WHO)))
}

fn churn<L: Linker>(workload: &Workload) -> Measures {
    churns::<L>(workload, &L::objects(workload)?.small)
}

pub fn churns<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.churns_of.iter().filter(|live| **live <= MOST_MAPPED) {
        let samples = churn_of::<L>(workload, template, *live)?;
        measures.push(single(rows::CHURN_RATE.at(*live, L::WHO), Unit::PerSecond, samples.per_second()));
        measures.push(samples.into_measure(rows::CHURN.at(*live, L::WHO)));
    }
    Ok(measures)
}

fn churn_of<L: Linker>(workload: &Workload, template: &Template, count: usize) -> Result<Samples, String> {
    let mut scene = Scene::<L>::new(workload, template)?;
    let mut live = scene.fill(count)?;
    replace(&mut scene, &mut live, workload.sizes.churns)
}

/// Links so many, all with names that were never used before, each in place of another.
fn replace<L: Linker>(scene: &mut Scene<L>, live: &mut [L::Live], operations: usize) -> Result<Samples, String> {
    let (mut samples, mut dice) = (Samples::default(), Dice(3));
    for _ in 0..operations / BATCH {
        let batch = scene.make_batch()?;
        samples.batch(|samples| {
            batch.iter().try_for_each(|ready| {
                samples.one(|| {
                    live[dice.roll(live.len())] = scene.link_checked(ready)?;
                    Ok::<(), String>(())
                })
            })
        })?;
    }
    Ok(samples)
}

fn memory<L: Linker>(workload: &Workload) -> Measures {
    let counts = workload.sizes.residents.iter().filter(|live| **live <= MOST_MAPPED);
    Ok(counts.map(|live| memory_of::<L>(workload, *live)).collect::<Result<Vec<_>, String>>()?.concat())
}

fn memory_of<L: Linker>(workload: &Workload, count: usize) -> Measures {
    let mut scene = Scene::<L>::small(workload)?;
    let before = Resident::measure()?;
    let live = scene.fill(count)?;
    let full = Resident::measure()?;
    drop(live);
    let left = Resident::measure()?;
    let each = |more: f64| more / count as f64;
    Ok(vec![
        single(rows::RESIDENT.at(count, L::WHO), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::LEFT.at(count, L::WHO), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(count, L::WHO), Unit::Count, each(full.mappings - before.mappings)),
    ])
}

fn growth<L: Linker>(workload: &Workload) -> Measures {
    let (mut scene, operations) = (Scene::<L>::small(workload)?, workload.sizes.churns);
    let mut live = scene.fill(LIVE_WHILE_GROWING)?;
    // As long as jittison has to find its balance.
    replace(&mut scene, &mut live, operations)?;
    replace(&mut scene, &mut live, operations)?;
    let before = Resident::measure()?;
    replace(&mut scene, &mut live, operations)?;
    Ok(vec![single(rows::GROWTH.by(L::WHO), Unit::Bytes, before.grown()? / operations as f64)])
}
