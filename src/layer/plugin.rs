//! [`LinkPlugin`]: the seam by which services see every link.

use std::fmt;

use crate::error::Result;
use crate::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use crate::session::{JitDylib, MaterializationResponsibility, ResourceKey, SymbolWatch, TrackerWatch};
use crate::sync::Arc;

/// A service that takes part in links (ORC: `ObjectLinkingLayer::Plugin`).
pub trait LinkPlugin: Send + Sync {
    /// A link begins: its object is about to be read. The hooks are dropped if it fails.
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        let _ = origin;
        None
    }

    /// The graph is read and claimed, as in [`LinkHooks::prepare`]: the time to take part for a plugin that did not
    /// [begin](Self::begin) with the link, as what it does depends on what is in the object. What it does to the graph it
    /// does here: its hooks are not asked to prepare. Links that do not concern it cost next to nothing.
    ///
    /// # Errors
    /// Fails the link.
    fn join(&self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<Option<Box<dyn LinkHooks>>> {
        let _ = (origin, graph);
        Ok(None)
    }
}

/// What a plugin does in one link, in the order of its phases (ORC: the passes of a `PassConfiguration`; the names there are,
/// from `prepare` on: pre-prune, post-prune, post-allocation, pre-fixup, post-fixup).
pub trait LinkHooks: Send {
    /// The graph is read and claimed; nothing is dropped or laid out. Blocks may be added, externals defined, and weak definitions
    /// made for others to see ([`LinkGraph::add_weak`]).
    ///
    /// # Errors
    /// Fails the link.
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// What nothing leads to is gone, and was not laid out. The last chance to change the graph.
    ///
    /// # Errors
    /// Fails the link.
    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// The object has its memory: the addresses of its own definitions are final, and not yet known to others.
    ///
    /// # Errors
    /// Fails the link.
    fn placed(&mut self, link: &PlacedLink) -> Result<()> {
        let _ = link;
        Ok(())
    }

    /// The externals were found, in the order of [`PlacedLink::externals`]. What is changed here is what the code will be
    /// bound to.
    ///
    /// # Errors
    /// Fails the link.
    fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        let _ = (link, found);
        Ok(())
    }

    /// The bytes are in place and every relocation is applied; nothing is sealed. Bytes may be changed.
    ///
    /// # Errors
    /// Fails the link.
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        let _ = link;
        Ok(())
    }

    /// The code is in place and about to be emitted: record what belongs to `key`.
    ///
    /// Called inside `with_resource_key`: keep books only, and do not call back into the session.
    fn record(self: Box<Self>, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        let _ = (key, origin, linked);
    }
}

/// Which object is linked, and into what. It is asked, as most plugins need little of it in most links, and what outlives the
/// link has to be counted.
pub struct LinkOrigin<'a> {
    sequence: u64,
    responsibility: &'a MaterializationResponsibility,
}

impl<'a> LinkOrigin<'a> {
    pub(crate) fn new(sequence: u64, responsibility: &'a MaterializationResponsibility) -> LinkOrigin<'a> {
        LinkOrigin { sequence, responsibility }
    }

    /// What the object is called.
    pub fn object(&self) -> &'a Arc<str> {
        &self.responsibility.unit_name
    }

    /// Orders the object among all that were added to its dylib.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The dylib.
    pub fn dylib(&self) -> JitDylib {
        self.responsibility.dylib()
    }

    /// Tells later whether the object's code is ready; keeps nothing alive. `None` if nothing of the object is owed.
    pub fn watch(&self) -> Option<SymbolWatch> {
        self.responsibility.watch()
    }

    /// Leads to the tracker that the object stands under; keeps nothing alive.
    pub fn tracker(&self) -> TrackerWatch {
        self.responsibility.watch_tracker()
    }
}

impl fmt::Debug for LinkOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {} `{}`, into `{}`", self.sequence, self.object(), self.dylib().name())
    }
}
