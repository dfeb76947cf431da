//! jittison: threads that link at the same time, and dylibs that come and go.

use std::rc::Rc;

use jittison::Jit;
use jittison::session::{JitDylib, ResourceTracker};
use jittison_test_support::bench::objects::Instance;

use super::fixture::Fixture;
use crate::measure::checks::check;
use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::{BATCH, Samples, rate_together, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::ours::{Jittison, link_checked, remove_now};

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![scenario("threads", JITTISON, workload, threads), scenario("dylib", JITTISON, workload, dylibs)]
}

fn threads(workload: &Workload) -> Measures {
    let mut fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
    let [first, second] = [fixture.linker.create_dylib("first")?, fixture.linker.create_dylib("second")?];
    let operations = workload.sizes.thread_churns;
    let mut apart = [Worker::new(&mut fixture, &first)?, Worker::new(&mut fixture, &second)?];
    let one = rate_together(&mut apart[..1], operations, |worker| worker.run(operations))?;
    let two = rate_together(&mut apart, operations, |worker| worker.run(operations))?;
    drop(apart);
    let mut shared = [Worker::new(&mut fixture, &first)?, Worker::new(&mut fixture, &first)?];
    let one_of_shared = rate_together(&mut shared[..1], operations, |worker| worker.run(operations))?;
    let two_in_one = rate_together(&mut shared, operations, |worker| worker.run(operations))?;
    Ok(vec![
        single(rows::ONE_THREAD.by(JITTISON), Unit::PerSecond, one),
        single(rows::TWO_THREADS.by(JITTISON), Unit::PerSecond, two),
        single(rows::THREADS.by(JITTISON), Unit::Ratio, two / one),
        single(rows::SHARED_DYLIB.by(JITTISON), Unit::Ratio, two_in_one / one_of_shared),
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
    fn new(fixture: &mut Fixture<Jittison>, dylib: &JitDylib) -> Result<Worker, String> {
        let (jit, dylib) = (fixture.linker.jit.clone(), dylib.clone());
        let ring = (0..RING).map(|_| Ok(fixture.next()?.instance)).collect::<Result<Vec<Instance>, String>>()?;
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
    let mut fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
    let mut samples = Samples::default();
    for round in 0..workload.sizes.swaps / BATCH {
        let batch = fixture.make_batch()?;
        samples.batch(|samples| {
            batch.iter().enumerate().try_for_each(|(index, ready)| {
                let name = format!("dylib {}", round * BATCH + index);
                samples.one(|| dylib_of_a_module(&fixture.linker, &name, &ready.instance))
            })
        })?;
    }
    Ok(vec![samples.into_measure(rows::DYLIB.by(JITTISON))])
}

fn dylib_of_a_module(session: &Jittison, name: &str, instance: &Instance) -> Result<(), String> {
    let dylib = session.create_dylib(name)?;
    let tracker = dylib.default_tracker().map_err(to_text)?;
    session.jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
    check(dylib.lookup_address(&instance.entry).map_err(to_text)?, instance)?;
    let removals = session.jit.session().remove_dylib(&dylib).map_err(to_text)?;
    removals
        .iter()
        .all(|removal| removal.is_complete())
        .then_some(())
        .ok_or_else(|| "a removal had to wait".to_string())
}
