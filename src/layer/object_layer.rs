//! [`ObjectLinkingLayer`]: turns objects into materialisation units, and owns the memory of finished links by key.
//!
//! | call | the object is linked |
//! |---|---|
//! | [`add`](ObjectLinkingLayer::add) | when one of its symbols is first looked up |
//! | [`link`](ObjectLinkingLayer::link) | at once, on the calling thread |
//!
//! A session with which the layer is [registered](ObjectLinkingLayer::register) frees the memory of a key when the key is
//! removed. The steps of a link are in `object_link.rs`.

use std::fmt;

use crate::base::ShardedArc;
use crate::error::Result;
use crate::host::{Executor, InProcess};
use crate::layer::emitted_graph;
use crate::layer::foreign_thread_locals::ForeignThreadLocals;
use crate::layer::hidden_names::HiddenNames;
use crate::layer::layer_inner::LayerInner;
use crate::layer::machine::LinkedMachine;
use crate::layer::memory_ledger::MemoryLedger;
use crate::layer::object_link::{Object, link_graph_now, link_now};
use crate::layer::plugin::LinkPlugin;
use crate::layer::plugins::Plugins;
use crate::layer::registered_sessions::RegisteredSessions;
use crate::layer::section_bounds::SectionBounds;
use crate::link::{BuiltGraph, ObjectBuffer, WrappedNames};
use crate::memory::{MemoryManager, MemoryUsage, Tenant};
use crate::session::{
    ExecutionSession, JitDylib, ManagerRank, MaterializationResponsibility, ResourceKey, ResourceTracker,
};
use crate::sync::Arc;

/// Links objects into dylibs (ORC: `ObjectLinkingLayer`). [Register](Self::register) it with the session.
///
/// [`Jit::layer`](crate::Jit::layer) is the layer of a session with all services. The example uses a session with this layer
/// only: it links code, and runs no initialisers.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// use std::sync::Arc;
///
/// use jittison::ExecutionSession;
/// use jittison::layer::ObjectLinkingLayer;
/// use jittison::memory::{SlabPool, SlabPoolOptions};
///
/// # fn main() -> Result<(), jittison::Error> {
/// let session = ExecutionSession::new();
/// let layer = ObjectLinkingLayer::new(Arc::new(SlabPool::new(SlabPoolOptions::default())?));
/// layer.register(&session);
///
/// let dylib = session.create_dylib("main")?;
/// let tracker = dylib.create_tracker()?;
/// layer.add(&tracker, "add.o", ADD.into())?;
/// let add = dylib.lookup_address("add")?; // Links the object.
/// assert!(!add.is_null());
/// assert!(layer.usage(tracker.key()).code > 0);
///
/// tracker.remove()?; // The session calls the layer, which frees the memory.
/// assert_eq!(layer.key_count(), 0);
/// session.end()?;
/// # Ok(()) }
/// ```
pub struct ObjectLinkingLayer {
    /// Also owned by each added object until it is linked, and by each link that waits.
    inner: ShardedArc<LayerInner>,
}

impl ObjectLinkingLayer {
    /// Makes a layer that allocates from `memory`.
    pub fn new(memory: Arc<dyn MemoryManager>) -> Arc<ObjectLinkingLayer> {
        ObjectLinkingLayer::with_executor(memory, Arc::new(InProcess), &[])
    }

    /// As [`new`](Self::new), for code that runs in the process behind `executor`, with [wrapped](crate::JitBuilder::wrap)
    /// symbols.
    pub(crate) fn with_executor(
        memory: Arc<dyn MemoryManager>,
        executor: Arc<dyn Executor>,
        wrapped: &[String],
    ) -> Arc<ObjectLinkingLayer> {
        let inner = LayerInner {
            machine: LinkedMachine::new(memory.can_run(), executor.arch()),
            keeps_large_sections: !memory.has_large_sections(),
            memory,
            executor,
            foreign_thread_locals: ForeignThreadLocals::new(),
            plugins: Plugins::new(),
            ledger: MemoryLedger::new(),
            section_bounds: SectionBounds::new(),
            hidden_names: HiddenNames::new(),
            sessions: RegisteredSessions::new(),
            wrapped: WrappedNames::new(wrapped),
        };
        Arc::new(ObjectLinkingLayer { inner: ShardedArc::new(inner) })
    }

    /// Registers the layer with a session. From now on the session frees the code of a tracker when it reclaims the tracker,
    /// after all other managers have released what refers to the code. A second call does nothing.
    ///
    /// A layer that is not registered keeps all code in memory, also after it is dropped.
    pub fn register(&self, session: &ExecutionSession) {
        self.inner.sessions.add(session);
        session.register_ranked(ManagerRank::CodeMemory, self.inner.inner().clone());
    }

    /// Adds a plugin. It takes part in all links that begin from now on.
    pub fn add_plugin(&self, plugin: Arc<dyn LinkPlugin>) {
        self.inner.plugins.add(plugin);
    }

    /// Removes a plugin. It takes no part in links that begin from now on. Returns false if it was not added.
    pub fn remove_plugin(&self, plugin: &Arc<dyn LinkPlugin>) -> bool {
        self.inner.plugins.remove(plugin)
    }

