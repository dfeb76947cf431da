//! Reclamation: which thread lets the managers release the resources of removed trackers, and in which order.
//!
//! # Who reclaims
//! Exactly one thread moves a tracker to Reclaiming. If nothing holds the tracker when it is removed, the remover does
//! so and reclaims it. Else the [`ReclaimPolicy`] decides. Under `OnDrop`, the thread that drops the last pin or leaves
//! the last guard reclaims. Under the other policies that thread queues the tracker. Under `Background`, a thread of
//! the session reclaims it; under `Explicit`, the caller of
//! [`ExecutionSession::reclaim`](crate::session::ExecutionSession::reclaim) does.
//!
//! Trackers that are reclaimed together (a cycle of dependants, a dylib) form a batch. Each manager gets all trackers
//! of a batch before the next manager does. So every finaliser has run before the first byte of the batch is freed.
//!
//! # Steps
//! 1. Trackers that one call removes wait together for the [guards][`Guard`] that were active when their symbols were
//!    unpublished (`guards.rs`). They stay in state Guarded meanwhile.
//! 2. When only [revocable](Pin::into_revocable) pins hold a tracker, the managers are asked to release them
//!    ([`ResourceManager::release_pins`]). If this is so when the tracker is removed, the remover asks. Later, under
//!    `OnDrop` the thread that dropped the last other pin or left the last guard asks. Under the other policies the
//!    thread that reclaims asks. Some pins can be released by one thread only. A pin that is not released holds the
//!    tracker until its maker drops it. The asking thread pins the tracker meanwhile, so that the tracker joins the
//!    batch.
//! 3. The batch is sorted: a tracker comes before those that it refers to.
//! 4. The managers release the resources, those of a higher rank first, and the newest first within a rank.
//! 5. The pins that the batch held are dropped. Trackers that become free by that form the next batch, which is sorted too.
//!
//! [`Guard`]: crate::session::Guard
//! [`ResourceManager::release_pins`]: crate::session::ResourceManager::release_pins
//! [`Pin::into_revocable`]: crate::session::Pin::into_revocable

use std::any::Any;
use std::slice;
use std::time::Instant;

use rustc_hash::FxHashSet;

use crate::base::catch;
use crate::error::{Error, Result};
use crate::session::core::execution_session::{ReclaimPolicy, SessionInner};
use crate::session::core::observer::Event;
use crate::session::core::resource_manager::ResourceManager;
use crate::session::core::resource_tracker::{Pin, TrackerCore};
use crate::session::pins::dependants::newest_first;
use crate::session::pins::guards;
use crate::session::pins::guards::{ActiveGuard, Deferred};
use crate::session::pins::pin_table::Released;
use crate::session::pins::pinned::Pinned;
use crate::session::pins::tracker_state::{AfterUnpin, OnReclaimed, RetireOutcome};
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::types::failed_transfers::FailedTransferKey;
use crate::session::types::ids::ResourceKey;
use crate::session::types::pending_removals::PendingKey;
use crate::sync::{Arc, seeded_bug};

/// Trackers that were just retired, with the results of their `retire`.
pub(crate) type Retired = [(Arc<TrackerCore>, RetireOutcome)];

/// Reclaims those of the retired trackers that no pin holds and no guard blocks. Their symbols are unpublished.
pub(crate) fn after_retire(session: &Arc<SessionInner>, retired: &Retired) {
    let guards = session.guards.active();
    if !guards.is_empty() || retired.iter().any(|(core, _)| core.is_version()) {
        let calls = guards::wait_briefly(session.active_calls(retired.iter().map(|(core, _)| core)));
        if !guards.is_empty() || !calls.is_empty() {
            return after_retire_guarded(session, retired, guards, calls);
        }
    }
    retired.iter().for_each(|(core, _)| core.deliver_retired(0));
    // In the common case there is one tracker, and nothing pins it.
    if let [(core, RetireOutcome::Free)] = retired {
        return reclaim(session, slice::from_ref(core), retired);
    }
    let next_step = |(core, outcome): &(Arc<TrackerCore>, RetireOutcome)| match outcome {
        RetireOutcome::Free => AfterUnpin::Reclaim,
        _ => {
            list_pending(session, core);
            core.state.leave_guarded()
        }
    };
    let free = claim_reclaimable(session, retired.iter().map(|entry| (entry.0.clone(), next_step(entry))).collect());
    reclaim(session, &free, retired);
}

