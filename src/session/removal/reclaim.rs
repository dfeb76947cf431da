//! Giving resources back: who does it, and in which order.
//!
//! A tracker is reclaimed by the one thread that moved its gate to Reclaiming: the remover, the thread that dropped the
//! last pin, or [`ExecutionSession::reclaim`](crate::session::ExecutionSession::reclaim) under
//! [`ReclaimPolicy::Explicit`](crate::session::ReclaimPolicy). Trackers that go together (a ring of dependants, a dylib)
//! are taken manager by manager, so that every finaliser has run before the first byte of any of them is freed.
//!
//! Where nothing but [standing pins](Pin::stand) is left, their makers, the managers, are asked to let go of them
//! ([`ResourceManager::release_pins`]), each time that the last other pin goes: on the thread that dropped it, since what a
//! thread owes only that thread can settle. What is not let go of then holds the tracker until it goes by itself.
//! Meanwhile the asking thread holds the tracker, so that it takes part in one batch with the others.
//!
//! Before any of that, trackers that were just removed wait for the [guards](Guard) that were entered before their names had
//! gone (`guards.rs`), and stay guarded meanwhile: all that are removed in one call, together.
//!
//! [`Guard`]: crate::session::Guard
//! [`ResourceManager::release_pins`]: crate::session::ResourceManager::release_pins
//! [`Pin::stand`]: crate::session::Pin::stand

use std::slice;

use rustc_hash::FxHashSet;

use crate::base::catch;
use crate::error::{Error, Result};
use crate::session::core::execution_session::{ReclaimPolicy, SessionInner};
use crate::session::core::observer::Event;
use crate::session::core::resource_manager::ResourceManager;
use crate::session::core::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::pins::dependants::ReclaimSet;
use crate::session::pins::guards::{self, ActiveGuard};
use crate::session::pins::tracker_state::{AfterUnpin, OnReclaimed, RetireOutcome};
use crate::session::removal::unmoved::UnmovedKey;
use crate::sync::Arc;

/// What was just retired, with what is known of the pins.
pub(crate) type Retired = [(Arc<TrackerCore>, RetireOutcome)];

/// Reclaims those of the just retired trackers that nothing pins, and that no guard is in the way of. Their names are gone.
pub(crate) fn after_retire(session: &Arc<SessionInner>, retired: &Retired) {
    let guards = session.guards.entered();
    if !guards.is_empty() || retired.iter().any(|(core, _)| core.is_version()) {
        return after_retire_guarded(session, retired, guards);
    }
    retired.iter().for_each(|(core, _)| core.tell_retired(0));
    // Mostly there is one, and nothing has to be asked.
    if let [(core, RetireOutcome::Free)] = retired {
        return reclaim(session, slice::from_ref(core), retired);
    }
    let left = |(core, held): &(Arc<TrackerCore>, RetireOutcome)| match held {
        RetireOutcome::Free => AfterUnpin::Reclaim,
        _ => core.gate.settle(),
    };
    let free = free_of(session, retired.iter().map(|entry| (entry.0.clone(), left(entry))).collect());
    reclaim(session, &free, retired);
}

/// The same, if guards or calls may be in the way: leaves the trackers with them, or goes on when they were left meanwhile.
/// Calls hold versions only.
#[cold]
fn after_retire_guarded(session: &Arc<SessionInner>, retired: &Retired, guards: Vec<ActiveGuard>) {
    let calls = session.entered_calls(retired.iter().map(|(core, _)| core));
    for (core, _) in retired {
        core.tell_retired(guards.len() + if core.is_version() { calls.len() } else { 0 });
    }
    retired.iter().filter(|(_, held)| *held == RetireOutcome::Free).for_each(|(core, _)| core.gate.guard());
    let cores = retired.iter().map(|(core, _)| core.clone());
    let (versions, others): (Vec<_>, Vec<_>) = cores.partition(|core| core.is_version());
    let mut free = guards::entrust(others, guards.clone());
    free.extend(guards::entrust(versions, [guards, calls].concat()));
    reclaim(session, &free_of(session, settled(free)), retired);
}

