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
///     fn placed(&mut self, link: &mut PlacedLink) -> Result<(), Error> {
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
    /// The name of the plugin in errors. By default, that of its type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

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
///
/// # Changes and promises
/// A unit promises its dylib the names that its object defines, and other code may wait for them. So a graph that a plugin has
/// changed must still define each of them, with the same scope, for code as code, and for data with at least the same size. A
/// definition may be replaced: rename it or make it local, and [add](LinkGraph::add_symbol) another one of its name. A
/// definition of a new name is claimed for the unit after `prepare`. Nothing else is needed (ORC: the plugin calls
/// `MaterializationResponsibility::defineMaterializing`).
///
/// After each hook, what it has changed is checked. If the graph is broken, the link fails with
/// [`LinkFault::BrokenByPlugin`](crate::error::LinkFault::BrokenByPlugin), which names the plugin and the place. What changed
/// code does is up to the plugin.
///
/// # Example
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # const SUM: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/sum.o"));
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// use jittison::base::{ExecutorAddr, SegmentKind};
/// use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
/// use jittison::link::{BlockId, Definition, Edge, EdgeKind, LinkGraph, PlacedLink, SymbolIndex};
/// use jittison::{Error, Jit};
///
/// /// Counts the calls of functions of other objects. Each counter is eight bytes of linked memory.
/// #[derive(Default)]
/// struct CountCalls(Arc<Mutex<HashMap<String, ExecutorAddr>>>);
///
/// struct CountingHooks {
///     /// The name of each called function, and the block of its counter.
///     counters: Vec<(String, BlockId)>,
///     addresses: Arc<Mutex<HashMap<String, ExecutorAddr>>>,
/// }
///
/// impl LinkPlugin for CountCalls {
///     fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
///         Some(Box::new(CountingHooks { counters: Vec::new(), addresses: self.0.clone() }))
///     }
/// }
///
/// impl CountingHooks {
///     /// Adds code that counts and goes on to `function`.
///     fn add_counter(&mut self, graph: &mut LinkGraph, function: SymbolIndex) -> SymbolIndex {
///         let counter = graph.add_zero_block(".bss.calls", SegmentKind::Data, 8, 8);
///         self.counters.push((graph.symbol_name(function).to_string(), counter));
///         let count = graph.add_local("", counter, 0);
///         // lock incq count(%rip); jmp function
///         let code = vec![0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
///         let edges = [
///             Edge { offset: 4, kind: EdgeKind::Delta32, symbol: count, addend: -4 },
///             Edge { offset: 9, kind: EdgeKind::Branch32, symbol: function, addend: -4 },
///         ];
///         let code = graph.add_block(".text.calls", SegmentKind::Code, code, 16, &edges);
///         graph.add_local("", code, 0)
///     }
/// }
///
/// impl LinkHooks for CountingHooks {
///     fn pruned(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
///         let live = graph.blocks().filter(|(_, block)| !block.is_dropped()).map(|(id, _)| id);
///         let mut counting = HashMap::new();
///         for block in live.collect::<Vec<_>>() {
///             for position in 0..graph.edges(block).len() {
///                 let Edge { kind, symbol, .. } = graph.edges(block)[position];
///                 if kind == EdgeKind::Branch32 && graph.definition(symbol) == Definition::External {
///                     let counting = *counting.entry(symbol).or_insert_with(|| self.add_counter(graph, symbol));
///                     graph.redirect_edge(block, position, counting)?;
///                 }
///             }
///         }
///         Ok(())
///     }
///
///     fn placed(&mut self, link: &mut PlacedLink) -> Result<(), Error> {
///         let placed = self.counters.drain(..).map(|(name, counter)| (name, link.block_address(counter)));
///         self.addresses.lock().unwrap().extend(placed);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let jit = Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", ADD)?;
/// let plugin = CountCalls::default();
/// let counters = plugin.0.clone();
/// jit.layer().add_plugin(Arc::new(plugin));
/// jit.add_object(&tracker, "sum.o", SUM)?;
/// // Safety: the function has this signature, and all that was added may run.
/// let sum = unsafe { jit.lookup::<extern "C" fn(i32, i32, i32) -> i32>("sum")? };
/// assert_eq!(sum.call(1, 2, 3), 6);
/// let calls_of_add = counters.lock().unwrap()["add"];
/// // Safety: the counter is memory of `sum.o`, which is linked and not removed.
/// assert_eq!(unsafe { (calls_of_add.value() as *const u64).read() }, 2);
/// # Ok(()) }
/// ```
pub trait LinkHooks: Send {
    /// The graph is built and its symbols are claimed. Nothing is pruned or laid out. The plugin may change all of the graph:
    /// see [`LinkGraph`]. A visible definition that it adds here is claimed after this hook of all plugins, so that other
    /// objects find it.
    ///
    /// # Errors
    /// Fails the link.
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// Unreachable blocks are pruned, and nothing is laid out. The plugin may change what is left. Other objects do not find
    /// definitions that are added here: a weak one is for this link alone, and a strong one is refused. A symbol in a pruned
    /// block has no address, and the link fails if a block refers to it.
    ///
    /// # Errors
    /// Fails the link.
    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let _ = graph;
        Ok(())
    }

    /// The memory is allocated. The addresses of the object's own definitions are final, and not published yet. The plugin may
    /// change bytes, and redirect edges to symbols of the link.
    ///
    /// # Errors
    /// Fails the link.
    fn placed(&mut self, link: &mut PlacedLink) -> Result<()> {
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
