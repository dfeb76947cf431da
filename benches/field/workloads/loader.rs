//! [`Loader`]: what can be measured of whoever makes functions of objects and takes them back, be it a JIT linker or the system's
//! loader.

use std::time::{Duration, Instant};

use jittison::base::ExecutorAddr;
use jittison::{ErrorKind, ResourceTracker};

use super::cancel::Cancel;
use super::corpus::Instance;
use super::host::House;
use crate::scenario::words;

pub trait Loader: Sync {
    /// What a compiler leaves: made when nobody measures.
    type Ready;
    /// What is taken back.
    type Loaded: Send;

    fn ready(&self, instance: Instance) -> Result<Self::Ready, String>;

    /// Links it; the address of its entry.
    fn load(&self, ready: &Self::Ready) -> Result<(ExecutorAddr, Self::Loaded), String>;

    fn unload(&self, loaded: Self::Loaded) -> Result<(), String>;

    /// Begins to load it and gives up, before the link or in its midst; how long that took. None if it cannot.
    fn cancel(&self, ready: &Self::Ready, in_its_midst: bool) -> Result<Option<Duration>, String>;

    /// Fails to load it, since it needs what is nowhere; how long that took.
    fn refuse(&self, ready: &Self::Ready) -> Result<Duration, String>;
}

impl Loader for House {
    type Ready = Instance;
    type Loaded = ResourceTracker;

    fn ready(&self, instance: Instance) -> Result<Instance, String> {
        Ok(instance)
    }

    fn load(&self, ready: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
        self.link(ready).map_err(words)
    }

    fn unload(&self, loaded: ResourceTracker) -> Result<(), String> {
        let removal = loaded.remove().map_err(words)?;
        came(removal.is_complete(), "the end of a removal that nothing is in the way of")
    }

    fn cancel(&self, ready: &Instance, in_its_midst: bool) -> Result<Option<Duration>, String> {
        let tracker = self.add(ready).map_err(words)?;
        let start = Instant::now();
        match in_its_midst {
            true => Cancel::next(&tracker),
            false => drop(tracker.remove().map_err(words)?),
        }
        let found = self.dylib.lookup_address(&ready.entry);
        let removal = tracker.remove().map_err(words)?;
        let took = start.elapsed();
        came(found.is_err(), "the error of a lookup of what was cancelled")?;
        came(removal.is_complete(), "the end of a removal of what was cancelled")?;
        Ok(Some(took))
    }

    fn refuse(&self, ready: &Instance) -> Result<Duration, String> {
        let start = Instant::now();
        let tracker = self.add(ready).map_err(words)?;
        let found = self.dylib.lookup_address(&ready.entry);
        let removal = tracker.remove().map_err(words)?;
        let took = start.elapsed();
        let Err(error) = found else { return Err("a link with a missing symbol succeeded".into()) };
        let is_it = matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. });
        is_it.then_some(()).ok_or_else(|| format!("not the error of a missing symbol: {error}"))?;
        came(removal.is_complete(), "the end of a removal of what could not be linked")?;
        Ok(took)
    }
}

fn came(did_come: bool, what: &str) -> Result<(), String> {
    did_come.then_some(()).ok_or_else(|| format!("this did not come: {what}"))
}
