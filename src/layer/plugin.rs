//! [`LinkPlugin`]: the seam by which services see every link.

use crate::error::Result;
use crate::link::{LinkGraph, LinkedObject};
use crate::session::{JitDylib, ResourceKey, SymbolWatch};
use crate::sync::Arc;

/// A service that takes part in links (ORC: `ObjectLinkingLayer::Plugin`).
pub trait LinkPlugin: Send + Sync {
    /// A link begins. The hooks are dropped if it fails.
    fn begin(&self, origin: &LinkOrigin) -> Box<dyn LinkHooks>;
}

/// What a plugin does in one link.
pub trait LinkHooks: Send {
    /// The graph is read and claimed; nothing is laid out. Blocks may be added, externals defined, and weak definitions
    /// made for others to see ([`LinkGraph::add_weak`]).
    ///
    /// # Errors
    /// Fails the link.
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// The code is in place and about to be emitted: record what belongs to `key`.
    ///
    /// Called inside `with_resource_key`: keep books only, and do not call back into the session.
    fn record(self: Box<Self>, key: ResourceKey, linked: &LinkedObject) {
        let _ = (key, linked);
    }
}

/// Which object is linked, and into what.
#[derive(Debug)]
pub struct LinkOrigin {
    /// What the object is called.
    pub object: Arc<str>,
    /// Position of the object among all that were added.
    pub sequence: u64,
    /// The dylib.
    pub dylib: JitDylib,
    /// Tells later whether the object's code is ready; keeps nothing alive.
    pub watch: SymbolWatch,
}