    /// Adds an object under a tracker. It is linked when one of its symbols is looked up.
    ///
    /// # Errors
    /// The bytes are no object that can be linked, one of its strong symbols is already defined, the tracker is defunct, or the
    /// layer is registered with other sessions and not with the session of the tracker. In these cases nothing is added.
    pub fn add(&self, tracker: &ResourceTracker, name: &str, bytes: ObjectBuffer) -> Result<()> {
        self.add_without(tracker, name, bytes, |_| false)
    }

    /// As [`add`](Self::add), but ignores the definitions for whose names `is_excluded` returns true. References of the object
    /// to these names are looked up, as if the object did not define them.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_without(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        bytes: ObjectBuffer,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.inner.sessions.check(tracker.dylib_handle())?;
        let name: Arc<str> = Arc::from(name);
        let read = Object::read(tracker, self.inner.shard(), Arc::clone(&name), bytes, is_excluded);
        let unit = read.inspect_err(|error| {
            let dylib = tracker.dylib_handle();
            dylib.observers().deliver_refused(dylib.inner(), &name, error);
        })?;
        tracker.define_with_absolute(unit)
    }

    /// Adds an object under a tracker and links it at once, on the calling thread. When this returns, all its definitions are
    /// ready. Weak definitions are treated as by [`add`](Self::add). What the object refers to is linked too, and this call
    /// waits for it.
    ///
    /// # Errors
    /// As [`add`](Self::add). If the link fails: the error of a lookup of its symbols. Then its names are free again, and its
    /// memory is freed, at once or with the tracker.
    pub fn link(&self, tracker: &ResourceTracker, name: &str, bytes: ObjectBuffer) -> Result<()> {
        self.inner.sessions.check(tracker.dylib_handle())?;
        link_now(&self.inner, tracker, name, bytes)
    }

    /// Adds a graph under a tracker. It is linked when one of its symbols is looked up.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_graph(&self, tracker: &ResourceTracker, graph: BuiltGraph) -> Result<()> {
        self.add_graph_without(tracker, graph, |_| false)
    }

    /// As [`add_graph`](Self::add_graph), but ignores definitions, as [`add_without`](Self::add_without) does.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_graph_without(
        &self,
        tracker: &ResourceTracker,
        graph: BuiltGraph,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.inner.sessions.check(tracker.dylib_handle())?;
        tracker.define_with_absolute(Object::of_graph(tracker, self.inner.shard(), graph, is_excluded)?)
    }

    /// Adds a graph under a tracker and links it at once, as [`link`](Self::link) does with an object.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_graph(&self, tracker: &ResourceTracker, graph: BuiltGraph) -> Result<()> {
        self.inner.sessions.check(tracker.dylib_handle())?;
        link_graph_now(&self.inner, tracker, graph)
    }

    /// Links the graph of a [`MaterializationUnit`](crate::session::MaterializationUnit) that makes it when one of its symbols
    /// is looked up (ORC: `emit`). The graph defines the symbols of `responsibility`. What it defines beyond them is claimed
    /// for the same tracker.
    ///
    /// A failure reaches lookups through the symbols: the graph lacks one of them or has a COMDAT group, another of its
    /// symbols is defined elsewhere, or its link fails.
    pub fn emit_graph(&self, responsibility: MaterializationResponsibility, graph: BuiltGraph) {
        match self.inner.sessions.check(responsibility.dylib_handle()) {
            Ok(()) => emitted_graph::emit(&self.inner, responsibility, graph),
            Err(error) => responsibility.fail(error),
        }
    }

    /// As [`emit_graph`](Self::emit_graph), for an object. `name` is its name in errors and maps.
    pub fn emit_object(&self, responsibility: MaterializationResponsibility, name: &str, bytes: ObjectBuffer) {
        match self.inner.sessions.check(responsibility.dylib_handle()) {
            Ok(()) => emitted_graph::emit_object(&self.inner, responsibility, name, bytes),
            Err(error) => responsibility.fail(error),
        }
    }

    /// Memory of the code under a key, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.inner.ledger.usage(key)
    }

    /// Memory of the code of a dylib, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.inner.ledger.usage_of_dylib(dylib)
    }

    /// Where each module is, for a map of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.inner.ledger.tenants()
    }

    /// The start and the size of the code of each module under a key.
    #[cfg(feature = "reload")]
    pub(crate) fn code_of(&self, key: ResourceKey) -> Vec<(crate::base::ExecutorAddr, u64)> {
        self.inner.ledger.code_of(key)
    }

    /// The memory manager.
    pub fn memory(&self) -> &Arc<dyn MemoryManager> {
        &self.inner.memory
    }

    /// The name under which an undefined reference of an object to `name` is looked up: another one if `name` is
    /// [wrapped](crate::JitBuilder::wrap), or the `__real_` name of a wrapped symbol.
    pub fn name_of_reference<'a>(&'a self, name: &'a str) -> &'a str {
        self.inner.wrapped.as_ref().map_or(name, |wrapped| wrapped.of_reference(name))
    }

    /// Number of keys that own memory.
    pub fn key_count(&self) -> usize {
        self.inner.ledger.key_count()
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object linking layer with {} keys", self.key_count())
    }
}