/// Like [`after_retire`], if guards or calls may block the trackers. Defers the trackers, or reclaims them if these guards and
/// calls were left meanwhile. Calls block versions only.
#[cold]
fn after_retire_guarded(
    session: &Arc<SessionInner>,
    retired: &Retired,
    guards: Vec<ActiveGuard>,
    calls: Vec<ActiveGuard>,
) {
    for (core, _) in retired {
        core.deliver_retired(guards.len() + if core.is_version() { calls.len() } else { 0 });
    }
    retired
        .iter()
        .filter(|(_, outcome)| *outcome == RetireOutcome::Free)
        .for_each(|(core, _)| core.state.enter_guarded());
    retired.iter().for_each(|(core, _)| list_pending(session, core));
    let cores = retired.iter().map(|(core, _)| core.clone());
    let (versions, others): (Vec<_>, Vec<_>) = cores.partition(|core| core.is_version());
    let mut free = defer(others, guards.clone());
    free.extend(defer(versions, [guards, calls].concat()));
    reclaim(session, &claim_reclaimable(session, leave_guarded(free)), retired);
}

/// Lists the removal of a Guarded tracker as pending. Does nothing if another thread has reclaimed it by force.
fn list_pending(session: &SessionInner, core: &Arc<TrackerCore>) {
    let Some(since) = core.state.removed_since() else { return };
    let key = core.pending_key(since);
    session.pending_removals.add(key, core.clone());
    // Seeded bug: the thread that has reclaimed the tracker by force looked for the entry before it was there.
    if core.state.is_reclaimed() && !seeded_bug!("listed_after_it_is_reclaimed") {
        session.pending_removals.remove(key);
    }
}

impl TrackerCore {
    /// The key of this tracker's pending removal, which waits `since` then.
    fn pending_key(&self, since: Instant) -> PendingKey {
        (since, self.dylib().id.number(), self.state.serial())
    }
}

/// Trackers that were removed together and wait for guards.
pub(crate) struct DeferredTrackers(Vec<Arc<TrackerCore>>);

impl DeferredTrackers {
    /// Whether `items`, the items of a deferred batch, contain `core`.
    pub(crate) fn contain(items: &dyn Any, core: &TrackerCore) -> bool {
        let trackers = items.downcast_ref::<DeferredTrackers>();
        trackers.is_some_and(|trackers| trackers.0.iter().any(|other| std::ptr::eq(&**other, core)))
    }
}

impl Deferred for DeferredTrackers {
    fn release(self: Box<Self>, others: Vec<Box<dyn Deferred>>) {
        let mut free = self.0;
        for others in others {
            let others: Box<dyn Any> = others;
            free.extend(others.downcast::<DeferredTrackers>().into_iter().flat_map(|others| others.0));
        }
        // A host call belongs to the process, so batches of several sessions may wait for one record.
        while let Some(core) = free.first() {
            let session = core.dylib().session.clone();
            let (own, others) = free.into_iter().partition(|core| Arc::ptr_eq(&core.dylib().session, &session));
            after_guards(&session, own);
            free = others;
        }
    }
}

/// Defers `cores`, which are Guarded, until the guards and calls of `active` are left. Returns them if they are left already.
fn defer(cores: Vec<Arc<TrackerCore>>, active: Vec<ActiveGuard>) -> Vec<Arc<TrackerCore>> {
    if cores.is_empty() {
        return cores;
    }
    guards::defer(DeferredTrackers(cores), active).map_or_else(Vec::new, |free| free.0)
}

impl SessionInner {
    /// Reclaims all queued trackers as one batch, since a cycle is queued tracker by tracker. Returns the number of trackers.
    pub(crate) fn reclaim_deferred(self: &Arc<SessionInner>) -> usize {
        let mut count = 0;
        loop {
            let mut batch: Vec<_> = std::iter::from_fn(|| self.deferred.pop()).collect();
            let with_revocable: Vec<_> = std::iter::from_fn(|| self.only_revocable.pop()).collect();
            let more = claim(self, with_revocable, &batch);
            batch.extend(more);
            if batch.is_empty() {
                return count;
            }
            count += batch.len();
            reclaim(self, &in_order(self, batch), &[]);
        }
    }

