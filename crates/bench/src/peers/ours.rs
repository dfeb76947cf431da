//! jittison: linking, removal and memory. Every linked function is called and its result checked.

use std::rc::Rc;

use jittison::base::ExecutorAddr;
use jittison::session::{JitDylib, ResourceTracker, Visibility};
use jittison::{Function, Jit};

use crate::measure::rows;
use crate::measure::samples::{BATCH, Samples, rate_together, single};
use crate::measure::scenario::{Key, Measure, Scenario, Unit, to_text};
use crate::measure::workload::{ARGUMENT, Workload};
use crate::scenarios::registry::scenario;
use fastrand::Rng;
use jittison_test_support::allocations;
use jittison_test_support::bench::objects::{Instance, Template};
use jittison_test_support::bench::resident::Resident;

pub const NAME: &str = "jittison";
/// The object is added first, and linked when its function is looked up.
const LAZILY: &str = "jittison, lazily";

pub type Run = extern "C" fn(u64) -> u64;
type Measures = Result<Vec<Measure>, String>;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let ours = |group, round: fn(&Workload) -> Measures| scenario(group, NAME, workload, round);
    vec![
        ours("link, small", link_small),
        scenario("link, small", LAZILY, workload, link_small_lazily),
        ours("link, medium", link_medium),
        ours("remove", remove),
        ours("churn", churn),
        ours("threads", threads),
        ours("dylib", dylibs),
        ours("memory, live", memory),
        ours("memory, growth", growth),
    ]
}

/// A session with default options, and the runtime library in a separate dylib.
pub struct Fixture<'a> {
    pub jit: Jit,
    pub dylib: JitDylib,
    library: JitDylib,
    template: &'a Template,
    number: u32,
    is_lazy: bool,
}

