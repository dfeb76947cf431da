//! The operations that remove trackers.
//!
//! Each of them works in this order:
//!
//! 1. Under the dylib's lock, retire the tracker and remove its symbols from the table.
//! 2. Fail the queries that wait for these symbols (`unpublish.rs`).
//! 3. Reclaim what no pin holds and no guard blocks (`reclaim.rs`). The thread that drops the last pin or leaves the last guard
//!    reclaims the rest.
//!
//! | operation | if something holds the resources |
//! |---|---|
//! | `remove` | the symbols are removed, the resources stay until nothing holds them |
//! | `remove_all`, `JitDylib::clear` | the same for several trackers as one batch: all finalisers run before any memory is freed |
//! | `try_remove` | nothing is removed, and the error names what holds them |
//! | `remove_cascade` | trackers whose code refers to this one are removed too, before it |
//! | `remove_now` | the resources are released all the same |

use std::cmp::Reverse;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::base::sort_by_number;
use crate::error::{Error, ErrorKind, Result, SHOWN};
use crate::prefetch::prefetch;
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib};
use crate::session::core::resource_tracker::{ResourceTracker, TrackerCore};
use crate::session::pins::pin_table::PIECE;
use crate::session::pins::pinned::Pinned;
use crate::session::pins::tracker_state::RetireOutcome;
use crate::session::removal::reclaim;
use crate::session::removal::ticket::Removal;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::symbols::symbol_table::remove::RemovedNames;
use crate::session::symbols::symbol_table::unfinished::SYMBOL_PIECE;
use crate::sync::{Arc, seeded_bug};

impl ResourceTracker {
    /// Removes everything under this tracker. Always safe to call.
    ///
    /// At once, its symbols are removed: lookups of them fail, and work in progress fails at its next step. The managers
    /// release the resources as soon as no [`Pin`](crate::session::Pin), no live dependant and no
    /// [`Guard`](crate::session::Guard) holds them. Mostly this happens before the call returns. The ticket says whether it
    /// has happened and what blocks it. A second removal returns the same ticket.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] if the tracker was transferred away. Otherwise the errors of managers, joined; the
    /// removal is complete in that case.
    pub fn remove(&self) -> Result<Removal> {
        // Dropped last.
        let mut names = None;
        let core = self.core();
        match retire(core, "ResourceTracker::remove", &mut names, |core| Some(core.state.retire())) {
            Some(RetireOutcome::Merged) => Err(core.defunct()),
            Some(outcome @ (RetireOutcome::Free | RetireOutcome::Held)) => finish(core, outcome),
            _ => Ok(Removal::new(core.clone())),
        }
    }

    /// Removes everything under this tracker, if all of it can be released at once.
    ///
    /// A guard that is active when the call begins is a holder, even a guard of the calling thread. A guard that is
    /// entered during the call may have found a symbol. Then it blocks the release until it is left, and the ticket
    /// names it.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] names the first holders and counts the others; nothing was removed. Otherwise as
    /// [`remove`](Self::remove).
    pub fn try_remove(&self) -> Result<Removal> {
        let core = self.core();
        loop {
            let session = &core.dylib().session;
            let active = session.guards.active().into_iter().chain(session.active_calls([core]));
            let active: Vec<_> = active.collect();
            let mut holders: Vec<_> =
                active.iter().take(SHOWN).map(|active| active.describe(&session.guards)).collect();
            let mut more = active.len() - holders.len();
            if holders.is_empty() || !core.state.is_live() {
                match retire(core, "ResourceTracker::try_remove", &mut None, |core| core.state.retire_unpinned()) {
                    None => {}
                    Some(RetireOutcome::Merged) => return Err(core.defunct()),
                    Some(RetireOutcome::AlreadyRetired) => return Ok(Removal::new(core.clone())),
                    Some(outcome) => return finish(core, outcome),
                }
            }
            let (others, unnamed) = Removal::new(core.clone()).first_obstacles(SHOWN - holders.len());
            holders.extend(others);
            more += unnamed;
            // Tries again if the holders were gone before they could be named.
            if !holders.is_empty() {
                let (dylib, tracker) = (core.dylib().name.to_string(), core.key().to_string());
                return Err(ErrorKind::InUse { dylib, tracker, holders, more }.into());
            }
        }
    }

