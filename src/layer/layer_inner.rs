//! [`LayerInner`]: what a layer and its links share, and the memory of one linked object.

use crate::host::Executor;
use crate::layer::memory_ledger::{HasMemory, MemoryLedger};
use crate::layer::plugins::Plugins;
use crate::layer::section_bounds::SectionBounds;
use crate::layer::section_table::Registration;
use crate::layer::thread_locals::ThreadLocals;
use crate::memory::{Finalized, MemoryManager};
use crate::sync::Arc;

/// The state of a layer. Units that are not linked yet and links that wait for a lookup own it, too.
pub(super) struct LayerInner {
    pub(super) memory: Arc<dyn MemoryManager>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) plugins: Plugins,
    /// The memory of every finished link, by key.
    pub(super) ledger: MemoryLedger<ModuleMemory>,
    pub(super) section_bounds: SectionBounds,
}

/// What a linked object owns. One value is 40 bytes, because there is one for each linked object.
pub(super) struct ModuleMemory {
    pub(super) memory: Box<dyn Finalized>,
    /// In a box, because few objects have any.
    pub(super) _extras: Option<Box<ModuleExtras>>,
    /// Name of the object.
    pub(super) name: Arc<str>,
}

/// Resources that few linked objects have.
pub(super) struct ModuleExtras {
    /// The block of thread-local variables.
    pub(super) _thread_locals: Option<Box<ThreadLocals>>,
    /// The registration of sections whose bounds may be requested.
    pub(super) _sections: Option<Box<Registration>>,
}

impl HasMemory for ModuleMemory {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        self.name.clone()
    }
}