    /// The active calls, if one of `cores` is a version: these calls may be inside it.
    pub(crate) fn active_calls<'a>(&self, cores: impl IntoIterator<Item = &'a Arc<TrackerCore>>) -> Vec<ActiveGuard> {
        let are_versions = cores.into_iter().any(|core| core.is_version());
        if !are_versions || seeded_bug!("version_freed_under_a_call") {
            return Vec::new();
        }
        self.calls.active()
    }
}

/// Continues the removal of trackers after all guards that they waited for were left. Reclaims them here, or queues them for
/// the next `ExecutionSession::reclaim` if the policy says so and the session is open.
fn after_guards(session: &Arc<SessionInner>, cores: Vec<Arc<TrackerCore>>) {
    match session.reclaim_policy {
        ReclaimPolicy::OnDrop => reclaim(session, &claim_reclaimable(session, leave_guarded(cores)), &[]),
        _ => leave_guarded(cores).into_iter().for_each(|(core, next_step)| after_unpin(core, next_step)),
    }
}

/// No guard blocks these trackers any more. Returns what the caller must do with each.
fn leave_guarded(cores: Vec<Arc<TrackerCore>>) -> Vec<(Arc<TrackerCore>, AfterUnpin)> {
    let leave = |core: Arc<TrackerCore>| {
        let next_step = core.state.leave_guarded();
        (core, next_step)
    };
    cores.into_iter().map(leave).collect()
}

/// Claims those of the trackers that can be reclaimed, with dependants that can be reclaimed only together with them.
fn claim_reclaimable(
    session: &Arc<SessionInner>,
    with_next_step: Vec<(Arc<TrackerCore>, AfterUnpin)>,
) -> Vec<Arc<TrackerCore>> {
    let of =
        |wanted| with_next_step.iter().filter(move |(_, next_step)| *next_step == wanted).map(|(core, _)| core.clone());
    let mut free: Vec<_> = of(AfterUnpin::Reclaim).collect();
    let undecided: Vec<_> = of(AfterUnpin::AskGraph).collect();
    let more = claim(session, undecided, &free);
    free.extend(more);
    in_order(session, free)
}

/// Sorts trackers as a loader unloads: each before those it refers to. Where no reference decides, the newer one is first.
pub(crate) fn in_order(session: &SessionInner, mut batch: Vec<Arc<TrackerCore>>) -> Vec<Arc<TrackerCore>> {
    newest_first(&mut batch);
    if batch.len() < 2 || batch.iter().all(|core| core.state.node().is_none()) {
        return batch;
    }
    session.pins.sort(batch)
}

/// Reclaims a tracker in spite of handles, guards and dependants. Does nothing if another thread reclaims or has reclaimed it.
pub(crate) fn force_reclaim(core: &Arc<TrackerCore>) {
    let verb = "Jit::remove_now";
    let (was_live, is_ours, unpublished) = {
        let mut dylib = core.dylib().state.lock();
        dylib.release_shared_pin(core);
        let was_live = core.state.is_live();
        let is_ours = core.state.force_reclaim();
        // The thread that has retired the tracker may still be removing its symbols. Both remove them, piece by piece: none is
        // left when the record of the tracker goes.
        let unpublished =
            if was_live { dylib.unpublish(core, verb, &mut None) } else { Some(RemovedDefinitions::rest()) };
        (was_live, is_ours, unpublished)
    };
    if let Some(mut unpublished) = unpublished {
        unpublished.remove_rest(core, verb);
        unpublished.fail_waiters(core.dylib());
    }
    if was_live {
        core.deliver_retired(0);
    }
    if is_ours {
        reclaim(&core.dylib().session, slice::from_ref(core), &[(core.clone(), RetireOutcome::Free)]);
    }
}

