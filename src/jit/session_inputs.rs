//! [`SessionInputs`]: a manager that keeps what was added to a session, by key, so that it can be linked again elsewhere.

use crate::error::Result;
use crate::link::{Archive, ObjectBuffer};
use crate::session::{JitDylib, Ledger, ResourceKey, ResourceManager, ResourceTracker, TrackerWatch};
use crate::sync::{Arc, AtomicU64, Ordering};

/// What was added to a session and was not removed.
pub struct SessionInputs {
    objects: Ledger<SessionInput>,
    next_number: AtomicU64,
}

/// An object, or an archive, that was added.
#[derive(Clone)]
#[cfg_attr(not(feature = "executor"), allow(dead_code))]
pub struct SessionInput {
    /// Ascends in the order of the additions.
    pub number: u64,
    pub name: Arc<str>,
    pub source: InputSource,
    /// A tracker that was removed may keep its resources for long.
    pub tracker: TrackerWatch,
}

#[derive(Clone)]
#[cfg_attr(not(feature = "executor"), allow(dead_code))]
pub enum InputSource {
    Object(ObjectBuffer),
    WholeArchive(Arc<Archive>),
}

impl InputSource {
    /// The bytes of an object. They are shared, and not copied.
    pub fn object(bytes: &ObjectBuffer) -> InputSource {
        InputSource::Object(bytes.clone())
    }
}

impl SessionInputs {
    #[cfg_attr(not(feature = "executor"), allow(dead_code))]
    pub fn new() -> SessionInputs {
        SessionInputs { objects: Ledger::new(), next_number: AtomicU64::new(0) }
    }

    /// Records what was added under a tracker. Does nothing if the tracker was removed meanwhile.
    #[cold]
    pub fn record(&self, tracker: &ResourceTracker, name: &str, source: InputSource) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let input = SessionInput { number, name: name.into(), source, tracker: tracker.watch() };
        let _ = tracker.with_resource_key(|key| self.objects.record(key, input));
    }

    /// What live trackers have, in the order of the additions.
    #[cfg(feature = "executor")]
    pub fn live(&self) -> Vec<(ResourceKey, SessionInput)> {
        let mut all = self.objects.copied();
        all.retain(|(_, input)| input.tracker.is_live());
        all.sort_by_key(|(_, input)| input.number);
        all
    }
}

impl ResourceManager for SessionInputs {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        drop(self.objects.take(key));
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.objects.transfer(destination, source);
    }
}
