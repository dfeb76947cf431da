//! [`LinkReport`]: what observers get to know about a link.

use std::time::Instant;

use crate::link::PlacedLink;
use crate::memory::MemoryUsage;
use crate::session::{Event, MaterializationResponsibility, Observers, ResourceKey};

/// Collects what observers get to know about a link. Exists only if there are observers.
pub(super) struct LinkReport {
    started: Instant,
    relocations: usize,
    definitions: usize,
    externals: usize,
    pub(super) usage: MemoryUsage,
}

impl LinkReport {
    /// Starts the clock. `None` without observers.
    pub(super) fn begin(observers: &Observers) -> Option<Box<LinkReport>> {
        observers.is_active().then(LinkReport::new)
    }

    #[cold]
    fn new() -> Box<LinkReport> {
        let (started, usage) = (Instant::now(), MemoryUsage::default());
        Box::new(LinkReport { started, relocations: 0, definitions: 0, externals: 0, usage })
    }

    #[cold]
    pub(super) fn count(&mut self, placed: &PlacedLink) {
        let graph = placed.graph();
        let own = graph.blocks().filter(|(_, block)| !block.is_dropped() && !block.is_synthetic());
        self.relocations = own.map(|(id, _)| graph.edges(id).len()).sum();
        self.definitions = placed.definitions().count();
        self.externals = placed.external_names().count();
    }

    #[cold]
    pub(super) fn deliver(&self, responsibility: &MaterializationResponsibility, key: ResourceKey) {
        let LinkReport { started, relocations, definitions, externals, usage } = self;
        responsibility.observers().deliver(&Event::Linked {
            dylib: responsibility.dylib_handle(),
            key,
            object: responsibility.unit_name(),
            bytes: [usage.code, usage.read_only, usage.data],
            reserved: usage.reserved,
            relocations: *relocations,
            definitions: *definitions,
            externals: *externals,
            elapsed: started.elapsed(),
        });
    }
}