/// Continues after a pin was dropped. Reclaims here, or queues the trackers for the next `ExecutionSession::reclaim` if the
/// policy says so and the session is open.
fn after_unpin(core: Arc<TrackerCore>, next_step: AfterUnpin) {
    if next_step == AfterUnpin::Nothing {
        return;
    }
    let session = core.dylib().session.clone();
    match (session.reclaim_policy, next_step) {
        (_, AfterUnpin::Nothing) => {}
        (ReclaimPolicy::OnDrop, AfterUnpin::Reclaim) => reclaim(&session, &[core], &[]),
        (ReclaimPolicy::OnDrop, AfterUnpin::AskGraph) => {
            let free = claim(&session, vec![core], &[]);
            reclaim(&session, &in_order(&session, free), &[]);
        }
        (ReclaimPolicy::Explicit | ReclaimPolicy::Background, next_step) => {
            let mut questions = Vec::new();
            match next_step {
                AfterUnpin::AskGraph => questions.push(core),
                _ => session.deferred.push(core),
            }
            while let Some(core) = questions.pop() {
                let claimed = session.pins.claim_free(&core, &FxHashSet::default());
                claimed.revocable.into_iter().for_each(|core| session.only_revocable.push(core));
                claimed.free.into_iter().for_each(|core| session.deferred.push(core));
                questions.extend(claimed.questions);
            }
            // After the end of the session, no other thread may call `ExecutionSession::reclaim`.
            if session.has_ended() {
                session.reclaim_deferred();
            } else if session.reclaim_policy == ReclaimPolicy::Background {
                session.reclaimer.notify(&session, |session| _ = session.reclaim_deferred());
            }
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(revocable) = self.revocable {
            self.core.dylib().session.revocable_pins.remove(revocable);
        }
        let (core, next_step) = self.core.unpin_handle(self.revocable.is_some());
        after_unpin(core, next_step);
    }
}

/// Claims `cores` and what can be reclaimed only together with them, if nothing else holds them. First asks the managers to
/// release the revocable pins that hold them. The caller has claimed the trackers of `claimed_before` already, and reclaims them
/// together with the result: a dependant among them holds nothing.
pub(crate) fn claim(
    session: &Arc<SessionInner>,
    mut cores: Vec<Arc<TrackerCore>>,
    claimed_before: &[Arc<TrackerCore>],
) -> Vec<Arc<TrackerCore>> {
    let mut free = Vec::new();
    if cores.is_empty() {
        return free;
    }
    session.pins.note_claimed(claimed_before);
    let mut claimed = claimed_before.iter().map(|core| core.key()).collect();
    let mut revocable = Vec::new();
    // The newest is asked about first: mostly it is what the others wait for.
    newest_first(&mut cores);
    cores.reverse();
    claim_each(session, cores, &mut claimed, &mut free, Some(&mut revocable));
    // The trackers are pinned meanwhile, so that this thread gets what the released pins made free. A tracker that is
    // being reclaimed needs no request.
    let pinned: Vec<_> = revocable.into_iter().filter(|core| session.pins.pin_until_reclaimed(core).is_ok()).collect();
    pinned.iter().for_each(release_revocable_pins);
    for core in pinned {
        let (core, next_step) = core.unpin_handle(false);
        match next_step {
            AfterUnpin::Nothing => {}
            AfterUnpin::Reclaim => {
                claimed.insert(core.key());
                free.push(core);
            }
            // The pins that remain were not released on request, so they are not asked for again.
            AfterUnpin::AskGraph => claim_each(session, vec![core], &mut claimed, &mut free, None),
        }
    }
    free
}

/// Claims those of `cores` that are free, the last one first, and adds them to `claimed` and `free`.
fn claim_each(
    session: &SessionInner,
    mut cores: Vec<Arc<TrackerCore>>,
    claimed: &mut FxHashSet<ResourceKey>,
    free: &mut Vec<Arc<TrackerCore>>,
    mut revocable: Option<&mut Vec<Arc<TrackerCore>>>,
) {
    while let Some(core) = cores.pop() {
        let found = session.pins.claim_free(&core, claimed);
        claimed.extend(found.free.iter().map(|core| core.key()));
        free.extend(found.free);
        cores.extend(found.questions);
        if let Some(revocable) = &mut revocable {
            revocable.extend(found.revocable);
        }
    }
}

/// Asks the managers to release those revocable pins of a tracker that the calling thread can release. No lock is held.
fn release_revocable_pins(core: &Arc<TrackerCore>) {
    let session = &core.dylib().session;
    let failed_transfers = failed_transfers_of(core);
    for manager in session.managers(core.dylib()).iter().rev() {
        for key in keys_of(core, &failed_transfers, manager) {
            if let Err(panic) = catch(|| manager.release_pins(&core.handle, key)) {
                session.error_reporter.report(panicked(MANAGER_PANICKED, &panic));
            }
        }
    }
}

/// The keys under which a manager may hold what a tracker owns.
fn keys_of<'a>(
    core: &TrackerCore,
    failed_transfers: &'a [FailedTransferKey<dyn ResourceManager>],
    manager: &'a Arc<dyn ResourceManager>,
) -> impl Iterator<Item = ResourceKey> + use<'a> {
    let others = failed_transfers.iter().filter(move |failed| failed.is_of(manager)).map(|failed| failed.key);
    std::iter::once(core.key()).chain(others)
}

