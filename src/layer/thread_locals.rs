//! [`ThreadLocals`]: the thread-local block of one linked object.
//!
//! The link computes the image of the block, and the C library holds the block (`src/host/thread_locals.rs`). Values in
//! the image that depend on externals are written later, when the externals are known.
//!
//! Code of the static models needs a static offset. The C library copies the image of a block to all threads when it
//! grants one, so the image must be complete:
//!
//! | image | static offset is requested |
//! |---|---|
//! | complete when the block is placed | then |
//! | has values of externals | when they are written ([`ThreadLocals::prepare`]) |
//!
//! The static space of the C library is small, and the C library does not reuse all of it. So a block requests it only if
//! code of this object needs it, or for code of another object when that object is linked (`found_externals.rs`). If
//! the C library refuses, the code gets thunks.

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::host::{Executor, ProcessSymbol, StaticTls, ThreadLocalBlock};
use crate::layer::foreign_thread_locals::ForeignThreadLocals;
use crate::link::{FoundExternal, PlacedLink, ThreadLocalPlace, ThreadLocalThunks};
use crate::memory::MemoryManager;

pub(super) struct ThreadLocals {
    block: Box<dyn ThreadLocalBlock>,
    /// Whether code of the object needs a static offset.
    is_static: bool,
    /// Whether no bytes of the image are missing.
    is_complete: bool,
}

impl ThreadLocals {
    /// Loads the block of a link, if it has one, and gives the link its module number and static offset. `foreign` takes the
    /// block of code that never runs.
    ///
    /// # Errors
    /// The C library refuses. The error has its text.
    pub(super) fn place(
        placed: &mut PlacedLink,
        memory: &dyn MemoryManager,
        executor: &dyn Executor,
        foreign: &ForeignThreadLocals,
    ) -> Result<Option<Box<ThreadLocals>>> {
        let Some(plan) = placed.thread_local_plan().copied() else { return Ok(None) };
        let (image, is_complete) = placed.thread_local_image()?;
        let static_tls = if plan.is_static && is_complete { StaticTls::Wanted } else { StaticTls::NotNeeded };
        let block = match memory.can_run() {
            true => executor.load_thread_locals(&image, plan.size, plan.align, static_tls),
            false => Ok(foreign.add(placed.graph().arch, &plan, image)),
        };
        let mut block = block.map_err(|problem| placed.thread_local_block_refused(&problem))?;
        if is_complete {
            block.complete();
        }
        let thread_locals = ThreadLocals { block, is_static: plan.is_static, is_complete };
        thread_locals.set_place(placed);
        Ok(Some(Box::new(thread_locals)))
    }

    /// Completes the image of a link's block, if it has one, and allocates the thunks that its code needs.
    ///
    /// # Errors
    /// As `PlacedLink::seal`.
    pub(super) fn prepare(
        placed: &mut PlacedLink,
        block: Option<&mut ThreadLocals>,
        found: &[FoundExternal],
        memory: &dyn MemoryManager,
        executor: &dyn Executor,
    ) -> Result<Option<ThreadLocalThunks>> {
        if let Some(block) = block {
            block.complete(placed, found)?;
        }
        if !placed.may_need_thunks() {
            return Ok(None);
        }
        placed.allocate_thunks(found, memory, || tls_get_addr(executor))
    }

    /// Writes the missing bytes of the image. From then on threads may copy it.
    fn complete(&mut self, placed: &mut PlacedLink, found: &[FoundExternal]) -> Result<()> {
        if self.is_complete {
            return Ok(());
        }
        if let Some(image) = self.block.image() {
            placed.complete_image(found, image)?;
        }
        self.is_complete = true;
        self.block.complete();
        if self.is_static {
            self.block.request_static_offset();
            self.set_place(placed);
        }
        Ok(())
    }

    /// Gives the link the module number and the static offset.
    fn set_place(&self, placed: &mut PlacedLink) {
        let ThreadLocals { block, .. } = self;
        placed
            .set_thread_local_place(ThreadLocalPlace { module: block.number(), static_offset: block.static_offset() });
    }
}

/// The address of the C library's `__tls_get_addr`, which gave out the module numbers.
fn tls_get_addr(executor: &dyn Executor) -> Option<ExecutorAddr> {
    match executor.find_symbol("__tls_get_addr")? {
        ProcessSymbol::Function(address) | ProcessSymbol::Data(address) => Some(address),
        ProcessSymbol::TlsIndex(_) => None,
    }
}
