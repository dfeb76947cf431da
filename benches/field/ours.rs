//! jittison: linking, removing, and memory. Every linked function is called and its result compared.

use std::rc::Rc;

use jittison::base::ExecutorAddr;
use jittison::session::{JitDylib, ResourceTracker, Visibility};
use jittison::{Function, Jit};

use crate::allocations::allocations;
use crate::dice::Dice;
use crate::objects::{Instance, Template};
use crate::resident::Resident;
use crate::rows;
use crate::samples::{BATCH, Samples, rate_together, single};
use crate::scenario::{Key, Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::{ARGUMENT, Workload};

pub const WHO: &str = "jittison";
/// Of an object that is added, and linked when its function is looked up.
const LAZILY: &str = "jittison, lazily";

pub type Run = extern "C" fn(u64) -> u64;
type Measures = Result<Vec<Measure>, String>;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let ours = |group, round: fn(&Workload) -> Measures| scenario(group, WHO, workload, round);
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

/// A session as anybody would make it, with the runtime library in a dylib of its own.
pub struct Scene<'a> {
    pub jit: Jit,
    pub dylib: JitDylib,
    library: JitDylib,
    template: &'a Template,
    number: u32,
    is_lazy: bool,
}

impl<'a> Scene<'a> {
    pub fn new(workload: &Workload, template: &'a Template) -> Result<Scene<'a>, String> {
        Scene::of(Jit::new().map_err(words)?, workload, template)
    }

    /// In a session that somebody has made. Links a first module, which pays for what is done once a session.
    pub fn of(jit: Jit, workload: &Workload, template: &'a Template) -> Result<Scene<'a>, String> {
        let mut scene = Scene::unused(jit, workload, template)?;
        let first = scene.next();
        remove_now(scene.link_checked(&first)?)?;
        Ok(scene)
    }

    /// Of a session in which only the library has been linked.
    pub fn unused(jit: Jit, workload: &Workload, template: &'a Template) -> Result<Scene<'a>, String> {
        let library = jit.create_dylib("runtime").map_err(words)?;
        let tracker = library.default_tracker().map_err(words)?;
        jit.add_object(&tracker, "runtime.o", workload.objects.runtime.as_slice()).map_err(words)?;
        let dylib = jit.main_dylib().clone();
        let scene = Scene { jit, dylib, library, template, number: 0, is_lazy: false };
        scene.link_to_library(&scene.dylib);
        scene.library.lookup_address("rt_hash").map_err(words)?;
        Ok(scene)
    }

    fn link_to_library(&self, dylib: &JitDylib) {
        let library = vec![(self.library.clone(), Visibility::ExportedOnly)];
        dylib.set_link_order(&[library, dylib.link_order()].concat());
    }

    fn create_dylib(&self, name: &str) -> Result<JitDylib, String> {
        let dylib = self.jit.create_dylib(name).map_err(words)?;
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
    let tracker = dylib.create_tracker().map_err(words)?;
    jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(words)?;
    Ok((dylib.lookup_address(&instance.entry).map_err(words)?, tracker))
}

fn link_lazily(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
    let tracker = dylib.create_tracker().map_err(words)?;
    jit.add_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(words)?;
    Ok((dylib.lookup_address(&instance.entry).map_err(words)?, tracker))
}

fn link_checked(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<ResourceTracker, String> {
    let (address, tracker) = link(jit, dylib, instance)?;
    check(address, instance)?;
    Ok(tracker)
}

/// Calls a function that was linked.
pub fn check(address: ExecutorAddr, instance: &Instance) -> Result<(), String> {
    check_with(address, instance, ARGUMENT)
}

pub fn check_with(address: ExecutorAddr, instance: &Instance, argument: u64) -> Result<(), String> {
    // SAFETY: the address of a function of this signature, under a tracker that is live.
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

/// A removal that had to wait for somebody would not be one that was measured.
pub fn remove_now(tracker: ResourceTracker) -> Result<(), String> {
    let removal = tracker.remove().map_err(words)?;
    removal.is_complete().then_some(()).ok_or_else(|| "a removal waits".to_string())
}

fn link_small(workload: &Workload) -> Measures {
    link_small_by(workload, WHO)
}

fn link_small_lazily(workload: &Workload) -> Measures {
    link_small_by(workload, LAZILY)
}

fn link_small_by(workload: &Workload, who: &str) -> Measures {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    scene.is_lazy = who == LAZILY;
    let (mut measures, keys) = (Vec::new(), [rows::LINK_SMALL.by(who), rows::REMOVE_SMALL.by(who)]);
    let allocated = links(&mut scene, workload.sizes.small_links, keys, &mut measures)?;
    measures.push(single(rows::ALLOCATIONS.by(who), Unit::Count, allocated));
    Ok(measures)
}

fn link_medium(workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    let keys = [rows::LINK_MEDIUM.by(WHO), rows::REMOVE_MEDIUM.by(WHO)];
    let mut scene = Scene::new(workload, &workload.objects.medium)?;
    links(&mut scene, workload.sizes.medium_links, keys, &mut measures)?;
    let (live, replaced) = workload.sizes.medium_replaced();
    let mut live = scene.fill(live)?;
    let measured = remove_and_link(&mut scene, &mut live, replaced)?;
    let again = measured.into_iter().filter(|measure| measure.key.what == rows::LINK_BESIDE.what);
    measures.extend(again.map(|measure| Measure { key: rows::MEDIUM_AGAIN.by(WHO), ..measure }));
    Ok(measures)
}

/// Links many, all live at once, then removes them in random order. Tells the heap allocations of a link.
pub fn links(
    scene: &mut Scene,
    count: usize,
    [link_key, remove_key]: [Key; 2],
    measures: &mut Vec<Measure>,
) -> Result<f64, String> {
    let (mut links, mut live, mut allocated) = (Samples::default(), Vec::with_capacity(count), 0);
    while live.len() < count {
        allocated += link_batch(scene, &mut links, &mut live)?;
    }
    let (linked, mut removals, mut dice) = (live.len(), Samples::default(), Dice(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let tracker = live.swap_remove(dice.roll(live.len()));
            removals.one(|| remove_now(tracker))?;
        }
        Ok::<(), String>(())
    })?;
    measures.extend([links.into_measure(link_key), removals.into_measure(remove_key)]);
    // The samples' vector grows a few times in all.
    Ok((allocated as f64 / linked as f64).floor())
}

/// Times the links of a batch, then calls what was linked. Tells the heap allocations of all.
fn link_batch(scene: &mut Scene, links: &mut Samples, live: &mut Vec<ResourceTracker>) -> Result<u64, String> {
    let (batch, mut linked) = (scene.make_batch(), Vec::with_capacity(BATCH));
    let before = allocations();
    links.batch(|links| batch.iter().for_each(|instance| linked.push(links.one(|| scene.link(instance)))));
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

/// What a removal costs, beside more and more live instances of the same object.
pub fn removals(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.removals_beside {
        measures.extend(remove_beside(workload, template, *live)?);
    }
    measures.extend(against_a_thousand(&measures, WHO));
    Ok(measures)
}

/// What it costs beside more live modules, against 1,000.
pub fn against_a_thousand(removals: &[Measure], who: &str) -> Vec<Measure> {
    let removals = || removals.iter().filter(|measure| measure.key.what == rows::REMOVE.what);
    let Some(base) = removals().find(|measure| measure.key.at == Some(1_000)) else { return Vec::new() };
    let more = removals().filter(|measure| measure.key.at > Some(1_000));
    let ratio = |measure: &Measure| {
        let at = measure.key.at.unwrap_or(0) as usize;
        single(rows::REMOVE_GROWTH.at(at, who), Unit::Ratio, measure.value / base.value)
    };
    more.map(ratio).collect()
}

/// What a removal costs and what a link costs, with so many live.
fn remove_beside(workload: &Workload, template: &Template, count: usize) -> Measures {
    let mut scene = Scene::new(workload, template)?;
    let mut live = scene.fill(count)?;
    remove_and_link(&mut scene, &mut live, workload.sizes.removals)
}

/// Removes some at random and links as many in their place, again and again.
pub fn remove_and_link(scene: &mut Scene, live: &mut Vec<ResourceTracker>, operations: usize) -> Measures {
    let (count, mut dice) = (live.len(), Dice(3));
    let (mut removals, mut links) = (Samples::default(), Samples::default());
    for _ in 0..operations / BATCH {
        let victims: Vec<ResourceTracker> = (0..BATCH).map(|_| live.swap_remove(dice.roll(live.len()))).collect();
        removals.batch(|removals| victims.into_iter().try_for_each(|victim| removals.one(|| remove_now(victim))))?;
        link_batch(scene, &mut links, live)?;
    }
    Ok(vec![removals.into_measure(rows::REMOVE.at(count, WHO)), links.into_measure(rows::LINK_BESIDE.at(count, WHO))])
}

fn churn(workload: &Workload) -> Measures {
    churns(workload, &workload.objects.small, workload.sizes.churns_of)
}

/// What a replacement costs, among so many live instances of the same object.
pub fn churns(workload: &Workload, template: &Template, counts: &[usize]) -> Measures {
    let mut measures = Vec::new();
    for live in counts {
        let mut scene = Scene::new(workload, template)?;
        let mut modules = scene.fill(*live)?;
        measures.extend(churn_of(&mut scene, &mut modules, workload.sizes.churns)?);
    }
    Ok(measures)
}

pub fn churn_of(scene: &mut Scene, live: &mut [ResourceTracker], operations: usize) -> Measures {
    let samples = replace(scene, live, operations)?;
    let rate = single(rows::CHURN_RATE.at(live.len(), WHO), Unit::PerSecond, samples.per_second());
    Ok(vec![rate, samples.into_measure(rows::CHURN.at(live.len(), WHO))])
}

/// Links so many, all with names that were never used before, each in place of another.
fn replace(scene: &mut Scene, live: &mut [ResourceTracker], operations: usize) -> Result<Samples, String> {
    let (mut samples, mut dice) = (Samples::default(), Dice(3));
    for _ in 0..operations / BATCH {
        let batch = scene.make_batch();
        samples.batch(|samples| {
            batch.iter().try_for_each(|instance| {
                samples.one(|| {
                    let place = dice.roll(live.len());
                    let tracker = scene.link_checked(instance)?;
                    remove_now(std::mem::replace(&mut live[place], tracker))
                })
            })
        })?;
    }
    Ok(samples)
}

fn threads(workload: &Workload) -> Measures {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let mut workers = [Worker::new(&mut scene, "first")?, Worker::new(&mut scene, "second")?];
    let operations = workload.sizes.thread_churns;
    let one = rate_together(&mut workers[..1], operations, |worker| worker.run(operations))?;
    let two = rate_together(&mut workers, operations, |worker| worker.run(operations))?;
    Ok(vec![
        single(rows::ONE_THREAD.by(WHO), Unit::PerSecond, one),
        single(rows::TWO_THREADS.by(WHO), Unit::PerSecond, two),
        single(rows::THREADS.by(WHO), Unit::Ratio, two / one),
    ])
}

/// A thread's work: its instances, made ahead, are linked by turns, a hundred of them live.
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
    fn new(scene: &mut Scene, name: &str) -> Result<Worker, String> {
        let (jit, dylib) = (scene.jit.clone(), scene.create_dylib(name)?);
        let ring = (0..RING).map(|_| scene.next()).collect();
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
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let mut samples = Samples::default();
    for round in 0..workload.sizes.swaps / BATCH {
        let batch = scene.make_batch();
        samples.batch(|samples| {
            batch.iter().enumerate().try_for_each(|(index, instance)| {
                samples.one(|| dylib_of_a_module(&scene, &format!("dylib {}", round * BATCH + index), instance))
            })
        })?;
    }
    Ok(vec![samples.into_measure(rows::DYLIB.by(WHO))])
}

fn dylib_of_a_module(scene: &Scene, name: &str, instance: &Instance) -> Result<(), String> {
    let dylib = scene.create_dylib(name)?;
    let tracker = dylib.default_tracker().map_err(words)?;
    scene.jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(words)?;
    check(dylib.lookup_address(&instance.entry).map_err(words)?, instance)?;
    let removals = scene.jit.session().remove_dylib(&dylib).map_err(words)?;
    removals.iter().all(|removal| removal.is_complete()).then_some(()).ok_or_else(|| "a removal waits".to_string())
}

fn memory(workload: &Workload) -> Measures {
    let by_count = workload.sizes.residents.iter().map(|count| memory_of(workload, *count));
    Ok(by_count.collect::<Result<Vec<_>, String>>()?.concat())
}

fn memory_of(workload: &Workload, count: usize) -> Measures {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let (before, content_before) = (Resident::measure()?, scene.jit.memory_statistics().live_bytes);
    let live = scene.fill(count)?;
    let (full, content) = (Resident::measure()?, scene.jit.memory_statistics().live_bytes - content_before);
    live.into_iter().try_for_each(remove_now)?;
    scene.jit.release_free();
    let left = Resident::measure()?;
    let each = |more: f64| more / count as f64;
    Ok(vec![
        single(rows::RESIDENT.at(count, WHO), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::CONTENT.at(count, WHO), Unit::Bytes, each(content as f64)),
        single(rows::LEFT.at(count, WHO), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(count, WHO), Unit::Count, each(full.mappings - before.mappings)),
    ])
}

fn growth(workload: &Workload) -> Measures {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let (mut live, operations) = (scene.fill(LIVE_WHILE_GROWING)?, workload.sizes.churns);
    // What is left free by the first is used by the rest; it takes two to find its balance.
    replace(&mut scene, &mut live, operations)?;
    replace(&mut scene, &mut live, operations)?;
    let before = Resident::measure()?;
    replace(&mut scene, &mut live, operations)?;
    let more = Resident::measure()?.bytes - before.bytes;
    Ok(vec![single(rows::GROWTH.by(WHO), Unit::Bytes, more / operations as f64)])
}

/// Modules that are live while others come and go.
pub const LIVE_WHILE_GROWING: usize = 1_000;
