//! [`Tuner`]: links candidates, leads callers to them, takes some back, and watches what becomes of the old ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jittison::{ErrorKind, Function, Patchable, Removal};

use super::callers::News;
use crate::dice::Dice;
use crate::scenario::Unit;
use crate::scenario::words;
use crate::workloads::corpus::{ARGUMENT, Template, entry};
use crate::workloads::host::{self, House, Run};
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;

/// Of a hundred candidates: those that fail to link; and of those that were committed, those that are taken back.
const BROKEN_OF_100: usize = 2;
const ROLLED_BACK_OF_100: usize = 5;
/// Commits that can be undone: the previous version and the best are kept.
const HISTORY: usize = 2;
/// More than ever come about while a caller stays inside.
const MOST_HELD: usize = 100_000;
/// How long the last callers may take to leave, at the end.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Tuner<'a> {
    pub house: &'a House,
    pub templates: &'a [Template],
    pub news: Arc<News>,
    functions: Vec<Patchable>,
    /// Handles to the first versions, past all stubs.
    first: Vec<Function<Run>>,
    dice: Dice,
    links: Times,
    commits: Times,
    rollbacks: Times,
    refusals: Times,
    versions: Arc<Versions>,
    removals: Vec<Removal>,
}

/// How many versions there are, and how long it took to free the others.
#[derive(Default)]
struct Versions {
    alive: AtomicU64,
    most_alive: AtomicU64,
    /// From the removal on.
    delays: Mutex<Option<Times>>,
}

impl<'a> Tuner<'a> {
    /// With a first version of each function, the n-th of the n-th shape.
    pub fn new(house: &'a House, templates: &'a [Template], functions: usize) -> Result<Tuner<'a>, String> {
        let build = |number: usize| {
            let builder = house.jit.patchable_builder(&house.dylib, &[&entry(number as u32)]);
            builder.history(HISTORY).max_versions(MOST_HELD).build().map_err(words)
        };
        let functions = (0..functions).map(build).collect::<Result<Vec<_>, _>>()?;
        let [links, commits, rollbacks, refusals] = std::array::from_fn(|_| Times::new());
        let (news, versions, removals) = (Arc::new(News::new()), Default::default(), Vec::new());
        let (first, dice) = (Vec::new(), Dice(41));
        let mut tuner = Tuner {
            house,
            templates,
            news,
            functions,
            first,
            dice,
            links,
            commits,
            rollbacks,
            refusals,
            versions,
            removals,
        };
        tuner.first =
            (0..tuner.functions.len()).map(|number| tuner.link_and_commit(number)).collect::<Result<_, _>>()?;
        Ok(tuner)
    }

    /// One candidate for one of the functions.
    pub fn offer(&mut self) -> Result<(), String> {
        let number = self.dice.roll(self.functions.len());
        if self.dice.roll(100) < BROKEN_OF_100 {
            return self.offer_broken(number);
        }
        drop(self.link_and_commit(number)?);
        if self.dice.roll(100) < ROLLED_BACK_OF_100 {
            let function = &self.functions[number];
            let undone = self.rollbacks.time(|| function.rollback()).map_err(words)?;
            self.retire(undone.retired);
        }
        Ok(())
    }

    /// A handle to the version itself.
    fn link_and_commit(&mut self, number: usize) -> Result<Function<Run>, String> {
        let version = self.news.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let instance = template(self.templates, number).instance(number as u32, version);
        let (function, links) = (&self.functions[number], &mut self.links);
        let prepared = links.time(|| {
            let mut patch = function.patch();
            patch.add_object("candidate.o", instance.bytes.clone())?;
            // SAFETY: our own object, which has no initialisers.
            unsafe { patch.link() }
        });
        let prepared = prepared.map_err(words)?;
        self.versions.add();
        // SAFETY: the entries' signature.
        let tried = unsafe { prepared.lookup::<Run>(&instance.entry) }.map_err(words)?;
        host::compare(tried.call(ARGUMENT), instance.expected)?;
        let committed = self.commits.time(|| prepared.commit()).map_err(words)?;
        self.news.committed(number);
        self.retire(committed.retired);
        Ok(tried)
    }

    fn offer_broken(&mut self, number: usize) -> Result<(), String> {
        let broken = template(self.templates, number).broken(number as u32);
        let (function, refusals) = (&self.functions[number], &mut self.refusals);
        let refused = refusals.time(|| {
            let mut patch = function.patch();
            patch.add_object("broken.o", broken.bytes)?;
            // SAFETY: our own object, which has no initialisers.
            unsafe { patch.link() }.map(drop)
        });
        match refused {
            Err(error) if matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }) => Ok(()),
            Err(error) => Err(format!("not the error of a missing symbol: {error}")),
            Ok(()) => Err("a candidate with a missing symbol was linked".into()),
        }
    }

    fn retire(&mut self, removals: Vec<Removal>) {
        for removal in removals {
            let (since, versions) = (Instant::now(), self.versions.clone());
            removal.on_complete(move |_| versions.remove(since));
            if !removal.is_complete() {
                self.removals.push(removal);
            }
        }
    }

    /// Handles to what each function is at first. They keep it, so they are given once.
    pub fn take_first_versions(&mut self) -> Vec<Function<Run>> {
        std::mem::take(&mut self.first)
    }

    /// Until everything is freed that was replaced.
    pub fn wait_for_removals(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        for removal in self.removals.drain(..) {
            if !removal.wait_until(deadline).map_err(words)? {
                return Err(format!("a version is not freed: {removal:?}"));
            }
        }
        Ok(())
    }

    pub fn report(&self, rows: &mut Rows) {
        rows.times_and_tail("link a candidate aside", &self.links);
        rows.times_and_tail("redirect callers to it", &self.commits);
        rows.times("roll back", &self.rollbacks);
        rows.times("refuse a candidate with a missing symbol", &self.refusals);
        let delays = self.versions.delays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(delays) = &*delays {
            rows.times_and_tail("from a version's removal to its end", delays);
            rows.value("from a version's removal to its end, at most", Unit::Nanoseconds, delays.most());
        }
        let most = self.versions.most_alive.load(Ordering::Relaxed);
        rows.value("versions alive, at most", Unit::Count, most as f64);
    }

    pub fn clear(self) -> Result<(), String> {
        drop(self.functions);
        let pending = self.house.dylib.clear().map_err(words)?;
        pending.is_empty().then_some(()).ok_or_else(|| format!("held after the end: {pending:?}"))
    }
}

/// The shape of a function.
pub fn template(templates: &[Template], function: usize) -> &Template {
    &templates[function % templates.len()]
}

impl Versions {
    fn add(&self) {
        let alive = self.alive.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_alive.fetch_max(alive, Ordering::Relaxed);
    }

    fn remove(&self, since: Instant) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.get_or_insert_with(Times::new).note(since.elapsed());
    }
}
