//! The verbs of removal. Reads as a removal does: close the gates and take the names away, at once; tell those who waited for
//! the names; then give back what nothing holds (`reclaim.rs`), and leave the rest to whoever lets go last.
//!
//! | verb | if something is in the way |
//! |---|---|
//! | `remove` | names go, resources stay as long as they are held |
//! | `remove_all`, `JitDylib::clear` | the same, for many as one: all finalisers run before any memory goes |
//! | `try_remove` | nothing is done, and the error says what it is |
//! | `remove_cascade` | trackers whose code refers to it go too, before it |
//! | `remove_now` | is not asked |

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::prefetch::prefetch;
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib};
use crate::session::core::resource_tracker::{ResourceTracker, TrackerCore};
use crate::session::pins::tracker_state::RetireOutcome;
use crate::session::removal::reclaim;
use crate::session::removal::ticket::Removal;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::sync::{Arc, seeded_bug};

impl ResourceTracker {
    /// Takes back everything under this tracker. Always safe to call.
    ///
    /// At once: its symbols are gone, lookups of them fail, work in flight is told at its next step. Then, as soon as no
    /// [`Pin`](crate::session::Pin), no live dependant and no [`Guard`](crate::session::Guard) holds it, the managers give its
    /// resources back; mostly before this returns. The ticket says whether that has happened and who is in the way. A
    /// second removal gives the same ticket.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] for a tracker that was transferred away. What managers report is returned joined;
    /// the removal is complete all the same.
    pub fn remove(&self) -> Result<Removal> {
        let core = self.core();
        match retire(core, |core| Some(core.gate.retire())) {
            Some(RetireOutcome::Merged) => Err(core.defunct()),
            Some(held @ (RetireOutcome::Free | RetireOutcome::Held)) => finish(core, held),
            _ => Ok(Removal::new(core.clone())),
        }
    }

    /// Takes back everything under this tracker, if all of it can go at once.
    ///
    /// Guards count, the caller's own too: whichever are entered when this is called. One that is entered while it runs may
    /// have seen a name, and then keeps the resources until it is left, as the ticket says.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`], which names the holders, and nothing was done; and as [`remove`](Self::remove).
    pub fn try_remove(&self) -> Result<Removal> {
        let core = self.core();
        loop {
            let session = &core.dylib().session;
            let entered = session.guards.entered().into_iter().chain(session.entered_calls([core]));
            let mut holders: Vec<_> = entered.map(|entered| entered.describe(&session.guards)).collect();
            if holders.is_empty() || !core.gate.is_live() {
                match retire(core, |core| core.gate.retire_unpinned()) {
                    None => {}
                    Some(RetireOutcome::Merged) => return Err(core.defunct()),
                    Some(RetireOutcome::AlreadyRetired) => return Ok(Removal::new(core.clone())),
                    Some(held) => return finish(core, held),
                }
            }
            holders.extend(Removal::new(core.clone()).obstacles());
            // Again, if whoever was in the way has gone before it could be named.
            if !holders.is_empty() {
                let (dylib, tracker) = (core.dylib().name.to_string(), core.key().to_string());
                return Err(ErrorKind::InUse { dylib, tracker, holders }.into());
            }
        }
    }

    /// Takes back everything under this tracker, and under all trackers whose code refers to it, directly or through others:
    /// those first, so that each finaliser finds what it uses. Returns the ticket of this tracker, which is complete when all
    /// of them are.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_cascade(&self) -> Result<Removal> {
        let core = self.core();
        let mut batch = Batch::default();
        match retire(core, |core| Some(core.gate.retire())) {
            Some(RetireOutcome::Merged) => return Err(core.defunct()),
            Some(held @ (RetireOutcome::Free | RetireOutcome::Held)) => batch.retired.push((core.clone(), held)),
            _ => {}
        }
        // Nothing new can refer to what is retired; but to what refers to it, until that is retired too.
        let session = &core.dylib().session;
        loop {
            let closure = session.pins.lock().leading_to(core);
            let before = batch.retired.len();
            closure.into_iter().for_each(|core| batch.retire(&core.dylib().clone(), [core]));
            // Seeded bug: what has come to refer to a dependant meanwhile stays, and holds all of it.
            if batch.retired.len() == before || seeded_bug!("cascade_in_one_pass") {
                break;
            }
        }
        batch.finish(session)?;
        Removal::finished_or_pending(core.clone())
    }

    /// Takes back everything under many trackers as one removal: all finalisers run before any memory goes, newest trackers
    /// first, and trackers that refer to each other hold nothing up. Returns a ticket for each, in the order given.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] for those that were transferred away, and what managers report, joined; all others are
    /// removed all the same.
    pub fn remove_all<'a>(trackers: impl IntoIterator<Item = &'a ResourceTracker>) -> Result<Vec<Removal>> {
        let cores: Vec<_> = trackers.into_iter().map(|tracker| tracker.core().clone()).collect();
        let mut failures: Vec<_> =
            cores.iter().filter(|core| core.gate.is_merged()).map(|core| core.defunct()).collect();
        let mut by_dylib = cores.clone();
        // Newest first, as a loader unloads.
        by_dylib.sort_by_key(|core| {
            Reverse((Arc::as_ptr(&core.dylib().session) as usize, core.dylib().serial, core.serial))
        });
        for of_session in by_dylib.chunk_by(|a, b| Arc::ptr_eq(&a.dylib().session, &b.dylib().session)) {
            let mut batch = Batch::default();
            for of_dylib in of_session.chunk_by(|a, b| Arc::ptr_eq(a.dylib(), b.dylib())) {
                batch.retire(of_dylib[0].dylib(), of_dylib.iter().cloned());
            }
            failures.extend(batch.finish(&of_session[0].dylib().session).err());
        }
        Error::join(failures)?;
        Ok(cores.into_iter().map(Removal::new).collect())
    }
}

