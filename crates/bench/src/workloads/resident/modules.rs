//! [`ResidentCache`]: workload d with jittison.

use std::thread;
use std::time::Instant;

use jittison::base::ExecutorAddr;
use jittison::{Function, ResourceTracker};

use super::plan::{Plan, templates, variant};
use crate::measure::competitor::JITTISON;
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::workloads::corpus::{self, Instance, Template};
use crate::workloads::host::{self, HostSession};
use crate::workloads::host_functions::Run;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use fastrand::Rng;
use jittison_test_support::bench::resident::Resident;

/// Memory must not grow after this many cycles.
const WARM_UP: u32 = 1;
const SWEEPS: u32 = 30;
/// The maximum share of the modules that a sweep removes, in percent.
const SWEPT_OF_100: usize = 20;
/// One module in this many stays held.
const HELD_ONE_IN: usize = 200;

pub struct ResidentCache {
    pub live: usize,
    pub cycles: u32,
    /// Threads that add modules.
    pub threads: usize,
}

struct Module {
    tracker: ResourceTracker,
    address: ExecutorAddr,
    expected: u64,
    number: u32,
}

/// The session of one round, and its measurements.
struct Round<'a> {
    session: HostSession,
    plan: Plan<'a>,
    rng: Rng,
    live: Vec<Module>,
    links: Times,
    removals: Times,
    /// Modules per second, in each cycle.
    rates: Vec<f64>,
    /// Of removing all modules at once, in each cycle.
    removals_of_all: Times,
    sweeps: Times,
    swept: usize,
}

impl Scenario for ResidentCache {
    fn title(&self) -> String {
        format!("workload d, resident cache, {}, {JITTISON}", variant(self.live, self.threads))
    }

    fn round(&mut self) -> Measures {
        let mut round = Round::new(templates()?)?;
        let mut rows = Rows::new("workload d", JITTISON, variant(self.live, self.threads));
        let before = Resident::measure()?;
        self.cycles(&mut round, &mut rows, before)?;
        round.add(self.live, self.threads)?;
        (0..SWEEPS).try_for_each(|_| round.sweep())?;
        round.remove_some_one_by_one(self.live / 10)?;
        round.report(&mut rows);
        round.hold_some(&mut rows)?;
        round.session.check_empty()?;
        round.session.jit.release_free();
        rows.value("resident memory left at the end", Unit::Bytes, before.grown()?);
        Ok(rows.finish())
    }
}

impl ResidentCache {
    /// Repeatedly adds all modules and removes all.
    fn cycles(&self, round: &mut Round, rows: &mut Rows, before: Resident) -> Result<(), String> {
        let mut warm = before;
        for cycle in 1..=self.cycles {
            round.add(self.live, self.threads)?;
            if cycle == 1 {
                round.report_memory(rows, before)?;
            }
            round.check_all()?;
            round.remove_all()?;
            round.session.jit.release_free();
            if cycle == WARM_UP {
                warm = Resident::measure()?;
            }
        }
        rows.value("growth of resident memory from the first cycle to the last", Unit::Bytes, warm.grown()?);
        round.session.check_empty()
    }
}

impl<'a> Round<'a> {
    fn new(templates: &'a [Template]) -> Result<Round<'a>, String> {
        let [links, removals, removals_of_all, sweeps] = std::array::from_fn(|_| Times::new());
        let (session, plan, rng, live) = (HostSession::new()?, Plan::new(templates), Rng::with_seed(89), Vec::new());
        let rates = Vec::new();
        Ok(Round { session, plan, rng, live, links, removals, rates, removals_of_all, sweeps, swept: 0 })
    }

    /// Adds `count` modules, divided among threads.
    fn add(&mut self, count: usize, threads: usize) -> Result<(), String> {
        let plan: Vec<(&Template, u32)> = (0..count).map(|_| self.plan.next()).collect();
        let session = &self.session;
        let added: Vec<(Vec<Module>, Times)> = thread::scope(|scope| {
            let started: Vec<_> = plan
                .chunks(count.div_ceil(threads).max(1))
                .map(|part| scope.spawn(move || add_all(session, part)))
                .collect();
            started.into_iter().map(|one| one.join().map_err(|_| "a thread panicked")?).collect::<Result<_, String>>()
        })?;
        let rate = |(modules, links): &(Vec<Module>, Times)| modules.len() as f64 / links.sum().as_secs_f64();
        self.rates.push(added.iter().map(rate).sum());
        for (modules, links) in added {
            self.links.merge(&links);
            self.live.extend(modules);
        }
        Ok(())
    }

    fn check_all(&self) -> Result<(), String> {
        // SAFETY: linked, and not removed yet.
        self.live.iter().try_for_each(|module| unsafe { host::call(module.address, module.expected) })
    }

    fn remove_all(&mut self) -> Result<(), String> {
        let modules = std::mem::take(&mut self.live);
        let removals =
            self.removals_of_all.time(|| ResourceTracker::remove_all(modules.iter().map(|module| &module.tracker)));
        let is_complete = removals.map_err(to_text)?.iter().all(|removal| removal.is_complete());
        is_complete.then_some(()).ok_or_else(|| "the removal of all modules had to wait".to_owned())
    }

    /// Removes a random share of the modules at once, and adds as many.
    fn sweep(&mut self) -> Result<(), String> {
        let count = self.live.len() * self.rng.usize(..SWEPT_OF_100 + 1) / 100;
        let swept: Vec<Module> = (0..count).map(|_| self.take_random()).collect();
        self.swept += count;
        let removals = self.sweeps.time(|| ResourceTracker::remove_all(swept.iter().map(|module| &module.tracker)));
        let is_complete = removals.map_err(to_text)?.iter().all(|removal| removal.is_complete());
        is_complete.then_some(()).ok_or("the removal of a sweep had to wait")?;
        self.add(count, 1)?;
        self.check_all()
    }

    fn remove_some_one_by_one(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            let Module { tracker, .. } = self.take_random();
            let removal = self.removals.time(move || tracker.remove()).map_err(to_text)?;
            removal.is_complete().then_some(()).ok_or("a removal had to wait")?;
        }
        Ok(())
    }

