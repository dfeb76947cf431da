//! Giving resources back: who does it, in which order, and the ticket that tells when it is done.
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
//! [`ResourceManager::release_pins`]: crate::session::ResourceManager::release_pins
//! [`Pin::stand`]: crate::session::Pin::stand

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustc_hash::FxHashSet;

use crate::error::{Error, Result};
use crate::session::dependants::Claim;
use crate::session::execution_session::{ReclaimPolicy, SessionInner};
use crate::session::jit_dylib::JitDylib;
use crate::session::observer::Event;
use crate::session::resource_manager::ResourceManager;
use crate::session::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::tracker_gate::{Retire, Unpin};
use crate::sync::Arc;

/// The ticket of a removal: is it complete, and who is in the way.
#[derive(Clone)]
pub struct Removal {
    core: Arc<TrackerCore>,
}

impl Removal {
    pub(crate) fn new(core: Arc<TrackerCore>) -> Removal {
        Removal { core }
    }

    /// The ticket, or what the managers reported if the removal is complete and some failed.
    pub(crate) fn finished_or_pending(core: Arc<TrackerCore>) -> Result<Removal> {
        Error::join(core.gate.failures())?;
        Ok(Removal { core })
    }

    /// Whether every resource has been given back.
    pub fn is_complete(&self) -> bool {
        self.core.gate.is_reclaimed()
    }

    /// `(owned handles, dependent trackers)` that keep the resources; `(0, 0)` once complete. Handles are all
    /// [`Pin`](crate::session::Pin)s, the standing ones included.
    pub fn blockers(&self) -> (usize, usize) {
        self.core.gate.pins()
    }

    /// Who is in the way, in words, one line for each: how many owned handles, which trackers, and what each standing pin
    /// says, such as a thread that owes destructors. Empty once complete.
    pub fn obstacles(&self) -> Vec<String> {
        let gate = &self.core.gate;
        let mut obstacles = Vec::new();
        match gate.pins().0.saturating_sub(gate.standing_pins()) {
            0 => {}
            1 => obstacles.push("an owned handle".to_string()),
            handles => obstacles.push(format!("{handles} owned handles")),
        }
        let session = &self.core.dylib.session;
        let mut dependants = session.pins.lock().dependents(&self.core);
        newest_first(&mut dependants);
        let name =
            |core: &Arc<TrackerCore>| format!("{} of `{}`, whose code refers to it", core.key(), core.dylib.name);
        obstacles.extend(dependants.iter().rev().map(name));
        obstacles.extend(session.standing.of(&self.core));
        obstacles
    }

    /// Waits until every resource has been given back, and says what the managers reported.
    ///
    /// Never returns if the calling thread itself holds a pin: ask [`blockers`](Self::blockers) first.
    ///
    /// # Errors
    /// What managers reported, joined.
    pub fn wait(&self) -> Result<()> {
        self.core.gate.wait_reclaimed();
        Error::join(self.core.gate.failures())
    }
}

impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_complete() {
            true => write!(f, "removal of {}: complete", self.core.key()),
            false => write!(f, "removal of {}: held by {}", self.core.key(), self.obstacles().join(", ")),
        }
    }
}

/// Reclaims those of the just retired trackers that nothing pins.
pub(crate) fn after_retire(session: &Arc<SessionInner>, retired: Vec<(Arc<TrackerCore>, Retire)>) {
    let of = |wanted| retired.iter().filter(move |(_, held)| *held == wanted).map(|(core, _)| core.clone());
    let mut free: Vec<_> = of(Retire::Free).collect();
    // Dependants that go in this batch hold nothing back.
    let mut claimed: FxHashSet<_> = free.iter().map(|core| core.key()).collect();
    free.extend(claim(session, of(Retire::HeldWithoutHandles).collect(), &mut claimed));
    newest_first(&mut free);
    reclaim(session, free, &retired);
}

