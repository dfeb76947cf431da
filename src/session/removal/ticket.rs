//! [`Removal`]: the ticket of a removal. It says whether the removal is complete, what blocks it, and lets a caller wait.
//!
//! [`BlockingGuard`] describes a guard or a call that blocks it.

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::sort_by_order;
use crate::error::{Result, SHOWN, listed_with};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::pins::calls::host_calls;
use crate::session::pins::dependants::newest_first;
use crate::session::pins::guards::EpochRecord;
use crate::session::removal::reclaim::{self, DeferredTrackers};
use crate::session::types::ids::ResourceKey;
use crate::sync::Arc;

/// The ticket of a removal: whether it is complete, and what blocks it.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", ADD)?;
/// // SAFETY: `add` has this signature, and the object may run.
/// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
///
/// let removal = tracker.remove()?;
/// assert!(!removal.is_complete());
/// assert_eq!(removal.blockers(), (1, 0)); // One handle, no dependent tracker.
/// removal.on_complete(|outcome| println!("freed: {}", outcome.is_ok()));
/// drop(add);
/// removal.wait()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Removal {
    core: Arc<TrackerCore>,
}

impl Removal {
    pub(crate) fn new(core: Arc<TrackerCore>) -> Removal {
        Removal { core }
    }

    /// The ticket. If the removal is complete and managers have failed, their errors instead.
    pub(crate) fn finished_or_pending(core: Arc<TrackerCore>) -> Result<Removal> {
        core.state.outcome()?;
        Ok(Removal { core })
    }

    /// Whether all resources are released.
    pub fn is_complete(&self) -> bool {
        self.core.state.is_reclaimed()
    }

    /// The dylib of the removed tracker.
    pub fn dylib(&self) -> JitDylib {
        self.core.handle.clone()
    }

    /// The key of the removed tracker.
    pub fn key(&self) -> ResourceKey {
        self.core.key()
    }

    /// The numbers of `(owned handles, dependent trackers)` that hold the resources. `(0, 0)` once complete. The handles are
    /// all [`Pin`](crate::session::Pin)s, including revocable ones.
    pub fn blockers(&self) -> (usize, usize) {
        // After `remove_now` there may be pins left, and they block nothing.
        if self.is_complete() { (0, 0) } else { self.core.holders() }
    }

    /// The execution guards that block the release: those that were entered before the symbols were unpublished and are not
    /// left. For a replaced version, also the calls that were entered before it was replaced.
    pub fn guards(&self) -> Vec<BlockingGuard> {
        self.core.dylib().session.blocking_guards(&self.core)
    }

    /// The code memory that the removed tracker still holds, in bytes, with padding and records: the sum of what the managers
    /// [hold](crate::session::ResourceManager::held_bytes). Zero once complete. A manager that panics counts as zero, and the
    /// error reporter gets the panic.
    pub fn bytes(&self) -> u64 {
        let managers = self.core.dylib().session.managers(self.core.dylib());
        reclaim::held_bytes(&managers, &self.core)
    }

    /// The time since the removal. `None` once complete, or if nothing ever blocked it.
    pub fn age(&self) -> Option<Duration> {
        self.core.state.removed_since().map(|since| since.elapsed())
    }

    /// Texts for what blocks the removal, one each: the number of owned handles, the dependent trackers, the reasons of
    /// revocable pins (such as a thread with pending destructors), and the guards with their threads. Empty once complete.
    pub fn obstacles(&self) -> Vec<String> {
        self.first_obstacles(usize::MAX).0
    }

