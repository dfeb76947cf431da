//! [`Client`]: one session's queries, one after the other and some inside others; and its [`Figures`].

use std::collections::HashMap;

use jittison::base::ExecutorAddr;

use super::MIX;
use super::lifetimes::{Calendar, Event, Load};
use crate::dice::Dice;
use crate::resident::Resident;
use crate::scenario::Unit;
use crate::workloads::chance::weighted;
use crate::workloads::corpus::Template;
use crate::workloads::host;
use crate::workloads::loader::Loader;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;

/// One module in so many is cancelled: half of those before its link, half in its midst.
const CANCELLED_ONE_IN: usize = 100;
/// One module in so many needs a function that is nowhere.
const BROKEN_ONE_IN: usize = 1_000;
/// A query has at least one module, and at most so many.
const MOST_MODULES: usize = 3;
/// Part of the run after which memory is to grow no more.
const WARM_UP: u64 = 10;

pub struct Client<'a, L: Loader> {
    loader: &'a L,
    templates: &'a [Vec<Template>],
    calendar: Calendar,
    dice: Dice,
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
    /// That of the system's loader finds no pages yet.
    first_calls: Times,
    removals: Times,
    cancellations: Times,
    refusals: Times,
    /// All modules of a query.
    queries: Times,
    /// Modules linked a second by all clients, as long as they do nothing else.
    rate: f64,
    most_live: usize,
    /// Of all clients: summed at every query.
    live: u64,
    /// Resident bytes after the warm-up, and how many there were more at the end.
    growth: Option<f64>,
}

impl<'a, L: Loader> Client<'a, L> {
    pub fn new(loader: &'a L, templates: &'a [Vec<Template>], load: Load, thread: usize) -> Self {
        let (dice, next_number) = (Dice(thread as u64 * 7_919 + 11), (thread as u32) << 26);
        let (calendar, figures) = (Calendar::new(load), Figures::new());
        Client { loader, templates, calendar, dice, open: HashMap::new(), live: 0, next_number, figures }
    }

    /// So many queries, and the end of all that are open then. Looks at the process's memory if it is `alone`.
    pub fn run(mut self, queries: u64, alone: bool) -> Result<Figures, String> {
        let (mut begun, mut warm) = (0, None);
        while begun < queries {
            match self.calendar.next(&mut self.dice) {
                Event::Begin(id) => {
                    begun += 1;
                    self.begin(id)?;
                }
                Event::End(id) => self.end(id)?,
            }
            if alone && begun == queries / WARM_UP && warm.is_none() {
                warm = Some(Resident::measure()?);
            }
        }
        self.figures.growth = warm.map(|warm| warm.grown()).transpose()?;
        while let Some(id) = self.calendar.close() {
            self.end(id)?;
        }
        self.figures.rate = self.figures.links() as f64 / self.figures.busy_seconds();
        self.figures.live /= queries.max(1);
        Ok(self.figures)
    }

    fn begin(&mut self, id: u64) -> Result<(), String> {
        let count = 1 + self.dice.roll(MOST_MODULES);
        let before = self.figures.linking();
        let modules = (0..count).map(|_| self.module()).collect::<Result<Vec<_>, _>>()?;
        self.figures.queries.note(self.figures.linking() - before);
        let modules: Vec<Module<L>> = modules.into_iter().flatten().collect();
        self.live += modules.len();
        self.figures.live += self.live as u64;
        self.figures.most_live = self.figures.most_live.max(self.live);
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

    /// None if it was to fail, and did.
    fn module(&mut self) -> Result<Option<Module<L>>, String> {
        let class = weighted(&mut self.dice, &MIX);
        let template = &self.templates[class][self.dice.roll(self.templates[class].len())];
        let number = self.next_number;
        self.next_number += 1;
        if self.dice.roll(BROKEN_ONE_IN) == 0 {
            let broken = self.loader.ready(template.broken(number))?;
            self.figures.refusals.note(self.loader.refuse(&broken)?);
            return Ok(None);
        }
        let instance = template.instance(number, u64::from(number));
        let expected = instance.expected;
        let ready = self.loader.ready(instance)?;
        if self.dice.roll(CANCELLED_ONE_IN) == 0 {
            let took = self.loader.cancel(&ready, self.dice.roll(2) == 0)?;
            took.into_iter().for_each(|took| self.figures.cancellations.note(took));
            return Ok(None);
        }
        let (address, loaded) = self.figures.links[class].time(|| self.loader.load(&ready))?;
        // SAFETY: linked a moment ago.
        self.figures.first_calls.time(|| unsafe { host::call(address, expected) })?;
        Ok(Some(Module { loaded, address, expected }))
    }
}

impl Figures {
    pub fn new() -> Figures {
        let [first_calls, removals, cancellations, refusals, queries] = std::array::from_fn(|_| Times::new());
        let links = std::array::from_fn(|_| Times::new());
        Figures {
            links,
            first_calls,
            removals,
            cancellations,
            refusals,
            queries,
            rate: 0.0,
            most_live: 0,
            live: 0,
            growth: None,
        }
    }

    pub fn merge(&mut self, other: &Figures) {
        self.links.iter_mut().zip(&other.links).for_each(|(mine, more)| mine.merge(more));
        self.first_calls.merge(&other.first_calls);
        self.removals.merge(&other.removals);
        self.cancellations.merge(&other.cancellations);
        self.refusals.merge(&other.refusals);
        self.queries.merge(&other.queries);
        self.rate += other.rate;
        self.most_live += other.most_live;
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
        rows.times("refuse a module with a missing symbol", &self.refusals);
        rows.value("modules linked, called and removed, by all threads", Unit::PerSecond, self.rate);
        rows.value("live modules, on average", Unit::Count, self.live as f64);
        rows.value("live modules, at most", Unit::Count, self.most_live as f64);
        if let Some(growth) = self.growth {
            rows.value("resident memory, grown since a tenth of the queries", Unit::Bytes, growth);
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

    fn linking(&self) -> std::time::Duration {
        self.links.iter().map(Times::sum).sum()
    }

    fn busy_seconds(&self) -> f64 {
        (self.linking() + self.first_calls.sum() + self.removals.sum() + self.cancellations.sum() + self.refusals.sum())
            .as_secs_f64()
    }
}
