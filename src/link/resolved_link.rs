//! [`ResolvedLink`]: one link with all addresses, as fix-up, range extension and the link verifier read it.
//!
//! This file holds the data and the look-ups of addresses. `fixup.rs` adds [`apply`](ResolvedLink::apply), which writes
//! the link into memory. Nothing here changes the link.

use crate::base::ExecutorAddr;
use crate::link::found_external::FoundExternal;
use crate::link::graph::{BlockAddresses, LinkGraph, SymbolIndex};
use crate::link::local_dynamic_block::local_dynamic_block;
use crate::link::relaxable::Relaxable;
use crate::link::tables::Tables;
use crate::link::targets::Targets;
use crate::link::thread_local_plan::ThreadLocalPlace;
use crate::link::thunk_plan::ThunkPlan;

/// A link whose memory is allocated and whose externals are found.
///
/// `found` is empty until the externals are found. Until then, only [`own_image`](ResolvedLink::own_image) and the
/// verifier's check of that image may read the link.
pub(crate) struct ResolvedLink<'a> {
    pub(crate) graph: &'a LinkGraph,
    pub(crate) tables: &'a Tables,
    pub(crate) addresses: &'a BlockAddresses,
    pub(super) targets: &'a Targets,
    /// By position among the externals.
    found: &'a [FoundExternal],
    /// The address of the block of stubs, if there is one.
    pub(super) stubs: Option<ExecutorAddr>,
    /// The thread-local block that local-dynamic code of the object asks for.
    pub(crate) local_dynamic_block: Option<ThreadLocalPlace>,
    pub(super) relaxable: Relaxable,
    /// The thunks that compute distances of thread-local variables, if the link needs some.
    pub(crate) thunks: Option<&'a ThunkPlan>,
}

impl<'a> ResolvedLink<'a> {
    /// `found` is what was found for the externals, in their order. `targets` has the same externals.
    pub(crate) fn new(
        graph: &'a LinkGraph,
        tables: &'a Tables,
        addresses: &'a BlockAddresses,
        targets: &'a Targets,
        found: &'a [FoundExternal],
    ) -> ResolvedLink<'a> {
        let stubs = tables.stubs().map(|stubs| graph.block_address(stubs, addresses));
        let found_for = |symbol| found.get(targets.external(symbol)?);
        let local_dynamic_block = local_dynamic_block(graph, addresses.thread_locals, found_for);
        let relaxable = Relaxable::of(graph);
        ResolvedLink { graph, tables, addresses, targets, found, stubs, local_dynamic_block, relaxable, thunks: None }
    }

    /// The same link, with the thunks that it needs.
    pub(super) fn with_thunks(self, thunks: Option<&'a ThunkPlan>) -> ResolvedLink<'a> {
        ResolvedLink { thunks, ..self }
    }

    /// The address of a symbol; null for a symbol without one.
    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.targets.address(symbol)
    }

    /// What was found for an external; `None` for a definition of the object.
    pub(super) fn found(&self, symbol: SymbolIndex) -> Option<&FoundExternal> {
        self.found.get(self.targets.external(symbol)?)
    }
}