    /// The first `limit` of the [`obstacles`](Self::obstacles), and the number of the others. Costs no more than these, whatever
    /// the number of dependants.
    pub(crate) fn first_obstacles(&self, limit: usize) -> (Vec<String>, usize) {
        let state = &self.core.state;
        if state.is_reclaimed() {
            return (Vec::new(), 0);
        }
        let mut obstacles = Vec::new();
        let handles = state.pins().0.saturating_sub(state.revocable_pins());
        match handles.saturating_add_signed(self.core.extra_handles()) {
            0 => {}
            1 => obstacles.push("an owned handle".to_string()),
            handles => obstacles.push(format!("{handles} owned handles")),
        }
        let session = &self.core.dylib().session;
        let (mut dependants, dependant_count) = match state.has_dependants() {
            true => session.pins.first_dependents(&self.core, limit.saturating_sub(obstacles.len())),
            false => (Vec::new(), 0),
        };
        newest_first(&mut dependants);
        let name =
            |core: &Arc<TrackerCore>| format!("{} of `{}`, whose code refers to it", core.key(), core.dylib().name);
        let mut count = obstacles.len() + dependant_count;
        obstacles.extend(dependants.iter().rev().map(name));
        // The list of reasons is that of the session, so it is searched only for a tracker that has some.
        let reasons = match state.revocable_pins() {
            0 => Vec::new(),
            _ => session.revocable_pins.reasons_of(&self.core),
        };
        let others = [reasons, self.guards().iter().map(BlockingGuard::to_string).collect()];
        for others in others {
            count += others.len();
            let free = limit.saturating_sub(obstacles.len());
            obstacles.extend(others.into_iter().take(free));
        }
        let more = count - obstacles.len();
        (obstacles, more)
    }

    /// The [`obstacles`](Self::obstacles) as a short text: the first ones, and the number of the others.
    pub(crate) fn described_obstacles(&self) -> String {
        let (obstacles, more) = self.first_obstacles(SHOWN);
        listed_with(&obstacles, more)
    }

    /// Waits until all resources are released. Returns what the managers reported.
    ///
    /// Never returns if the calling thread holds a pin, is inside a guard that blocks the removal, or is a manager that is
    /// asked to release the resources. Check
    /// [`obstacles`](Self::obstacles) first, or wait with a [deadline](Self::wait_until).
    ///
    /// # Errors
    /// The errors of the managers, joined.
    pub fn wait(&self) -> Result<()> {
        self.core.state.wait_reclaimed(None);
        self.core.state.outcome()
    }

    /// Like [`wait`](Self::wait), until `deadline`. Returns false if the removal was not complete then.
    ///
    /// # Errors
    /// The errors of the managers, joined.
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        let is_complete = self.core.state.wait_reclaimed(Some(deadline));
        self.core.state.outcome()?;
        Ok(is_complete)
    }

    /// Calls `body` with the result of the managers when all resources are released. If they are released already, it is called
    /// now. Otherwise the thread that releases them calls it with no lock held, and a panic in it goes to the session's
    /// [error reporter](crate::session::SessionOptions::error_reporter).
    pub fn on_complete(&self, body: impl FnOnce(Result<()>) + Send + 'static) {
        if let Some(body) = self.core.state.when_reclaimed(Box::new(body)) {
            body(self.core.state.outcome());
        }
    }
}

/// A guard or a call that blocks a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingGuard {
    /// Whether it is a call of linked code. A call blocks replaced versions only.
    pub is_call: bool,
    /// The thread inside the guard: the system's thread id, and the system's name, which has up to 15 bytes.
    pub thread: Arc<str>,
    /// How long the removal has waited for it.
    pub blocking_for: Duration,
}

impl SessionInner {
    /// The guards and calls that block a tracker, sorted by thread.
    fn blocking_guards(&self, core: &TrackerCore) -> Vec<BlockingGuard> {
        let domains = [Some(&self.guards), Some(&self.calls.domain), host_calls()];
        let awaited = domains
            .into_iter()
            .flatten()
            .flat_map(|domain| domain.blocking(|waiting| DeferredTrackers::contain(waiting, core)));
        let blocking = |(record, since): (&'static EpochRecord, Instant)| BlockingGuard {
            is_call: !self.guards.owns(record),
            thread: record.thread(),
            blocking_for: since.elapsed(),
        };
        let mut found: Vec<_> = awaited.map(blocking).collect();
        sort_by_order(&mut found, |a, b| a.thread.cmp(&b.thread));
        found
    }
}

impl fmt::Display for BlockingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_call { "a call" } else { "a guard" };
        write!(f, "{what} of {}, for {:.1?}", self.thread, self.blocking_for)
    }
}

impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_complete() {
            true => write!(f, "removal of {}: complete", self.core.key()),
            false => write!(f, "removal of {}: held by {}", self.core.key(), self.described_obstacles()),
        }
    }
}