/// Reclaims `free`, and then what becomes free by that. All of `free` are in Reclaiming and claimed by the caller. The caller
/// returns the errors for `reported` trackers; those for other trackers go to the error reporter.
pub(crate) fn reclaim(session: &Arc<SessionInner>, free: &[Arc<TrackerCore>], reported: &Retired) {
    let mut freed = reclaim_batch(session, free, reported);
    while !freed.is_empty() {
        // Finalisers of this batch run in order too: what a batch frees may refer to each other.
        freed = reclaim_batch(session, &in_order(session, freed), reported);
    }
}

/// Reclaims one batch. Returns claimed trackers that only this batch held.
fn reclaim_batch(session: &Arc<SessionInner>, batch: &[Arc<TrackerCore>], reported: &Retired) -> Vec<Arc<TrackerCore>> {
    // No lock is held from here on (S5), and no other thread reclaims these trackers (S4).
    let Some(first) = batch.first() else { return Vec::new() };
    let managers = session.managers(first.dylib());
    let held_by = |core: &Arc<TrackerCore>| held_bytes(&managers, core);
    let held = session.observers.is_active().then(|| batch.iter().map(held_by).collect::<Box<[u64]>>());
    let failures = remove_resources(&managers, batch);
    let mut released = Released::default();
    for (number, core) in batch.iter().enumerate() {
        let record = core.dylib().state.lock().remove_tracker(core);
        drop(record);
        if core.state.was_in_graph() {
            session.pins.release(core, &mut released);
        }
        let failed = || failures.iter().filter(|(key, _)| *key == core.key()).map(|(_, error)| error.clone());
        let pending = core.state.finish_reclaim(failed().collect());
        if let Some(held) = &held {
            notify_reclaimed(core, held[number], failed().count());
        }
        let is_reported = || reported.iter().any(|(other, _)| other.key() == core.key());
        failed().filter(|_| !is_reported()).for_each(|error| session.error_reporter.report(error));
        if let Some((since, callbacks)) = pending {
            session.pending_removals.remove(core.pending_key(since));
            callbacks.into_iter().for_each(|callback| run_callback(session, core, callback));
        }
    }
    let Released { mut freed, undecided } = released;
    if !undecided.is_empty() {
        let more = claim(session, undecided, &freed);
        freed.extend(more);
    }
    freed
}

/// Lets the managers release the resources of a batch. Returns their errors with the keys of the trackers.
fn remove_resources(managers: &[Arc<dyn ResourceManager>], batch: &[Arc<TrackerCore>]) -> Vec<(ResourceKey, Error)> {
    let mut failures = Vec::new();
    for manager in managers.iter().rev() {
        for core in batch {
            if let Err(error) = remove_key(&**manager, core, core.key()) {
                failures.push((core.key(), error));
            }
            if core.state.has_failed_transfers() {
                remove_failed_transfers(manager, core, &mut failures);
            }
        }
    }
    for core in batch {
        if core.state.has_failed_transfers() {
            drop(core.dylib().session.failed_transfers.remove(core.key()));
        }
    }
    failures
}

/// Calls one manager for the keys of merged trackers under which it may still hold resources of `core`.
#[cold]
fn remove_failed_transfers(
    manager: &Arc<dyn ResourceManager>,
    core: &Arc<TrackerCore>,
    failures: &mut Vec<(ResourceKey, Error)>,
) {
    let failed_transfers = failed_transfers_of(core);
    for failed in failed_transfers.iter().filter(|failed| failed.is_of(manager)) {
        failures.extend(remove_key(&**manager, core, failed.key).err().map(|error| (core.key(), error)));
    }
}

