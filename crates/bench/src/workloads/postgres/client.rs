//! [`Client`]: the queries of one session, one after the other and some inside others; and its [`Figures`].

use std::collections::HashMap;

use jittison::base::ExecutorAddr;

use super::classes::MIX;
use super::lifetimes::{Event, Load, QuerySchedule};
use crate::measure::scenario::Unit;
use crate::workloads::chance::weighted;
use crate::workloads::corpus::Template;
use crate::workloads::host;
use crate::workloads::loader::Loader;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use fastrand::Rng;
use jittison_test_support::bench::resident::Resident;

/// One module in this many is cancelled: half of those before the link, half during it.
const CANCELLED_ONE_IN: usize = 100;
/// One module in this many needs an undefined function.
const BROKEN_ONE_IN: usize = 1_000;
/// A query has at least one module, and at most this many.
const MAX_MODULES: usize = 3;
/// The warm-up is one part in this many of the run. Memory must not grow after it.
const WARM_UP: u64 = 10;

pub struct Client<'a, L: Loader> {
    loader: &'a L,
    templates: &'a [Vec<Template>],
    schedule: QuerySchedule,
    rng: Rng,
    open: HashMap<u64, Vec<Module<L>>>,
    live: usize,
    next_number: u32,
    figures: Figures,
}

struct Module<L: Loader> {
    loaded: L::Loaded,
    address: ExecutorAddr,
    expected: u64,
}

pub struct Figures {
    links: [Times; MIX.len()],
    /// With the system's loader, this call faults its pages in.
    first_calls: Times,
    removals: Times,
    cancellations: Times,
    rejections: Times,
    /// All modules of a query.
    queries: Times,
    /// Modules linked per second by all clients, counting only the time in the loader.
    rate: f64,
    max_live: usize,
    /// The sum of the live modules at every query, over all clients.
    live: u64,
    /// The growth of resident memory from the warm-up to the end, in bytes.
    growth: Option<f64>,
}

impl<'a, L: Loader> Client<'a, L> {
    pub fn new(loader: &'a L, templates: &'a [Vec<Template>], load: Load, thread: usize) -> Self {
        let (rng, next_number) = (Rng::with_seed(thread as u64 * 7_919 + 11), (thread as u32) << 26);
        let (schedule, figures) = (QuerySchedule::new(load), Figures::new());
        Client { loader, templates, schedule, rng, open: HashMap::new(), live: 0, next_number, figures }
    }

    /// Runs `queries` queries, and ends all that are open then. It measures the process's memory if it is `alone`.
    pub fn run(mut self, queries: u64, alone: bool) -> Result<Figures, String> {
        let (mut started, mut warm) = (0, None);
        while started < queries {
            match self.schedule.next(&mut self.rng) {
                Event::Begin(id) => {
                    started += 1;
                    self.begin(id)?;
                }
                Event::End(id) => self.end(id)?,
            }
            if alone && started == queries / WARM_UP && warm.is_none() {
                warm = Some(Resident::measure()?);
            }
        }
        self.figures.growth = warm.map(|warm| warm.grown()).transpose()?;
        while let Some(id) = self.schedule.close() {
            self.end(id)?;
        }
        self.figures.rate = self.figures.links() as f64 / self.figures.busy_seconds();
        self.figures.live /= queries.max(1);
        Ok(self.figures)
    }

    fn begin(&mut self, id: u64) -> Result<(), String> {
        let count = 1 + self.rng.usize(..MAX_MODULES);
        let before = self.figures.link_time();
        let modules = (0..count).map(|_| self.module()).collect::<Result<Vec<_>, _>>()?;
        self.figures.queries.record(self.figures.link_time() - before);
        let modules: Vec<Module<L>> = modules.into_iter().flatten().collect();
        self.live += modules.len();
        self.figures.live += self.live as u64;
        self.figures.max_live = self.figures.max_live.max(self.live);
        self.open.insert(id, modules);
        Ok(())
    }

