//! [`Tuner`]: it links candidates, redirects callers to them, rolls some back, and measures the removal of old
//! versions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jittison::{ErrorKind, Function, Patchable, Removal};

use super::kernels::template;
use super::progress::Progress;
use crate::measure::scenario::{Unit, to_text};
use crate::workloads::corpus::{ARGUMENT, Template, entry};
use crate::workloads::host::{self, HostSession};
use crate::workloads::host_functions::Run;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use fastrand::Rng;

/// Of a hundred candidates, those that fail to link; of a hundred committed ones, those that are rolled back.
const BROKEN_OF_100: usize = 2;
const ROLLED_BACK_OF_100: usize = 5;
/// The number of commits that can be undone: the previous version and the best one stay.
const HISTORY: usize = 2;
/// A limit that is never reached, even while a caller stays inside a guard.
const MAX_HELD: usize = 100_000;
/// How long the last callers may take to leave, at the end.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Tuner<'a> {
    pub session: &'a HostSession,
    pub templates: &'a [Template],
    pub progress: Arc<Progress>,
    functions: Vec<Patchable>,
    /// Handles to the first versions, which do not go through stubs.
    first_versions: Vec<Function<Run>>,
    rng: Rng,
    links: Times,
    commits: Times,
    rollbacks: Times,
    rejections: Times,
    versions: Arc<Versions>,
    removals: Vec<Removal>,
}

/// The number of live versions, and the time that it took to free the others.
#[derive(Default)]
struct Versions {
    live: AtomicU64,
    max_live: AtomicU64,
    /// Measured from the removal.
    delays: Mutex<Option<Times>>,
}

impl<'a> Tuner<'a> {
    /// Creates the first version of each function; function n has shape n.
    pub fn new(session: &'a HostSession, templates: &'a [Template], functions: usize) -> Result<Tuner<'a>, String> {
        let build = |number: usize| {
            let builder = session.jit.patchable_builder(&session.dylib, &[&entry(number as u32)]);
            builder.history(HISTORY).max_versions(MAX_HELD).build().map_err(to_text)
        };
        let functions = (0..functions).map(build).collect::<Result<Vec<_>, _>>()?;
        let [links, commits, rollbacks, rejections] = std::array::from_fn(|_| Times::new());
        let (progress, versions, removals) = (Arc::new(Progress::new()), Default::default(), Vec::new());
        let (first_versions, rng) = (Vec::new(), Rng::with_seed(41));
        let mut tuner = Tuner {
            session,
            templates,
            progress,
            functions,
            first_versions,
            rng,
            links,
            commits,
            rollbacks,
            rejections,
            versions,
            removals,
        };
        tuner.first_versions =
            (0..tuner.functions.len()).map(|number| tuner.link_and_commit(number)).collect::<Result<_, _>>()?;
        Ok(tuner)
    }

    /// Tries one candidate for a random function.
    pub fn offer(&mut self) -> Result<(), String> {
        let number = self.rng.usize(..self.functions.len());
        if self.rng.usize(..100) < BROKEN_OF_100 {
            return self.offer_broken(number);
        }
        drop(self.link_and_commit(number)?);
        if self.rng.usize(..100) < ROLLED_BACK_OF_100 {
            let function = &self.functions[number];
            let rollback = self.rollbacks.time(|| function.rollback()).map_err(to_text)?;
            self.retire(rollback.retired);
        }
        Ok(())
    }

    /// Returns a handle to the version itself.
    fn link_and_commit(&mut self, number: usize) -> Result<Function<Run>, String> {
        let version = self.progress.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let instance = template(self.templates, number).instance(number as u32, version);
        let (function, links) = (&self.functions[number], &mut self.links);
        let prepared = links.time(|| {
            let mut patch = function.patch();
            patch.add_object("candidate.o", instance.bytes.clone())?;
            // SAFETY: our own object; it has no initialisers.
            unsafe { patch.link() }
        });
        let prepared = prepared.map_err(to_text)?;
        self.versions.add();
        // SAFETY: the entries' signature.
        let candidate = unsafe { prepared.lookup::<Run>(&instance.entry) }.map_err(to_text)?;
        host::compare(candidate.call(ARGUMENT), instance.expected)?;
        let committed = self.commits.time(|| prepared.commit()).map_err(to_text)?;
        self.progress.committed(number);
        self.retire(committed.retired);
        Ok(candidate)
    }

    fn offer_broken(&mut self, number: usize) -> Result<(), String> {
        let broken = template(self.templates, number).broken(number as u32);
        let (function, rejections) = (&self.functions[number], &mut self.rejections);
        let outcome = rejections.time(|| {
            let mut patch = function.patch();
            patch.add_object("broken.o", broken.bytes)?;
            // SAFETY: our own object; it has no initialisers.
            unsafe { patch.link() }.map(drop)
        });
        match outcome {
            Err(error) if matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }) => Ok(()),
            Err(error) => Err(format!("unexpected error for a missing symbol: {error}")),
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

    /// Handles to the first versions. They keep the versions alive, so they can be taken only once.
    pub fn take_first_versions(&mut self) -> Vec<Function<Run>> {
        std::mem::take(&mut self.first_versions)
    }

    /// Waits until all replaced versions are freed.
    pub fn wait_for_removals(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        for removal in self.removals.drain(..) {
            if !removal.wait_until(deadline).map_err(to_text)? {
                return Err(format!("a version was not freed: {removal:?}"));
            }
        }
        Ok(())
    }

    pub fn report(&self, rows: &mut Rows) {
        rows.times_and_tail("link a candidate", &self.links);
        rows.times_and_tail("redirect callers to it", &self.commits);
        rows.times("roll back", &self.rollbacks);
        rows.times("reject a candidate with a missing symbol", &self.rejections);
        let delays = self.versions.delays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(delays) = &*delays {
            rows.times_and_tail("from a version's removal to its end", delays);
            rows.value("from a version's removal to its end, maximum", Unit::Nanoseconds, delays.max());
        }
        let max = self.versions.max_live.load(Ordering::Relaxed);
        rows.value("live versions, maximum", Unit::Count, max as f64);
    }

    pub fn clear(self) -> Result<(), String> {
        drop(self.functions);
        let pending = self.session.dylib.clear().map_err(to_text)?;
        pending.is_empty().then_some(()).ok_or_else(|| format!("still held after the end: {pending:?}"))
    }
}

impl Versions {
    fn add(&self) {
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_live.fetch_max(live, Ordering::Relaxed);
    }

    fn remove(&self, since: Instant) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.get_or_insert_with(Times::new).record(since.elapsed());
    }
}
