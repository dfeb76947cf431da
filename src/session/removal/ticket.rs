//! [`Removal`]: the ticket that tells when a removal is done, and who is in the way until then.

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::pins::guards::BlockingGuard;
use crate::session::removal::reclaim::{self, newest_first};
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
        core.gate.outcome()?;
        Ok(Removal { core })
    }

    /// Whether every resource has been given back.
    pub fn is_complete(&self) -> bool {
        self.core.gate.is_reclaimed()
    }

    /// The dylib that the tracker was of.
    pub fn dylib(&self) -> JitDylib {
        self.core.handle.clone()
    }

    /// The removed tracker's key.
    pub fn key(&self) -> ResourceKey {
        self.core.key()
    }

    /// `(owned handles, dependent trackers)` that keep the resources; `(0, 0)` once complete. Handles are all
    /// [`Pin`](crate::session::Pin)s, the standing ones included.
    pub fn blockers(&self) -> (usize, usize) {
        // What is left of them after a removal that asked nobody is in nobody's way.
        if self.is_complete() { (0, 0) } else { self.core.dylib().session.pins.holders(&self.core) }
    }

    /// The execution guards that keep the resources: those that were entered before the names had gone, and are not left. Of a
    /// replaced version also the calls that were entered before it was replaced.
    pub fn guards(&self) -> Vec<BlockingGuard> {
        self.core.dylib().session.in_the_way_of(&self.core)
    }

    /// How much code memory the removed tracker still holds, with padding and records, by the sum of what the managers
    /// [hold](crate::session::ResourceManager::held_bytes). Zero once complete. A manager that panics counts for nothing, and the
    /// error reporter is told.
    pub fn bytes(&self) -> u64 {
        let managers = self.core.dylib().session.managers(self.core.dylib());
        reclaim::held_bytes(&managers, &self.core)
    }

    /// How long ago the tracker was removed; `None` once complete, or if nothing was in the way.
    pub fn age(&self) -> Option<Duration> {
        self.core.gate.leaving_since().map(|since| since.elapsed())
    }

    /// Who is in the way, in words, one line for each: how many owned handles, which trackers, and what each standing pin
    /// says, such as a thread that owes destructors; and which threads' guards. Empty once complete.
    pub fn obstacles(&self) -> Vec<String> {
        let gate = &self.core.gate;
        if gate.is_reclaimed() {
            return Vec::new();
        }
        let mut obstacles = Vec::new();
        match gate.pins().0.saturating_sub(gate.standing_pins()) {
            0 => {}
            1 => obstacles.push("an owned handle".to_string()),
            handles => obstacles.push(format!("{handles} owned handles")),
        }
        let session = &self.core.dylib().session;
        let mut dependants = session.pins.lock().dependents(&self.core);
        newest_first(&mut dependants);
        let name =
            |core: &Arc<TrackerCore>| format!("{} of `{}`, whose code refers to it", core.key(), core.dylib().name);
        obstacles.extend(dependants.iter().rev().map(name));
        obstacles.extend(session.standing.of(&self.core));
        obstacles.extend(self.guards().iter().map(BlockingGuard::to_string));
        obstacles
    }

    /// Waits until every resource has been given back, and says what the managers reported.
    ///
    /// Never returns if the calling thread itself holds a pin, or is inside a guard that is in the way: ask
    /// [`obstacles`](Self::obstacles) first, or set a [deadline](Self::wait_until).
    ///
    /// # Errors
    /// What managers reported, joined.
    pub fn wait(&self) -> Result<()> {
        self.core.gate.wait_reclaimed(None);
        self.core.gate.outcome()
    }

    /// As [`wait`](Self::wait), until `deadline` at the latest. False when something was still in the way then.
    ///
    /// # Errors
    /// What managers reported, joined.
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        let is_complete = self.core.gate.wait_reclaimed(Some(deadline));
        self.core.gate.outcome()?;
        Ok(is_complete)
    }

    /// Has `body` called when every resource has been given back, with what the managers reported: now if that is so
    /// already, and otherwise on the thread that gives them back, with no lock held. A panic in it goes to the session's
    /// [error reporter](crate::session::SessionOptions::error_reporter) then.
    pub fn on_complete(&self, body: impl FnOnce(Result<()>) + Send + 'static) {
        if let Some(body) = self.core.gate.when_reclaimed(Box::new(body)) {
            body(self.core.gate.outcome());
        }
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
