//! [`Loader`]: the interface of a linker or loader in the workloads, a JIT linker or the system's loader.

use std::time::{Duration, Instant};

use jittison::base::ExecutorAddr;
use jittison::{ErrorKind, ResourceTracker};

use super::cancel::Cancel;
use super::corpus::Instance;
use super::host::HostSession;
use crate::measure::scenario::to_text;

pub trait Loader: Sync {
    /// The output of a compiler, in the form that the loader takes; prepared outside the clock.
    type Ready;
    /// A loaded module, which can be unloaded.
    type Loaded: Send;

    fn ready(&self, instance: Instance) -> Result<Self::Ready, String>;

    /// Links it, and returns the address of its entry.
    fn load(&self, ready: &Self::Ready) -> Result<(ExecutorAddr, Self::Loaded), String>;

    fn unload(&self, loaded: Self::Loaded) -> Result<(), String>;

    /// Begins to load it and cancels, before the link or half-way through it. Returns how long that took; `None` if
    /// the loader cannot cancel.
    fn cancel(&self, ready: &Self::Ready, half_way: bool) -> Result<Option<Duration>, String>;

    /// Fails to load it, because a symbol is missing. Returns how long that took.
    fn reject(&self, ready: &Self::Ready) -> Result<Duration, String>;
}

impl Loader for HostSession {
    type Ready = Instance;
    type Loaded = ResourceTracker;

    fn ready(&self, instance: Instance) -> Result<Instance, String> {
        Ok(instance)
    }

    fn load(&self, ready: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
        self.link(ready).map_err(to_text)
    }

    fn unload(&self, loaded: ResourceTracker) -> Result<(), String> {
        let removal = loaded.remove().map_err(to_text)?;
        require(removal.is_complete(), "a removal without obstacles is complete")
    }

    fn cancel(&self, ready: &Instance, half_way: bool) -> Result<Option<Duration>, String> {
        let tracker = self.add(ready).map_err(to_text)?;
        let start = Instant::now();
        match half_way {
            true => Cancel::next(&tracker),
            false => drop(tracker.remove().map_err(to_text)?),
        }
        let found = self.dylib.lookup_address(&ready.entry);
        let removal = tracker.remove().map_err(to_text)?;
        let duration = start.elapsed();
        require(found.is_err(), "a lookup of a cancelled module fails")?;
        require(removal.is_complete(), "the removal of a cancelled module is complete")?;
        Ok(Some(duration))
    }

    fn reject(&self, ready: &Instance) -> Result<Duration, String> {
        let start = Instant::now();
        let tracker = self.add(ready).map_err(to_text)?;
        let found = self.dylib.lookup_address(&ready.entry);
        let removal = tracker.remove().map_err(to_text)?;
        let duration = start.elapsed();
        let Err(error) = found else { return Err("a link with a missing symbol succeeded".into()) };
        let matches = matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. });
        matches.then_some(()).ok_or_else(|| format!("unexpected error for a missing symbol: {error}"))?;
        require(removal.is_complete(), "the removal of a module that could not be linked is complete")?;
        Ok(duration)
    }
}

fn require(holds: bool, promise: &str) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| format!("this does not hold: {promise}"))
}