    /// Removes everything under this tracker, and under all trackers whose code refers to it, directly or through others.
    /// Those are reclaimed first, so that each finaliser finds what it uses. Returns the ticket of this tracker. It is
    /// complete when all of them are.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_cascade(&self) -> Result<Removal> {
        let core = self.core();
        let verb = "ResourceTracker::remove_cascade";
        let mut batch = Batch::new(verb);
        // What waits for its symbols fails first, so that this removal is the cause.
        match retire(core, verb, &mut None, |core| Some(core.state.retire())) {
            Some(RetireOutcome::Merged) => return Err(core.defunct()),
            Some(outcome @ (RetireOutcome::Free | RetireOutcome::Held)) => batch.retired.push((core.clone(), outcome)),
            _ => {}
        }
        let session = &core.dylib().session;
        let (mut seen, mut unvisited) = (FxHashSet::default(), vec![core.clone()]);
        while let Some(core) = unvisited.pop() {
            // Seeded bug: a tracker that comes to refer to this one meanwhile is not removed, and holds all of them.
            let early = seeded_bug!("cascade_in_one_pass").then(|| session.pins.dependents(&core));
            // Retired first: a retired tracker gets no new dependant.
            let core = batch.retire_current(core);
            let dependants = early.unwrap_or_else(|| session.pins.dependents(&core));
            unvisited.extend(dependants.into_iter().filter(|dependant| seen.insert(dependant.key())));
        }
        batch.finish(session)?;
        Removal::finished_or_pending(core.clone())
    }

    /// Removes everything under several trackers as one batch. All finalisers run before any memory is freed, those of the
    /// newest trackers first. Trackers that refer to each other do not block each other. Returns a ticket for each, in the
    /// given order.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] for trackers that were transferred away, and the errors of managers, joined. All other
    /// trackers are removed in that case too.
    pub fn remove_all<'a>(trackers: impl IntoIterator<Item = &'a ResourceTracker>) -> Result<Vec<Removal>> {
        let cores: Vec<_> = trackers.into_iter().map(|tracker| tracker.core().clone()).collect();
        let mut failures = Vec::new();
        let mut by_dylib = cores.clone();
        // Newest first, as a loader unloads.
        by_dylib.sort_by_key(|core| {
            Reverse((Arc::as_ptr(&core.dylib().session) as usize, core.dylib().id.number(), core.state.serial()))
        });
        for of_session in by_dylib.chunk_by(|a, b| Arc::ptr_eq(&a.dylib().session, &b.dylib().session)) {
            let mut batch = Batch::new("ResourceTracker::remove_all");
            for of_dylib in of_session.chunk_by(|a, b| Arc::ptr_eq(a.dylib(), b.dylib())) {
                batch.retire(of_dylib[0].dylib(), of_dylib.iter().cloned());
            }
            failures.extend(batch.merged.iter().map(|core| core.defunct()));
            failures.extend(batch.finish(&of_session[0].dylib().session).err());
        }
        Error::join(failures)?;
        Ok(cores.into_iter().map(Removal::new).collect())
    }
}

impl JitDylib {
    /// Removes every tracker, including the default one, as one batch: all finalisers run before any memory is freed.
    /// Versions of functions that are [patched](crate::Patchable) here are removed too. Returns the removals that are not
    /// complete.
    ///
    /// # Errors
    /// The errors of managers, joined.
    pub fn clear(&self) -> Result<Vec<Removal>> {
        self.clear_with("JitDylib::clear")
    }