/// Calls one manager for one key. A panic becomes an error, so that the other managers are still called.
#[inline]
fn remove_key(manager: &dyn ResourceManager, core: &TrackerCore, key: ResourceKey) -> Result<()> {
    let outcome = catch(|| match !core.state.has_given_key() && manager.skips_unused_keys() {
        true => Ok(()),
        false => manager.remove_resources(&core.handle, key),
    });
    outcome.unwrap_or_else(|panic| Err(panicked(MANAGER_PANICKED, &panic)))
}

/// Runs an `on_complete` callback. Its panic is reported and affects nothing else.
fn run_callback(session: &SessionInner, core: &TrackerCore, callback: OnReclaimed) {
    if let Err(panic) = catch(|| callback(core.state.outcome())) {
        let what = format!("a callback for the end of the removal of {} panicked", core.key());
        session.error_reporter.report(panicked(&what, &panic));
    }
}

/// The bytes that the managers hold for a tracker. A manager that panics is reported and counts as zero.
#[cold]
pub(crate) fn held_bytes(managers: &[Arc<dyn ResourceManager>], core: &TrackerCore) -> u64 {
    let session = &core.dylib().session;
    let failed_transfers = failed_transfers_of(core);
    let held = |manager: &dyn ResourceManager, key| {
        catch(|| manager.held_bytes(key)).unwrap_or_else(|panic| {
            session.error_reporter.report(panicked(MANAGER_PANICKED, &panic));
            0
        })
    };
    let of = |manager| keys_of(core, &failed_transfers, manager).map(|key| held(&**manager, key)).sum::<u64>();
    managers.iter().map(of).sum()
}

/// The keys of merged trackers under which managers may still hold resources of `core`.
fn failed_transfers_of(core: &TrackerCore) -> Vec<FailedTransferKey<dyn ResourceManager>> {
    match core.state.has_failed_transfers() {
        true => core.dylib().session.failed_transfers.get(core.key()),
        false => Vec::new(),
    }
}

#[cold]
fn notify_reclaimed(core: &TrackerCore, bytes: u64, failures: usize) {
    let (dylib, key) = (&core.handle, core.key());
    dylib.observers().deliver(&Event::Reclaimed { dylib, key, bytes, failures });
}

fn panicked(what: &str, panic: &str) -> Error {
    Error::other(format!("{what}: {panic}"))
}

const MANAGER_PANICKED: &str = "a resource manager panicked";

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name, enter_host_call};
    use crate::session::{ExecutionSession, JitDylib, SymbolFlags};
    use crate::sync::Mutex;

    /// Records its name and the name of the dylib whose resources it releases.
    struct NamedManager(&'static str, Arc<Mutex<Vec<(&'static str, String)>>>);

    impl ResourceManager for NamedManager {
        fn remove_resources(&self, dylib: &JitDylib, _: ResourceKey) -> Result<()> {
            self.1.lock().push((self.0, dylib.name().to_string()));
            Ok(())
        }

        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }

    #[test]
    fn versions_of_two_sessions_that_wait_for_one_host_call_go_to_the_managers_of_their_own_session() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sessions = ["a", "b"].map(|name| {
            let session = ExecutionSession::new();
            session.register_manager(Arc::new(NamedManager(name, log.clone())));
            let dylib = session.create_version_dylib(name).unwrap();
            (session, dylib)
        });
        let call = enter_host_call();
        for (_, dylib) in &sessions {
            let tracker = dylib.create_tracker().unwrap();
            tracker.define_absolute([(Name::new("x"), ExecutorAddr::new(8), SymbolFlags::EXPORTED)]).unwrap();
            assert!(!tracker.remove().unwrap().is_complete());
        }
        drop(call);
        // Host calls of other tests of this process may hold the versions a little longer.
        while log.lock().len() < sessions.len() {
            std::thread::yield_now();
        }
        let mut calls = log.lock().clone();
        calls.sort();
        assert_eq!(calls, [("a", "a".to_string()), ("b", "b".to_string())]);
    }
}