    fn take_random(&mut self) -> Module {
        self.live.swap_remove(self.rng.usize(..self.live.len()))
    }

    fn report_memory(&self, rows: &mut Rows, before: Resident) -> Result<(), String> {
        let (count, statistics) = (self.live.len() as f64, self.session.jit.memory_statistics());
        let each = |bytes: f64| bytes / count;
        rows.value("content of a module, on average", Unit::Bytes, each(statistics.live_bytes as f64));
        rows.value("resident memory of a module", Unit::Bytes, each(before.grown()?));
        Ok(())
    }

    fn report(&self, rows: &mut Rows) {
        rows.times_and_tail("add and look up", &self.links);
        rows.times_and_tail("remove one", &self.removals);
        rows.times("remove all at once", &self.removals_of_all);
        rows.times("sweep up to a fifth", &self.sweeps);
        let each = self.sweeps.sum().as_nanos() as f64 / self.swept.max(1) as f64;
        rows.value("remove one in a sweep, on average", Unit::Nanoseconds, each);
        let mean = self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64;
        rows.value("modules added, by all threads", Unit::PerSecond, mean);
    }

    /// Removes all modules while a few of them are held.
    fn hold_some(&mut self, rows: &mut Rows) -> Result<(), String> {
        let held: Vec<Function<Run>> =
            self.live.iter().step_by(HELD_ONE_IN).map(|module| self.hold(module)).collect::<Result<_, _>>()?;
        let start = Instant::now();
        let modules = std::mem::take(&mut self.live);
        ResourceTracker::remove_all(modules.iter().map(|module| &module.tracker)).map_err(to_text)?;
        rows.value("remove all, one in 200 of them held", Unit::Nanoseconds, start.elapsed().as_nanos() as f64);
        self.session.jit.release_free();
        let remaining = self.session.jit.memory_statistics();
        rows.value("content of the modules that are held", Unit::Bytes, remaining.live_bytes as f64);
        rows.value("resident code memory because of them", Unit::Bytes, remaining.resident_bytes as f64);
        let expected = modules.iter().step_by(HELD_ONE_IN).map(|module| module.expected);
        held.iter()
            .zip(expected)
            .try_for_each(|(function, expected)| host::compare(function.call(corpus::ARGUMENT), expected))?;
        drop(held);
        Ok(())
    }

    fn hold(&self, module: &Module) -> Result<Function<Run>, String> {
        // SAFETY: the entries' signature.
        unsafe { self.session.jit.lookup_in(&self.session.dylib, &module.entry()) }.map_err(to_text)
    }
}

impl Module {
    fn entry(&self) -> String {
        corpus::entry(self.number)
    }
}

fn add_all(session: &HostSession, plan: &[(&Template, u32)]) -> Result<(Vec<Module>, Times), String> {
    let (mut modules, mut links) = (Vec::with_capacity(plan.len()), Times::new());
    for &(template, number) in plan {
        let instance: Instance = template.instance(number, number.into());
        let (address, tracker) = links.time(|| session.link(&instance)).map_err(to_text)?;
        // SAFETY: just linked.
        unsafe { host::call(address, instance.expected) }?;
        modules.push(Module { tracker, address, expected: instance.expected, number });
    }
    Ok((modules, links))
}