/// Settles trackers that waited for guards, all of which were left; here or, by policy and while the session is open, at the
/// next `ExecutionSession::reclaim`.
pub(crate) fn after_guards(session: &Arc<SessionInner>, cores: Vec<Arc<TrackerCore>>) {
    match session.reclaim_policy {
        ReclaimPolicy::OnDrop => reclaim(session, &free_of(session, settled(cores)), &[]),
        _ => settled(cores).into_iter().for_each(|(core, left)| after_unpin(core, left)),
    }
}

/// No guard is in the way of them any more; what that leaves to do, for each.
fn settled(cores: Vec<Arc<TrackerCore>>) -> Vec<(Arc<TrackerCore>, AfterUnpin)> {
    let settle = |core: Arc<TrackerCore>| {
        let left = core.gate.settle();
        (core, left)
    };
    cores.into_iter().map(settle).collect()
}

/// Claims what may go of settled trackers, dependants that go together included.
fn free_of(session: &Arc<SessionInner>, settled: Vec<(Arc<TrackerCore>, AfterUnpin)>) -> Vec<Arc<TrackerCore>> {
    let of = |wanted| settled.iter().filter(move |(_, left)| *left == wanted).map(|(core, _)| core.clone());
    let mut free: Vec<_> = of(AfterUnpin::Reclaim).collect();
    let undecided: Vec<_> = of(AfterUnpin::AskGraph).collect();
    if !undecided.is_empty() {
        // Dependants that go in this batch hold nothing back.
        let mut claimed = free.iter().map(|core| core.key()).collect();
        free.extend(claim(session, undecided, &mut claimed));
    }
    in_order(session, free)
}

/// As a loader unloads: whatever refers to something goes before it; newest first where none does.
pub(crate) fn in_order(session: &SessionInner, mut batch: Vec<Arc<TrackerCore>>) -> Vec<Arc<TrackerCore>> {
    newest_first(&mut batch);
    if batch.len() < 2 || batch.iter().all(|core| core.gate.node().is_none()) {
        return batch;
    }
    session.pins.lock().sort(batch)
}

/// Gives back everything under a tracker, whoever holds it: handles, guards, dependants. Unless somebody does so already, or has
/// done.
pub(crate) fn force_reclaim(core: &Arc<TrackerCore>) {
    let (was_live, is_ours, unpublished) = {
        let mut dylib = core.dylib().state.lock();
        let was_live = core.gate.is_live();
        let is_ours = core.gate.force_reclaim();
        (was_live, is_ours, if was_live { dylib.unpublish(core) } else { None })
    };
    if let Some(unpublished) = unpublished {
        unpublished.settle(core.dylib(), || core.defunct());
    }
    if was_live {
        core.tell_retired(0);
    }
    if is_ours {
        reclaim(&core.dylib().session, slice::from_ref(core), &[(core.clone(), RetireOutcome::Free)]);
    }
}

/// Does what the drop of a handle left to do, here or, by policy and while the session is open, at the next
/// `ExecutionSession::reclaim`.
pub(crate) fn after_unpin(core: Arc<TrackerCore>, left: AfterUnpin) {
    if left == AfterUnpin::Nothing {
        return;
    }
    let session = core.dylib().session.clone();
    match (session.reclaim_policy, left) {
        (_, AfterUnpin::Nothing) => {}
        (ReclaimPolicy::OnDrop, AfterUnpin::Reclaim) => reclaim(&session, &[core], &[]),
        (ReclaimPolicy::OnDrop, AfterUnpin::AskGraph) => {
            let free = claim(&session, vec![core], &mut FxHashSet::default());
            reclaim(&session, &free, &[]);
        }
        (ReclaimPolicy::Explicit | ReclaimPolicy::Background, left) => {
            let claimed = match left {
                AfterUnpin::AskGraph => session.pins.lock().claim_free(&core, &FxHashSet::default()),
                _ => ReclaimSet { free: vec![core], standing: Vec::new() },
            };
            claimed.standing.into_iter().for_each(|core| session.undecided.push(core));
            claimed.free.into_iter().for_each(|core| session.deferred.push(core));
            // Nobody may be left to call `ExecutionSession::reclaim`.
            if session.has_ended() {
                session.reclaim_deferred();
            } else if session.reclaim_policy == ReclaimPolicy::Background {
                session.reclaimer.ring(&session);
            }
        }
    }
}

