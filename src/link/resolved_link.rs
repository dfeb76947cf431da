//! [`ResolvedLink`]: one link with all addresses, as fix-up, range extension and the link verifier read it.
//!
//! This file holds the data and the look-ups of addresses. `fixup.rs` adds [`apply`](ResolvedLink::apply), which writes
//! the link into memory. Nothing here changes the link.

use crate::base::ExecutorAddr;
use crate::link::found_external::FoundExternal;
use crate::link::graph::{BlockAddresses, LinkGraph, SymbolIndex};
use crate::link::tables::Tables;
use crate::link::targets::Targets;

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
        ResolvedLink { graph, tables, addresses, targets, found, stubs }
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
