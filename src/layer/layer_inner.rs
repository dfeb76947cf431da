//! [`LayerInner`]: what a layer and its links share, and the memory of one linked object.

use crate::error::Result;
use crate::host::Executor;
use crate::layer::foreign_thread_locals::ForeignThreadLocals;
use crate::layer::hidden_names::{HiddenDeclarations, HiddenNames};
use crate::layer::machine::LinkedMachine;
use crate::layer::memory_ledger::{HasMemory, MemoryLedger};
use crate::layer::plugins::Plugins;
use crate::layer::registered_sessions::RegisteredSessions;
use crate::layer::section_bounds::SectionBounds;
use crate::layer::section_table::Registration;
use crate::layer::thread_locals::ThreadLocals;
use crate::link::WrappedNames;
use crate::memory::{Finalized, MemoryManager};
use crate::session::{JitDylib, ResourceKey, ResourceManager, ResourceTracker};
use crate::sync::Arc;

/// The state of a layer. Units that are not linked yet and links that wait for a lookup own it, too.
pub(super) struct LayerInner {
    pub(super) memory: Arc<dyn MemoryManager>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) machine: LinkedMachine,
    /// Whether large sections stay in the window.
    pub(super) keeps_large_sections: bool,
    pub(super) foreign_thread_locals: ForeignThreadLocals,
    pub(super) plugins: Plugins,
    /// The memory of every finished link, by key.
    pub(super) ledger: MemoryLedger<ModuleMemory>,
    pub(super) section_bounds: SectionBounds,
    pub(super) hidden_names: HiddenNames,
    pub(super) sessions: RegisteredSessions,
    /// `None` if no symbol is wrapped.
    pub(super) wrapped: Option<WrappedNames>,
}

impl LayerInner {
    /// Registers the weak names that an object declares hidden, internal or protected.
    pub(super) fn declare_hidden(
        &self,
        tracker: &ResourceTracker,
        mut names: Vec<Box<str>>,
    ) -> Option<Box<HiddenDeclarations>> {
        if let Some(wrapped) = &self.wrapped {
            names.iter_mut().for_each(|name| *name = wrapped.of_reference(name).into());
        }
        self.hidden_names.declare(tracker, names)
    }
}

/// The layer as the session sees it. Implemented for this private type, because anyone can call the methods of a public
/// manager, and `remove_resources` frees code that threads may run.
impl ResourceManager for LayerInner {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        // Frees the memory, the latest link first.
        self.ledger.take(key).rev().for_each(drop);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.ledger.usage(key).total()
    }
}

/// What a linked object owns. Each linked object has one, so it is small (32 bytes).
pub(super) struct ModuleMemory {
    /// With the [`ModuleExtras`], if there are any.
    pub(super) memory: Box<dyn Finalized>,
    /// Name of the object.
    pub(super) name: Arc<str>,
}

/// Resources that few linked objects have.
pub(super) struct ModuleExtras {
    /// The block of thread-local variables.
    pub(super) _thread_locals: Option<Box<ThreadLocals>>,
    /// The registration of sections whose bounds may be requested.
    pub(super) _sections: Option<Box<Registration>>,
    /// The registration of hidden weak names.
    pub(super) _hidden: Option<Box<HiddenDeclarations>>,
}

impl HasMemory for ModuleMemory {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_linked_object_takes_40_bytes_in_its_table() {
        assert_eq!(MemoryLedger::<ModuleMemory>::ENTRY_BYTES, 40);
    }
}