/// Claims what may go of `cores`, and of what goes with them, after having asked the makers of standing pins that hold
/// them. Those of `claimed` are the caller's already, and what is returned joins them.
pub(crate) fn claim(
    session: &Arc<SessionInner>,
    cores: Vec<Arc<TrackerCore>>,
    claimed: &mut FxHashSet<ResourceKey>,
) -> Vec<Arc<TrackerCore>> {
    let mut free = Vec::new();
    let mut standing = Vec::new();
    for core in cores {
        let found = session.pins.lock().claim_free(&core, claimed);
        claimed.extend(found.free.iter().map(|core| core.key()));
        free.extend(found.free);
        standing.extend(found.standing);
    }
    // Held meanwhile, so that the pins that go leave it to us to reclaim. Who is being reclaimed already needs no asking.
    let asked: Vec<_> = standing.into_iter().filter(|core| core.pin_until_reclaimed().is_ok()).collect();
    asked.iter().for_each(ask_to_let_go);
    for core in asked {
        let (core, left) = core.unpin_handle(false);
        let more = match left {
            AfterUnpin::Nothing => Vec::new(),
            AfterUnpin::Reclaim => vec![core],
            // What stands now does so for others: it was asked.
            AfterUnpin::AskGraph => session.pins.lock().claim_free(&core, claimed).free,
        };
        claimed.extend(more.iter().map(|core| core.key()));
        free.extend(more);
    }
    free
}

/// Has the makers of a tracker's standing pins let go of those that the calling thread can let go of. No lock is held.
fn ask_to_let_go(core: &Arc<TrackerCore>) {
    let session = &core.dylib().session;
    let unmoved = if core.gate.has_unmoved() { session.unmoved.of(core.key()) } else { Vec::new() };
    for manager in session.managers(core.dylib()).iter().rev() {
        for key in keys_of(core, &unmoved, manager) {
            if let Err(panic) = catch(|| manager.release_pins(&core.handle, key)) {
                session.unheard.report(panicked(MANAGER_PANICKED, &panic));
            }
        }
    }
}

/// The keys under which a manager may hold what a tracker owns.
fn keys_of<'a>(
    core: &TrackerCore,
    unmoved: &'a [UnmovedKey],
    manager: &'a Arc<dyn ResourceManager>,
) -> impl Iterator<Item = ResourceKey> + use<'a> {
    let others = unmoved.iter().filter(move |unmoved| unmoved.is_of(manager)).map(|unmoved| unmoved.key);
    std::iter::once(core.key()).chain(others)
}

pub(crate) fn newest_first(batch: &mut [Arc<TrackerCore>]) {
    batch.sort_by_key(|core| std::cmp::Reverse((core.dylib().serial, core.serial)));
}

/// Gives everything of `free` back, and of whatever becomes free by that. All are in Reclaiming, claimed by the caller.
/// What managers say of the `answered` ones is the caller's to return; what they say of others is reported.
pub(crate) fn reclaim(session: &Arc<SessionInner>, free: &[Arc<TrackerCore>], answered: &Retired) {
    let mut freed = reclaim_batch(session, free, answered);
    while !freed.is_empty() {
        freed = reclaim_batch(session, &freed, answered);
    }
}

/// One batch; returns the trackers that it was the last to hold.
fn reclaim_batch(session: &Arc<SessionInner>, batch: &[Arc<TrackerCore>], answered: &Retired) -> Vec<Arc<TrackerCore>> {
    // No lock is held from here on (S5), and nobody else reclaims these (S4).
    let Some(first) = batch.first() else { return Vec::new() };
    let managers = session.managers(first.dylib());
    let held_by = |core: &Arc<TrackerCore>| held_bytes(&managers, core);
    let held = session.observers.is_heard().then(|| batch.iter().map(held_by).collect::<Box<[u64]>>());
    let failures = tell_managers(&managers, batch);
    let (mut freed, mut undecided) = (Vec::new(), Vec::new());
    for (number, core) in batch.iter().enumerate() {
        let record = core.dylib().state.lock().forget_tracker(core);
        drop(record);
        if core.gate.was_in_graph() {
            let released = session.pins.release(core);
            freed.extend(released.freed);
            undecided.extend(released.undecided);
        }
        let failed = || failures.iter().filter(|(key, _)| *key == core.key()).map(|(_, error)| error.clone());
        let to_call = core.gate.finish_reclaim(failed().collect());
        if let Some(held) = &held {
            tell_reclaimed(core, held[number], failed().count());
        }
        let is_answered = || answered.iter().any(|(other, _)| other.key() == core.key());
        failed().filter(|_| !is_answered()).for_each(|error| session.unheard.report(error));
        if let Some(to_call) = to_call {
            to_call.into_iter().for_each(|to_call| call(session, core, to_call));
        }
    }
    if !undecided.is_empty() {
        let mut claimed = freed.iter().map(|core| core.key()).collect();
        freed.extend(claim(session, undecided, &mut claimed));
    }
    freed
}