    /// As [`clear`](Self::clear), for the method `verb`.
    pub(crate) fn clear_with(&self, verb: &'static str) -> Result<Vec<Removal>> {
        let (mut batch, mut others, mut hooks) = (Batch::new(verb), Vec::new(), Vec::new());
        let mut state = self.inner().state.lock();
        let mut position = state.begin_clear();
        let mut cores = state.live_trackers_if_few();
        loop {
            // Mostly there is no hook. A hook must run before the trackers are retired, with no lock held.
            let mut new_hooks = std::mem::take(&mut state.clear_hooks);
            if let Some(cores) = cores.take_if(|cores| new_hooks.is_empty() && cores.len() <= PIECE) {
                // Under one lock, so that no tracker is left. If they have many symbols, those are hidden.
                cores.into_iter().for_each(|core| batch.retire_one(&mut state, core));
                let created = state.end_clear(position);
                drop(state);
                drop(created);
                batch.remove_rest();
                break;
            }
            drop(state);
            new_hooks.retain(|hook| hook.trackers_to_remove(self).map(|trackers| others.extend(trackers)).is_some());
            hooks.extend(new_hooks);
            batch.retire(self.inner(), cores.unwrap_or_else(|| self.live_trackers()));
            state = self.inner().state.lock();
            cores = Some(newest_first(state.created_since(&mut position)));
        }
        others.iter().for_each(|other| batch.retire(other.core().dylib(), [other.core().clone()]));
        let finished = batch.finish(&self.inner().session);
        drop(others);
        hooks.iter().for_each(|hook| hook.cleared());
        finished?;
        let removals = batch.retired.into_iter().map(|(core, _)| Removal::new(core));
        Ok(removals.filter(|removal| !removal.is_complete()).collect())
    }

    /// The live trackers, except those that are created meanwhile. Other threads get the dylib's lock after each page of them.
    fn live_trackers(&self) -> Vec<Arc<TrackerCore>> {
        let mut cores = Vec::new();
        for page in 0.. {
            let state = self.inner().state.lock();
            let Some(of_page) = state.table.trackers_of_page(page) else { break };
            cores.extend(of_page.filter(|core| core.state.is_live()).cloned());
            state.unlock_fair();
        }
        newest_first(cores)
    }
}

impl DylibState {
    /// The live trackers. `None` if they may be many.
    fn live_trackers_if_few(&self) -> Option<Vec<Arc<TrackerCore>>> {
        if self.table.trackers_of_page(1).is_some() {
            return None;
        }
        let trackers = self.table.trackers_of_page(0).into_iter().flatten();
        Some(newest_first(trackers.filter(|core| core.state.is_live()).cloned().collect()))
    }
}

/// Sorts trackers of one dylib as a loader unloads.
fn newest_first(mut cores: Vec<Arc<TrackerCore>>) -> Vec<Arc<TrackerCore>> {
    sort_by_number(&mut cores, |core| u128::from(!core.state.serial()));
    cores
}

/// Releases everything under a tracker, in spite of guards, dependants and pins. The ticket is complete unless another thread
/// is reclaiming the tracker.
///
/// # Errors
/// [`ErrorKind::TrackerDefunct`] if the tracker was transferred away. Otherwise the errors of managers, joined.
pub fn remove_now(tracker: &ResourceTracker) -> Result<Removal> {
    let core = tracker.core();
    reclaim::force_reclaim(core);
    // Checked after `force_reclaim`: after an earlier check, another thread could still transfer the tracker.
    if core.state.is_merged() {
        return Err(core.defunct());
    }
    Removal::finished_or_pending(core.clone())
}

/// Trackers that are removed together.
struct Batch {
    /// The method that removes them.
    verb: &'static str,
    retired: SmallVec<[(Arc<TrackerCore>, RetireOutcome); 4]>,
    unpublished: Vec<(RemovedDefinitions, Arc<TrackerCore>)>,
    /// Trackers that were not retired, because they were transferred away before.
    merged: Vec<Arc<TrackerCore>>,
    /// How many of `unpublished`, from the first on, have no hidden symbols left.
    without_rest: usize,
}

impl Batch {
    fn new(verb: &'static str) -> Batch {
        Batch { verb, retired: SmallVec::new(), unpublished: Vec::new(), merged: Vec::new(), without_rest: 0 }
    }

