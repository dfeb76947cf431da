//! [`ObjectLinkingLayer`]: object → materialisation. Its ledger holds the memory of every finished link, by key.

use std::fmt;

use crate::base::ShardedArc;
use crate::error::Result;
use crate::layer::memory_ledger::{HasMemory, MemoryLedger};
use crate::layer::object_link::{Object, ObjectUnit, link_at_once};
use crate::layer::plugin::LinkPlugin;
use crate::layer::plugins::Plugins;
use crate::layer::section_bounds::{Registration, SectionBounds};
use crate::layer::thread_locals::ThreadLocals;
use crate::link::ObjectBuffer;
use crate::memory::{Finalized, MemoryManager, MemoryUsage, Tenant};
use crate::session::{JitDylib, ResourceKey, ResourceManager, ResourceTracker};
use crate::sync::Arc;

/// Links objects into dylibs (ORC: `ObjectLinkingLayer`). Register it with the session as a [`ResourceManager`], before
/// anything that is built upon it.
pub struct ObjectLinkingLayer {
    /// Held by each object that is added, until it is linked, and by each link that waits.
    inner: ShardedArc<LayerInner>,
}

pub(super) struct LayerInner {
    pub(super) memory: Arc<dyn MemoryManager>,
    pub(super) plugins: Plugins,
    pub(super) held: MemoryLedger<Module>,
    pub(super) section_bounds: Arc<SectionBounds>,
}

/// A linked object: 40 bytes that are held for each.
pub(super) struct Module {
    pub(super) memory: Box<dyn Finalized>,
    /// What few objects have.
    pub(super) _extras: Option<Box<Extras>>,
    /// The object's, shared with whoever else knows it.
    pub(super) name: Arc<str>,
}

/// What few linked objects have.
pub(super) struct Extras {
    /// The block of thread-local variables.
    pub(super) _thread_locals: Option<Box<ThreadLocals>>,
    /// Sections that may be asked for their bounds.
    pub(super) _section_bounds: Option<Box<Registration>>,
}

impl HasMemory for Module {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl ObjectLinkingLayer {
    /// A layer that takes its memory from `memory`.
    pub fn new(memory: Arc<dyn MemoryManager>) -> Arc<ObjectLinkingLayer> {
        let inner = LayerInner {
            memory,
            plugins: Plugins::new(),
            held: MemoryLedger::new(),
            section_bounds: SectionBounds::new(),
        };
        Arc::new(ObjectLinkingLayer { inner: ShardedArc::new(inner) })
    }

    /// Has `plugin` take part in all links that begin from now on.
    pub fn add_plugin(&self, plugin: Arc<dyn LinkPlugin>) {
        self.inner.plugins.add(plugin);
    }

    /// Takes a plugin out again: links that begin from now on do not see it. False when it is not there.
    pub fn remove_plugin(&self, plugin: &Arc<dyn LinkPlugin>) -> bool {
        self.inner.plugins.remove(plugin)
    }

    /// Adds an object under a tracker. It is linked when one of its symbols is looked for.
    ///
    /// # Errors
    /// When the bytes are no object that can be linked, a strong symbol of it is defined already, or the tracker is
    /// defunct; nothing was added then.
    pub fn add(&self, tracker: &ResourceTracker, name: &str, bytes: ObjectBuffer) -> Result<()> {
        self.add_without(tracker, name, bytes, |_| false)
    }

    /// As [`add`](Self::add), without those of its definitions that are `left_out`: what the object refers to by these names
    /// is looked up, as if it defined none.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_without(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        bytes: ObjectBuffer,
        left_out: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let name = Arc::from(name);
        let read = Object::read(tracker, &name, &self.inner.section_bounds, bytes, left_out);
        let (object, symbols) = read.inspect_err(|error| {
            let dylib = tracker.dylib_handle();
            dylib.observers().tell_refused(dylib.inner(), &name, error);
        })?;
        tracker.define(ObjectUnit { layer: self.inner.share(), name, object, symbols })
    }

    /// Adds an object under a tracker and links it at once, on this thread: when this returns, all that it defines is ready.
    /// Weak definitions count as in [`add`](Self::add); what the object refers to is linked too, and waited for.
    ///
    /// # Errors
    /// As [`add`](Self::add); and what a lookup of its symbols would say, when it cannot be linked. Its names are free again
    /// then, and its memory is given back, now or with the tracker.
    pub fn link(&self, tracker: &ResourceTracker, name: &str, bytes: ObjectBuffer) -> Result<()> {
        link_at_once(&self.inner, tracker, name, bytes)
    }

    /// What the code under a key holds, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.inner.held.usage(key)
    }

    /// What the code of a dylib holds, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.inner.held.usage_of_dylib(dylib)
    }

    /// Which modules live where, for a picture of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.inner.held.tenants()
    }

    /// The memory manager.
    pub fn memory(&self) -> &Arc<dyn MemoryManager> {
        &self.inner.memory
    }

    /// Number of keys under which memory is held.
    pub fn key_count(&self) -> usize {
        self.inner.held.key_count()
    }
}

impl ResourceManager for ObjectLinkingLayer {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        // Dropping gives the memory back, the last linked first.
        self.inner.held.take(key).rev().for_each(drop);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.inner.held.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.usage(key).total()
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object linking layer with {} keys", self.key_count())
    }
}