/// Has the managers give everything of the batch back. What they report, and of whom.
fn tell_managers(managers: &[Arc<dyn ResourceManager>], batch: &[Arc<TrackerCore>]) -> Vec<(ResourceKey, Error)> {
    let mut failures = Vec::new();
    for manager in managers.iter().rev() {
        for core in batch {
            if let Err(error) = tell(&**manager, core, core.key()) {
                failures.push((core.key(), error));
            }
            if core.gate.has_unmoved() {
                tell_of_unmoved(manager, core, &mut failures);
            }
        }
    }
    for core in batch {
        if core.gate.has_unmoved() {
            drop(core.dylib().session.unmoved.take(core.key()));
        }
    }
    failures
}

/// The same, of keys of merged trackers under which this manager may hold things still.
#[cold]
fn tell_of_unmoved(
    manager: &Arc<dyn ResourceManager>,
    core: &Arc<TrackerCore>,
    failures: &mut Vec<(ResourceKey, Error)>,
) {
    let unmoved = core.dylib().session.unmoved.of(core.key());
    for unmoved in unmoved.iter().filter(|unmoved| unmoved.is_of(manager)) {
        failures.extend(tell(&**manager, core, unmoved.key).err().map(|error| (core.key(), error)));
    }
}

/// A manager that panics must not keep the others, or the removal, from coming to an end.
#[inline]
fn tell(manager: &dyn ResourceManager, core: &TrackerCore, key: ResourceKey) -> Result<()> {
    let told = catch(|| match !core.gate.has_given_key() && manager.skips_unused_keys() {
        true => Ok(()),
        false => manager.remove_resources(&core.handle, key),
    });
    told.unwrap_or_else(|panic| Err(panicked(MANAGER_PANICKED, &panic)))
}

/// Calls what waits for the end of a removal. Its panic ends that call and nothing else.
fn call(session: &SessionInner, core: &TrackerCore, to_call: OnReclaimed) {
    if let Err(panic) = catch(|| to_call(core.gate.outcome())) {
        let what = format!("what was to be called after the removal of {} panicked", core.key());
        session.unheard.report(panicked(&what, &panic));
    }
}

/// What the managers hold of a tracker's. One that panics is reported, and counts for nothing.
#[cold]
pub(crate) fn held_bytes(managers: &[Arc<dyn ResourceManager>], core: &TrackerCore) -> u64 {
    let session = &core.dylib().session;
    let unmoved = if core.gate.has_unmoved() { session.unmoved.of(core.key()) } else { Vec::new() };
    let held = |manager: &dyn ResourceManager, key| {
        catch(|| manager.held_bytes(key)).unwrap_or_else(|panic| {
            session.unheard.report(panicked(MANAGER_PANICKED, &panic));
            0
        })
    };
    let of = |manager| keys_of(core, &unmoved, manager).map(|key| held(&**manager, key)).sum::<u64>();
    managers.iter().map(of).sum()
}

#[cold]
fn tell_reclaimed(core: &TrackerCore, bytes: u64, failures: usize) {
    let (dylib, key) = (&core.handle, core.key());
    dylib.observers().tell(&Event::Reclaimed { dylib, key, bytes, failures });
}

fn panicked(what: &str, panic: &str) -> Error {
    Error::other(format!("{what}: {panic}"))
}

const MANAGER_PANICKED: &str = "a resource manager panicked";