impl<'a> Fixture<'a> {
    pub fn new(workload: &Workload, template: &'a Template) -> Result<Fixture<'a>, String> {
        Fixture::of(Jit::new().map_err(to_text)?, workload, template)
    }

    /// Uses the given session. Links and removes a first module, which pays for the session's one-time work.
    pub fn of(jit: Jit, workload: &Workload, template: &'a Template) -> Result<Fixture<'a>, String> {
        let mut fixture = Fixture::unused(jit, workload, template)?;
        let first = fixture.next();
        remove_now(fixture.link_checked(&first)?)?;
        Ok(fixture)
    }

    /// Uses a session in which only the library is linked.
    pub fn unused(jit: Jit, workload: &Workload, template: &'a Template) -> Result<Fixture<'a>, String> {
        let library = jit.create_dylib("runtime").map_err(to_text)?;
        let tracker = library.default_tracker().map_err(to_text)?;
        jit.add_object(&tracker, "runtime.o", workload.objects.runtime.as_slice()).map_err(to_text)?;
        let dylib = jit.main_dylib().clone();
        let fixture = Fixture { jit, dylib, library, template, number: 0, is_lazy: false };
        fixture.link_to_library(&fixture.dylib);
        fixture.library.lookup_address("rt_hash").map_err(to_text)?;
        Ok(fixture)
    }

    fn link_to_library(&self, dylib: &JitDylib) {
        let library = vec![(self.library.clone(), Visibility::ExportedOnly)];
        dylib.set_link_order(&[library, dylib.link_order()].concat());
    }

    fn create_dylib(&self, name: &str) -> Result<JitDylib, String> {
        let dylib = self.jit.create_dylib(name).map_err(to_text)?;
        self.link_to_library(&dylib);
        Ok(dylib)
    }

    pub fn next(&mut self) -> Instance {
        self.number += 1;
        self.template.instance(self.number)
    }

    pub fn make_batch(&mut self) -> Vec<Instance> {
        (0..BATCH).map(|_| self.next()).collect()
    }

    pub fn link(&self, instance: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
        if self.is_lazy {
            link_lazily(&self.jit, &self.dylib, instance)
        } else {
            link(&self.jit, &self.dylib, instance)
        }
    }

    fn link_checked(&self, instance: &Instance) -> Result<ResourceTracker, String> {
        link_checked(&self.jit, &self.dylib, instance)
    }

    pub fn fill(&mut self, count: usize) -> Result<Vec<ResourceTracker>, String> {
        (0..count)
            .map(|_| {
                let instance = self.next();
                self.link_checked(&instance)
            })
            .collect()
    }
}

fn link(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
    let tracker = dylib.create_tracker().map_err(to_text)?;
    jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
    Ok((dylib.lookup_address(&instance.entry).map_err(to_text)?, tracker))
}

fn link_lazily(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
    let tracker = dylib.create_tracker().map_err(to_text)?;
    jit.add_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
    Ok((dylib.lookup_address(&instance.entry).map_err(to_text)?, tracker))
}

fn link_checked(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<ResourceTracker, String> {
    let (address, tracker) = link(jit, dylib, instance)?;
    check(address, instance)?;
    Ok(tracker)
}

/// Calls a linked function and checks its result.
pub fn check(address: ExecutorAddr, instance: &Instance) -> Result<(), String> {
    check_with(address, instance, ARGUMENT)
}

pub fn check_with(address: ExecutorAddr, instance: &Instance, argument: u64) -> Result<(), String> {
    // SAFETY: the address of a function with this signature, under a live tracker.
    let run: Run = unsafe { std::mem::transmute(address.value() as usize) };
    check_result(run(argument), instance)
}

pub fn check_function(function: &Function<Run>, instance: &Instance) -> Result<(), String> {
    check_result(function.call(ARGUMENT), instance)
}

fn check_result(result: u64, instance: &Instance) -> Result<(), String> {
    let is_right = result == instance.expected;
    is_right.then_some(()).ok_or_else(|| format!("{} returns {result:#x}", instance.entry))
}

/// Removes a module. A removal that has to wait is an error: it would not be measured.
pub fn remove_now(tracker: ResourceTracker) -> Result<(), String> {
    let removal = tracker.remove().map_err(to_text)?;
    removal.is_complete().then_some(()).ok_or_else(|| "a removal had to wait".to_string())
}

fn link_small(workload: &Workload) -> Measures {
    link_small_by(workload, NAME)
}

fn link_small_lazily(workload: &Workload) -> Measures {
    link_small_by(workload, LAZILY)
}

fn link_small_by(workload: &Workload, competitor: &str) -> Measures {
    let mut fixture = Fixture::new(workload, &workload.objects.small)?;
    fixture.is_lazy = competitor == LAZILY;
    let (mut measures, keys) = (Vec::new(), [rows::LINK_SMALL.by(competitor), rows::REMOVE_SMALL.by(competitor)]);
    let allocated = links(&mut fixture, workload.sizes.small_links, keys, &mut measures)?;
    measures.push(single(rows::ALLOCATIONS.by(competitor), Unit::Count, allocated));
    Ok(measures)
}

fn link_medium(workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    let keys = [rows::LINK_MEDIUM.by(NAME), rows::REMOVE_MEDIUM.by(NAME)];
    let mut fixture = Fixture::new(workload, &workload.objects.medium)?;
    links(&mut fixture, workload.sizes.medium_links, keys, &mut measures)?;
    let (live, replaced) = workload.sizes.medium_replaced();
    let mut live = fixture.fill(live)?;
    let measured = remove_and_link(&mut fixture, &mut live, replaced)?;
    let again = measured.into_iter().filter(|measure| measure.key.what == rows::LINK_BESIDE.what);
    measures.extend(again.map(|measure| Measure { key: rows::MEDIUM_AGAIN.by(NAME), ..measure }));
    Ok(measures)
}

/// Links many modules, all live at once, then removes them in random order. Returns the heap allocations per link.
pub fn links(
    fixture: &mut Fixture,
    count: usize,
    [link_key, remove_key]: [Key; 2],
    measures: &mut Vec<Measure>,
) -> Result<f64, String> {
    let (mut links, mut live, mut allocated) = (Samples::default(), Vec::with_capacity(count), 0);
    while live.len() < count {
        allocated += link_batch(fixture, &mut links, &mut live)?;
    }
    let (linked, mut removals, mut rng) = (live.len(), Samples::default(), Rng::with_seed(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let tracker = live.swap_remove(rng.usize(..live.len()));
            removals.one(|| remove_now(tracker))?;
        }
        Ok::<(), String>(())
    })?;
    measures.extend([links.into_measure(link_key), removals.into_measure(remove_key)]);
    // Rounded down: the vector of samples grows a few times.
    Ok((allocated as f64 / linked as f64).floor())
}

/// Times the links of a batch, then calls what was linked. Returns the heap allocations of all links.
fn link_batch(fixture: &mut Fixture, links: &mut Samples, live: &mut Vec<ResourceTracker>) -> Result<u64, String> {
    let (batch, mut linked) = (fixture.make_batch(), Vec::with_capacity(BATCH));
    let before = allocations();
    links.batch(|links| batch.iter().for_each(|instance| linked.push(links.one(|| fixture.link(instance)))));
    let allocated = allocations() - before;
    for (instance, linked) in batch.iter().zip(linked) {
        let (address, tracker) = linked?;
        check(address, instance)?;
        live.push(tracker);
    }
    Ok(allocated)
}

fn remove(workload: &Workload) -> Measures {
    removals(workload, &workload.objects.small)
}

/// The cost of a removal, with increasing numbers of live instances of the same object.
pub fn removals(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.removals_beside {
        measures.extend(remove_beside(workload, template, *live)?);
    }
    measures.extend(against_a_thousand(&measures, NAME));
    Ok(measures)
}

/// The cost with more live modules, relative to 1,000.
pub fn against_a_thousand(removals: &[Measure], competitor: &str) -> Vec<Measure> {
    let removals = || removals.iter().filter(|measure| measure.key.what == rows::REMOVE.what);
    let Some(base) = removals().find(|measure| measure.key.at == Some(1_000)) else { return Vec::new() };
    let more = removals().filter(|measure| measure.key.at > Some(1_000));
    let ratio = |measure: &Measure| {
        let at = measure.key.at.unwrap_or(0) as usize;
        single(rows::REMOVE_GROWTH.at(at, competitor), Unit::Ratio, measure.value / base.value)
    };
    more.map(ratio).collect()
}

/// The costs of a removal and of a link, with so many live modules.
fn remove_beside(workload: &Workload, template: &Template, count: usize) -> Measures {
    let mut fixture = Fixture::new(workload, template)?;
    let mut live = fixture.fill(count)?;
    remove_and_link(&mut fixture, &mut live, workload.sizes.removals)
}

/// Repeatedly removes a batch of random modules and links as many new ones.
pub fn remove_and_link(fixture: &mut Fixture, live: &mut Vec<ResourceTracker>, operations: usize) -> Measures {
    let (count, mut rng) = (live.len(), Rng::with_seed(3));
    let (mut removals, mut links) = (Samples::default(), Samples::default());
    for _ in 0..operations / BATCH {
        let victims: Vec<ResourceTracker> = (0..BATCH).map(|_| live.swap_remove(rng.usize(..live.len()))).collect();
        removals.batch(|removals| victims.into_iter().try_for_each(|victim| removals.one(|| remove_now(victim))))?;
        link_batch(fixture, &mut links, live)?;
    }
    Ok(vec![removals.into_measure(rows::REMOVE.at(count, NAME)), links.into_measure(rows::LINK_BESIDE.at(count, NAME))])
}

fn churn(workload: &Workload) -> Measures {
    churns(workload, &workload.objects.small, workload.sizes.churns_of)
}

/// The cost of a replacement, among so many live instances of the same object.
pub fn churns(workload: &Workload, template: &Template, counts: &[usize]) -> Measures {
    let mut measures = Vec::new();
    for live in counts {
        let mut fixture = Fixture::new(workload, template)?;
        let mut modules = fixture.fill(*live)?;
        measures.extend(churn_of(&mut fixture, &mut modules, workload.sizes.churns)?);
    }
    Ok(measures)
}

pub fn churn_of(fixture: &mut Fixture, live: &mut [ResourceTracker], operations: usize) -> Measures {
    let samples = replace(fixture, live, operations)?;
    let rate = single(rows::CHURN_RATE.at(live.len(), NAME), Unit::PerSecond, samples.per_second());
    Ok(vec![rate, samples.into_measure(rows::CHURN.at(live.len(), NAME))])
}

/// Links modules with names that were never used before; each replaces another.
fn replace(fixture: &mut Fixture, live: &mut [ResourceTracker], operations: usize) -> Result<Samples, String> {
    let (mut samples, mut rng) = (Samples::default(), Rng::with_seed(3));
    for _ in 0..operations / BATCH {
        let batch = fixture.make_batch();
        samples.batch(|samples| {
            batch.iter().try_for_each(|instance| {
                samples.one(|| {
                    let index = rng.usize(..live.len());
                    let tracker = fixture.link_checked(instance)?;
                    remove_now(std::mem::replace(&mut live[index], tracker))
                })
            })
        })?;
    }
    Ok(samples)
}

fn threads(workload: &Workload) -> Measures {
    let mut fixture = Fixture::new(workload, &workload.objects.small)?;
    let mut workers = [Worker::new(&mut fixture, "first")?, Worker::new(&mut fixture, "second")?];
    let operations = workload.sizes.thread_churns;
    let one = rate_together(&mut workers[..1], operations, |worker| worker.run(operations))?;
    let two = rate_together(&mut workers, operations, |worker| worker.run(operations))?;
    Ok(vec![
        single(rows::ONE_THREAD.by(NAME), Unit::PerSecond, one),
        single(rows::TWO_THREADS.by(NAME), Unit::PerSecond, two),
        single(rows::THREADS.by(NAME), Unit::Ratio, two / one),
    ])
}

/// A thread's work: it links its prepared instances in turn and keeps a hundred of them live.
struct Worker {
    jit: Jit,
    dylib: JitDylib,
    ring: Vec<Instance>,
    live: Vec<Option<ResourceTracker>>,
    at: usize,
}

const RING: usize = 256;
const LIVE_IN_RING: usize = 100;

impl Worker {
    fn new(fixture: &mut Fixture, name: &str) -> Result<Worker, String> {
        let (jit, dylib) = (fixture.jit.clone(), fixture.create_dylib(name)?);
        let ring = (0..RING).map(|_| fixture.next()).collect();
        let mut worker = Worker { jit, dylib, ring, live: (0..RING).map(|_| None).collect(), at: 0 };
        worker.run(RING)?;
        Ok(worker)
    }

    fn run(&mut self, operations: usize) -> Result<(), String> {
        for at in self.at..self.at + operations {
            self.live[at % RING] = Some(link_checked(&self.jit, &self.dylib, &self.ring[at % RING])?);
            let oldest = self.live[(at + RING - LIVE_IN_RING) % RING].take();
            oldest.map_or(Ok(()), remove_now)?;
        }
        self.at += operations;
        Ok(())
    }
}

fn dylibs(workload: &Workload) -> Measures {
    let mut fixture = Fixture::new(workload, &workload.objects.small)?;
    let mut samples = Samples::default();
    for round in 0..workload.sizes.swaps / BATCH {
        let batch = fixture.make_batch();
        samples.batch(|samples| {
            batch.iter().enumerate().try_for_each(|(index, instance)| {
                samples.one(|| dylib_of_a_module(&fixture, &format!("dylib {}", round * BATCH + index), instance))
            })
        })?;
    }
    Ok(vec![samples.into_measure(rows::DYLIB.by(NAME))])
}

fn dylib_of_a_module(fixture: &Fixture, name: &str, instance: &Instance) -> Result<(), String> {
    let dylib = fixture.create_dylib(name)?;
    let tracker = dylib.default_tracker().map_err(to_text)?;
    fixture.jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
    check(dylib.lookup_address(&instance.entry).map_err(to_text)?, instance)?;
    let removals = fixture.jit.session().remove_dylib(&dylib).map_err(to_text)?;
    removals
        .iter()
        .all(|removal| removal.is_complete())
        .then_some(())
        .ok_or_else(|| "a removal had to wait".to_string())
}

fn memory(workload: &Workload) -> Measures {
    let by_count = workload.sizes.residents.iter().map(|count| memory_of(workload, *count));
    Ok(by_count.collect::<Result<Vec<_>, String>>()?.concat())
}

fn memory_of(workload: &Workload, count: usize) -> Measures {
    let mut fixture = Fixture::new(workload, &workload.objects.small)?;
    let (before, content_before) = (Resident::measure()?, fixture.jit.memory_statistics().live_bytes);
    let live = fixture.fill(count)?;
    let (full, content) = (Resident::measure()?, fixture.jit.memory_statistics().live_bytes - content_before);
    live.into_iter().try_for_each(remove_now)?;
    fixture.jit.release_free();
    let left = Resident::measure()?;
    let each = |more: f64| more / count as f64;
    Ok(vec![
        single(rows::RESIDENT.at(count, NAME), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::CONTENT.at(count, NAME), Unit::Bytes, each(content as f64)),
        single(rows::LEFTOVER.at(count, NAME), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(count, NAME), Unit::Count, each(full.mappings - before.mappings)),
    ])
}

fn growth(workload: &Workload) -> Measures {
    let mut fixture = Fixture::new(workload, &workload.objects.small)?;
    let (mut live, operations) = (fixture.fill(LIVE_WHILE_GROWING)?, workload.sizes.churns);
    // The first replacement leaves free memory that the next ones use; after two the state is steady.
    replace(&mut fixture, &mut live, operations)?;
    replace(&mut fixture, &mut live, operations)?;
    let before = Resident::measure()?;
    replace(&mut fixture, &mut live, operations)?;
    let more = Resident::measure()?.bytes - before.bytes;
    Ok(vec![single(rows::GROWTH.by(NAME), Unit::Bytes, more / operations as f64)])
}

/// Modules that are live while others are replaced.
pub const LIVE_WHILE_GROWING: usize = 1_000;
