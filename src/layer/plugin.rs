//! [`LinkPlugin`] and [`LinkHooks`]: the interface by which services take part in every link.
//!
//! ```text
//!   link:     begin    read, claim    prune     allocate    look up    fix up      seal
//!   methods:  begin    prepare, join  pruned    placed      bind       fixed_up    record
//! ```
//!
//! One plugin serves all links of a layer. It makes one `LinkHooks` for each link that it takes part in.

use std::fmt;

use crate::error::Result;
use crate::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use crate::session::{JitDylib, MaterializationResponsibility, ResourceKey, SymbolWatch, TrackerWatch};
use crate::sync::Arc;

/// A service that takes part in links (ORC: `ObjectLinkingLayer::Plugin`).
///
/// A plugin that changes code, edges or addresses keeps the code sound. Whoever [looks code up](crate::Jit::lookup_in)
/// promises that it may run, and this includes what plugins made of it. An address that a plugin supplies is a number: no
/// tracker keeps its memory.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// use std::sync::{Arc, Mutex};
///
/// use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
/// use jittison::link::PlacedLink;
/// use jittison::{Error, Jit};
///
/// /// Lists the functions of each object with their addresses.
/// #[derive(Default)]
/// struct Listing(Arc<Mutex<Vec<String>>>);
///
/// impl LinkPlugin for Listing {
///     fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
///         Some(Box::new(ListingHooks(self.0.clone())))
///     }
/// }
///
/// struct ListingHooks(Arc<Mutex<Vec<String>>>);
///
/// impl LinkHooks for ListingHooks {
///     fn placed(&mut self, link: &PlacedLink) -> Result<(), Error> {
///         let lines = link.definitions().map(|(name, address)| format!("{address} {name}"));
///         self.0.lock().unwrap().extend(lines);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let listing = Listing::default();
/// let lines = listing.0.clone();
/// let jit = Jit::new()?;
/// jit.layer().add_plugin(Arc::new(listing));
/// jit.link_object(&jit.main_dylib().create_tracker()?, "add.o", ADD)?;
/// let address = jit.address_of(jit.main_dylib(), "add")?;
/// assert!(lines.lock().unwrap().contains(&format!("{address} add")));
/// # Ok(()) }
/// ```
pub trait LinkPlugin: Send + Sync {
    /// Called when a link begins, before its object is planned. The hooks are dropped if the link fails.
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        let _ = origin;
        None
    }

    /// Called in place of [`LinkHooks::prepare`] if [`begin`](Self::begin) returned `None`. For plugins that first need to see
    /// what is in the object, so that other links cost almost nothing. The plugin may change the graph here: `prepare` of the
    /// returned hooks is not called.
    ///
    /// # Errors
    /// Fails the link.
    fn join(&self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<Option<Box<dyn LinkHooks>>> {
        let _ = (origin, graph);
        Ok(None)
    }
}

/// What a plugin does in one link. The methods are called in this order. The first five are the passes of ORC's
/// `PassConfiguration`: pre-prune, post-prune, post-allocation, pre-fixup and post-fixup.
pub trait LinkHooks: Send {
    /// The graph is built and its symbols are claimed. Nothing is pruned or laid out. The plugin may add blocks, define
    /// externals, and add weak definitions that other objects can find ([`LinkGraph::add_weak`]).
    ///
    /// # Errors
    /// Fails the link.
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// Unreachable blocks are pruned, and nothing is laid out. This is the last chance to change the graph: the plugin
    /// may add blocks, local symbols and externals, and define externals. Other objects do not find weak definitions
    /// that are added here. A symbol in a pruned block has no address, and the link fails if a block refers to it.
    ///
    /// # Errors
    /// Fails the link.
    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// The memory is allocated. The addresses of the object's own definitions are final, and not published yet.
    ///
    /// # Errors
    /// Fails the link.
    fn placed(&mut self, link: &PlacedLink) -> Result<()> {
        let _ = link;
        Ok(())
    }

    /// The externals are found, in the order of [`PlacedLink::externals`]. The plugin may change them: the code is bound to the
    /// changed values.
    ///
    /// # Errors
    /// Fails the link.
    fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        let _ = (link, found);
        Ok(())
    }

    /// All relocations are applied, and the memory is not sealed yet. The plugin may change bytes.
    ///
    /// # Errors
    /// Fails the link.
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        let _ = link;
        Ok(())
    }

    /// The memory is sealed, and the symbols are emitted next. The plugin records what belongs to `key`.
    ///
    /// Called inside `with_resource_key`: only update tables, and do not call the session.
    fn record(self: Box<Self>, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        let _ = (key, origin, linked);
    }
}

/// The object of a link, its dylib and its tracker. These are methods, because most links need few of them, and each owned
/// handle costs an atomic operation.
pub struct LinkOrigin<'a> {
    sequence: u64,
    responsibility: &'a MaterializationResponsibility,
}

impl<'a> LinkOrigin<'a> {
    pub(crate) fn new(sequence: u64, responsibility: &'a MaterializationResponsibility) -> LinkOrigin<'a> {
        LinkOrigin { sequence, responsibility }
    }

    /// Name of the object.
    pub fn object(&self) -> &'a Arc<str> {
        &self.responsibility.unit_name
    }

    /// Sequence number of the object among all that were added to its dylib.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The dylib that the object is linked into.
    pub fn dylib(&self) -> JitDylib {
        self.responsibility.dylib()
    }

    /// A weak handle that says later whether the object's code is ready. `None` if the link defines no symbol of the object.
    pub fn watch(&self) -> Option<SymbolWatch> {
        self.responsibility.watch()
    }

    /// A weak handle to the tracker that owns the object.
    pub fn tracker(&self) -> TrackerWatch {
        self.responsibility.watch_tracker()
    }
}

impl fmt::Debug for LinkOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {} `{}` for `{}`", self.sequence, self.object(), self.dylib().name())
    }
}