    fn end(&mut self, id: u64) -> Result<(), String> {
        let modules = self.open.remove(&id).unwrap_or_default();
        self.live -= modules.len();
        for module in modules {
            // SAFETY: linked, and not removed yet.
            unsafe { host::call(module.address, module.expected) }?;
            let loader = self.loader;
            self.figures.removals.time(move || loader.unload(module.loaded))?;
        }
        Ok(())
    }

    /// `None` for a module that was cancelled or rejected on purpose.
    fn module(&mut self) -> Result<Option<Module<L>>, String> {
        let class = weighted(&mut self.rng, &MIX);
        let template = &self.templates[class][self.rng.usize(..self.templates[class].len())];
        let number = self.next_number;
        self.next_number += 1;
        if self.rng.usize(..BROKEN_ONE_IN) == 0 {
            let broken = self.loader.ready(template.broken(number))?;
            self.figures.rejections.record(self.loader.reject(&broken)?);
            return Ok(None);
        }
        let instance = template.instance(number, u64::from(number));
        let expected = instance.expected;
        let ready = self.loader.ready(instance)?;
        if self.rng.usize(..CANCELLED_ONE_IN) == 0 {
            let duration = self.loader.cancel(&ready, self.rng.usize(..2) == 0)?;
            duration.into_iter().for_each(|duration| self.figures.cancellations.record(duration));
            return Ok(None);
        }
        let (address, loaded) = self.figures.links[class].time(|| self.loader.load(&ready))?;
        // SAFETY: just linked.
        self.figures.first_calls.time(|| unsafe { host::call(address, expected) })?;
        Ok(Some(Module { loaded, address, expected }))
    }
}

impl Figures {
    pub fn new() -> Figures {
        let [first_calls, removals, cancellations, rejections, queries] = std::array::from_fn(|_| Times::new());
        let links = std::array::from_fn(|_| Times::new());
        Figures {
            links,
            first_calls,
            removals,
            cancellations,
            rejections,
            queries,
            rate: 0.0,
            max_live: 0,
            live: 0,
            growth: None,
        }
    }

    pub fn merge(&mut self, other: &Figures) {
        self.links.iter_mut().zip(&other.links).for_each(|(mine, more)| mine.merge(more));
        self.first_calls.merge(&other.first_calls);
        self.removals.merge(&other.removals);
        self.cancellations.merge(&other.cancellations);
        self.rejections.merge(&other.rejections);
        self.queries.merge(&other.queries);
        self.rate += other.rate;
        self.max_live += other.max_live;
        self.live += other.live;
    }

    pub fn report(&self, rows: &mut Rows, classes: [&str; MIX.len()]) {
        rows.times_and_tail("add and look up a module", &self.all_links());
        for (class, times) in classes.iter().zip(&self.links) {
            rows.times(&format!("add and look up, class {class}"), times);
        }
        rows.times_and_tail("call a module first", &self.first_calls);
        rows.times_and_tail("all modules of a query", &self.queries);
        rows.times_and_tail("remove a module", &self.removals);
        rows.times("begin to load a module, and cancel", &self.cancellations);
        rows.times("reject a module with a missing symbol", &self.rejections);
        rows.value("modules linked, called and removed, by all threads", Unit::PerSecond, self.rate);
        rows.value("live modules, on average", Unit::Count, self.live as f64);
        rows.value("live modules, maximum", Unit::Count, self.max_live as f64);
        if let Some(growth) = self.growth {
            rows.value("growth of resident memory since a tenth of the queries", Unit::Bytes, growth);
        }
    }

    /// In nanoseconds, on average.
    pub fn cost_of_a_module(&self) -> f64 {
        self.all_links().mean() + self.removals.mean()
    }

    fn all_links(&self) -> Times {
        let mut all = Times::new();
        self.links.iter().for_each(|times| all.merge(times));
        all
    }

    fn links(&self) -> u64 {
        self.links.iter().map(Times::count).sum()
    }

    fn link_time(&self) -> std::time::Duration {
        self.links.iter().map(Times::sum).sum()
    }

    fn busy_seconds(&self) -> f64 {
        (self.link_time()
            + self.first_calls.sum()
            + self.removals.sum()
            + self.cancellations.sum()
            + self.rejections.sum())
        .as_secs_f64()
    }
}