impl JitDylib {
    /// Removes every tracker, the default one included, as one batch: all finalisers run before any memory goes. Versions of
    /// functions that are [patched](crate::Patchable) here go along.
    /// Returns the removals that pins keep from being complete.
    ///
    /// # Errors
    /// What managers report, joined.
    pub fn clear(&self) -> Result<Vec<Removal>> {
        let (mut batch, mut others) = (Batch::default(), Vec::new());
        let companions = {
            let mut state = self.inner().state.lock();
            let companions = std::mem::take(&mut state.companions);
            // Mostly there are none, who would have to leave first.
            if companions.is_empty() {
                batch.retire_all(&mut state);
            }
            companions
        };
        if !companions.is_empty() {
            companions.iter().for_each(|companion| others.extend(companion.leave()));
            batch.retire_all(&mut self.inner().state.lock());
        }
        others.iter().for_each(|other| batch.retire(other.core().dylib(), [other.core().clone()]));
        let finished = batch.finish(&self.inner().session);
        drop(others);
        companions.iter().for_each(|companion| companion.left());
        finished?;
        let removals = batch.retired.into_iter().map(|(core, _)| Removal::new(core));
        Ok(removals.filter(|removal| !removal.is_complete()).collect())
    }
}

/// Frees everything under a tracker, whoever is in it, refers to it or holds it. The ticket is complete unless another thread
/// was at it already.
///
/// # Errors
/// [`ErrorKind::TrackerDefunct`] for a tracker that was transferred away; what managers report, joined.
pub fn remove_now(tracker: &ResourceTracker) -> Result<Removal> {
    let core = tracker.core();
    if core.gate.is_merged() {
        return Err(core.defunct());
    }
    reclaim::force_reclaim(core);
    Removal::finished_or_pending(core.clone())
}

/// Trackers that go together.
#[derive(Default)]
struct Batch {
    retired: SmallVec<[(Arc<TrackerCore>, RetireOutcome); 4]>,
    unpublished: Vec<(RemovedDefinitions, Arc<TrackerCore>)>,
}

impl Batch {
    /// Retires those of one dylib's trackers that are live, under its lock.
    fn retire(&mut self, dylib: &Arc<DylibInner>, cores: impl IntoIterator<Item = Arc<TrackerCore>>) {
        let mut state = dylib.state.lock();
        self.retire_in(&mut state, cores);
    }

    /// Retires all of a dylib's live trackers, newest first, as a loader unloads.
    fn retire_all(&mut self, dylib: &mut DylibState) {
        let mut cores = dylib.cores();
        cores.sort_by_key(|core| Reverse(core.serial));
        self.retire_in(dylib, cores);
    }

    fn retire_in(&mut self, dylib: &mut DylibState, cores: impl IntoIterator<Item = Arc<TrackerCore>>) {
        for core in cores {
            let held = core.gate.retire();
            if matches!(held, RetireOutcome::Free | RetireOutcome::Held) {
                self.unpublished.extend(dylib.unpublish(&core).map(|unpublished| (unpublished, core.clone())));
                self.retired.push((core, held));
            }
        }
    }

    /// Tells those who waited, and reclaims what nothing holds. What managers report, joined.
    fn finish(&mut self, session: &Arc<SessionInner>) -> Result<()> {
        for (unpublished, core) in std::mem::take(&mut self.unpublished) {
            unpublished.settle(core.dylib(), || core.defunct());
        }
        reclaim::after_retire(session, &self.retired);
        let mut failures = Vec::new();
        self.retired.iter().for_each(|(core, _)| failures.extend(core.gate.failures()));
        Error::join(failures)
    }
}

/// Closes a tracker's gate and takes its names away, if `close` does so; what `close` says.
fn retire(core: &Arc<TrackerCore>, close: impl FnOnce(&TrackerCore) -> Option<RetireOutcome>) -> Option<RetireOutcome> {
    // All of it at once, and what the end of the removal needs comes meanwhile.
    prefetch(&**core);
    core.whereabouts.prefetch();
    core.dylib().session.pins.prefetch(core);
    let mut dylib = core.dylib().state.lock();
    // Under the dylib's lock (S2): whoever defines or emits next sees it.
    let closed = close(core);
    // Seeded bug: a second remover finds it retired, and returns while its names are still there.
    if seeded_bug!("retired_before_the_dylib_lock") {
        drop(dylib);
        dylib = core.dylib().state.lock();
    }
    if matches!(closed, Some(RetireOutcome::Free | RetireOutcome::Held)) {
        let unpublished = dylib.unpublish(core);
        drop(dylib);
        if let Some(unpublished) = unpublished {
            unpublished.settle(core.dylib(), || core.defunct());
        }
    }
    closed
}

/// The names of a tracker that this thread has retired are gone: goes on with it.
fn finish(core: &Arc<TrackerCore>, held: RetireOutcome) -> Result<Removal> {
    let retired = [(core.clone(), held)];
    reclaim::after_retire(&core.dylib().session, &retired);
    let [(core, _)] = retired;
    Removal::finished_or_pending(core)
}