/// Does what the drop of a handle left to do, here or, by policy and while the session is open, at the next
/// `ExecutionSession::reclaim`.
pub(crate) fn after_unpin(core: Arc<TrackerCore>, left: Unpin) {
    if left == Unpin::Nothing {
        return;
    }
    let session = core.dylib.session.clone();
    match (session.reclaim_policy, left) {
        (_, Unpin::Nothing) => {}
        (ReclaimPolicy::OnDrop, Unpin::Reclaim) => reclaim(&session, vec![core], &[]),
        (ReclaimPolicy::OnDrop, Unpin::AskGraph) => {
            let free = claim(&session, vec![core], &mut FxHashSet::default());
            reclaim(&session, free, &[]);
        }
        (ReclaimPolicy::Explicit, left) => {
            let claimed = match left {
                Unpin::AskGraph => session.pins.lock().claim_free(&core, &FxHashSet::default()),
                _ => Claim { free: vec![core], standing: Vec::new() },
            };
            claimed.standing.into_iter().for_each(|core| session.undecided.push(core));
            claimed.free.into_iter().for_each(|core| session.deferred.push(core));
            // Nobody may be left to call `ExecutionSession::reclaim`.
            if session.has_ended() {
                session.reclaim_deferred();
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
            Unpin::Nothing => Vec::new(),
            Unpin::Reclaim => vec![core],
            // What stands now does so for others: it was asked.
            Unpin::AskGraph => session.pins.lock().claim_free(&core, claimed).free,
        };
        claimed.extend(more.iter().map(|core| core.key()));
        free.extend(more);
    }
    free
}

/// Has the makers of a tracker's standing pins let go of those that the calling thread can let go of. No lock is held.
fn ask_to_let_go(core: &Arc<TrackerCore>) {
    let session = &core.dylib.session;
    let dylib = JitDylib::from_inner(core.dylib.clone());
    for manager in session.managers(&core.dylib).iter().rev() {
        let asked = catch_unwind(AssertUnwindSafe(|| manager.release_pins(&dylib, core.key())));
        if let Err(panic) = asked {
            session.unheard.report(panicked(&*panic));
        }
    }
}

/// As a loader unloads.
pub(crate) fn newest_first(batch: &mut [Arc<TrackerCore>]) {
    batch.sort_by_key(|core| std::cmp::Reverse((core.dylib.serial, core.serial)));
}

/// Gives everything of `free` back, and of whatever becomes free by that. All are in Reclaiming, claimed by the caller.
/// What managers say of the `answered` ones is the caller's to return; what they say of others is reported.
pub(crate) fn reclaim(
    session: &Arc<SessionInner>,
    mut free: Vec<Arc<TrackerCore>>,
    answered: &[(Arc<TrackerCore>, Retire)],
) {
    while !free.is_empty() {
        free = reclaim_batch(session, free, answered);
    }
}

/// One batch; returns the trackers that it was the last to hold.
fn reclaim_batch(
    session: &Arc<SessionInner>,
    batch: Vec<Arc<TrackerCore>>,
    answered: &[(Arc<TrackerCore>, Retire)],
) -> Vec<Arc<TrackerCore>> {
    // No lock is held from here on (S5), and nobody else reclaims these (S4).
    let Some(first) = batch.first() else { return Vec::new() };
    let managers = session.managers(&first.dylib);
    let held = session.observers.is_heard().then(|| held_bytes(&managers, &batch));
    let mut failures: Vec<Vec<Error>> = batch.iter().map(|_| Vec::new()).collect();
    for manager in managers.iter().rev() {
        for (core, failed) in batch.iter().zip(&mut failures) {
            let dylib = JitDylib::from_inner(core.dylib.clone());
            // A manager that panics must not keep the others, or this removal, from coming to an end.
            let told = catch_unwind(AssertUnwindSafe(|| manager.remove_resources(&dylib, core.key())));
            failed.extend(told.unwrap_or_else(|panic| Err(panicked(&*panic))).err());
        }
    }
    let (mut freed, mut undecided) = (Vec::new(), Vec::new());
    for (number, (core, failed)) in batch.into_iter().zip(failures).enumerate() {
        let record = core.dylib.state.lock().forget_tracker(&core);
        drop(record);
        if core.gate.node().is_some() {
            let released = session.pins.lock().release(&core);
            freed.extend(released.freed);
            undecided.extend(released.undecided);
        }
        let is_answered = failed.is_empty() || answered.iter().any(|(other, _)| other.key() == core.key());
        let unheard = if is_answered { Vec::new() } else { failed.clone() };
        let failures = failed.len();
        core.gate.finish_reclaim(failed);
        if let Some(held) = &held {
            tell_reclaimed(&core, held[number], failures);
        }
        unheard.into_iter().for_each(|error| session.unheard.report(error));
    }
    if !undecided.is_empty() {
        let mut claimed = freed.iter().map(|core| core.key()).collect();
        freed.extend(claim(session, undecided, &mut claimed));
    }
    freed
}

/// What the managers hold under each tracker's key.
#[cold]
fn held_bytes(managers: &[Arc<dyn ResourceManager>], batch: &[Arc<TrackerCore>]) -> Box<[u64]> {
    let held = |manager: &Arc<dyn ResourceManager>, core: &TrackerCore| {
        catch_unwind(AssertUnwindSafe(|| manager.held_bytes(core.key()))).unwrap_or(0)
    };
    batch.iter().map(|core| managers.iter().map(|manager| held(manager, core)).sum()).collect()
}

#[cold]
fn tell_reclaimed(core: &TrackerCore, bytes: u64, failures: usize) {
    let (dylib, key) = (JitDylib::from_inner(core.dylib.clone()), core.key());
    dylib.observers().tell(&Event::Reclaimed { dylib: &dylib, key, bytes, failures });
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::other(format!("a resource manager panicked: {}", text.unwrap_or("it gave no reason")))
}