    /// Retires those of the trackers that are live, under the lock of their dylib. Other threads get the lock after each [`PIECE`] of
    /// them, and earlier if they have many symbols.
    fn retire(&mut self, dylib: &Arc<DylibInner>, cores: impl IntoIterator<Item = Arc<TrackerCore>>) {
        let mut cores = cores.into_iter().peekable();
        while cores.peek().is_some() {
            let (mut state, mut symbols) = (dylib.state.lock(), 0);
            for core in cores.by_ref().take(PIECE) {
                symbols += core.owned.count() as usize;
                self.retire_one(&mut state, core);
                if symbols > SYMBOL_PIECE {
                    break;
                }
            }
            state.unlock_fair();
            self.remove_rest();
        }
    }

    /// Retires a tracker, or the one that it was transferred to meanwhile. Returns that one.
    fn retire_current(&mut self, mut core: Arc<TrackerCore>) -> Arc<TrackerCore> {
        loop {
            self.retire(&core.dylib().clone(), [core.clone()]);
            if self.merged.pop().is_none() {
                return core;
            }
            core = core.current();
        }
    }

    fn retire_one(&mut self, dylib: &mut DylibState, core: Arc<TrackerCore>) {
        dylib.table.prefetch_owned(&core);
        dylib.release_shared_pin(&core);
        match core.state.retire() {
            outcome @ (RetireOutcome::Free | RetireOutcome::Held) => {
                let unpublished = dylib.unpublish(&core, self.verb, &mut None);
                self.unpublished.extend(unpublished.map(|unpublished| (unpublished, core.clone())));
                self.retired.push((core, outcome));
            }
            RetireOutcome::Merged => self.merged.push(core),
            RetireOutcome::AlreadyRetired => {}
        }
    }

    /// Removes the symbols that are still hidden.
    fn remove_rest(&mut self) {
        for (unpublished, core) in &mut self.unpublished[self.without_rest..] {
            unpublished.remove_rest(core, self.verb);
        }
        self.without_rest = self.unpublished.len();
    }

    /// Fails the queries that wait for the removed symbols, and reclaims what nothing holds. Returns the errors of
    /// managers, joined.
    fn finish(&mut self, session: &Arc<SessionInner>) -> Result<()> {
        for (unpublished, core) in std::mem::take(&mut self.unpublished) {
            unpublished.fail_waiters(core.dylib());
        }
        reclaim::after_retire(session, &self.retired);
        let mut failures = Vec::new();
        self.retired.iter().for_each(|(core, _)| failures.extend(core.state.failures()));
        Error::join(failures)
    }
}

/// Calls `try_retire` under the dylib's lock, and unpublishes the tracker if it was retired. Returns the result of
/// `try_retire`. `verb` is the method that removes the tracker. The caller drops `names` as late as it can.
fn retire(
    core: &Arc<TrackerCore>,
    verb: &'static str,
    names: &mut RemovedNames,
    try_retire: impl FnOnce(&TrackerCore) -> Option<RetireOutcome>,
) -> Option<RetireOutcome> {
    // All prefetches are issued together, so the loads overlap with the work below.
    prefetch(&**core);
    core.prefetch_hints.prefetch();
    core.dylib().session.pins.prefetch(core);
    let mut dylib = core.dylib().state.lock();
    dylib.table.prefetch_owned(core);
    dylib.release_shared_pin(core);
    // Under the dylib's lock (S2): the next definition or emission sees the retired tracker.
    let outcome = try_retire(core);
    // Seeded bug: a second remover finds the tracker retired, and returns while its symbols are still in the table.
    if seeded_bug!("retired_before_the_dylib_lock") {
        drop(dylib);
        dylib = core.dylib().state.lock();
    }
    if matches!(outcome, Some(RetireOutcome::Free | RetireOutcome::Held)) {
        let unpublished = dylib.unpublish(core, verb, names);
        drop(dylib);
        if let Some(mut unpublished) = unpublished {
            unpublished.remove_rest(core, verb);
            unpublished.fail_waiters(core.dylib());
        }
    }
    outcome
}

/// Continues the removal of a tracker that this thread has retired and unpublished.
fn finish(core: &Arc<TrackerCore>, outcome: RetireOutcome) -> Result<Removal> {
    let retired = [(core.clone(), outcome)];
    reclaim::after_retire(&core.dylib().session, &retired);
    let [(core, _)] = retired;
    Removal::finished_or_pending(core)
}
