//! [`ThreadLocals`]: the thread-local block of one linked object.
//!
//! The link computes the image of the block, and the C library holds the block (`src/host/thread_locals.rs`). Values in
//! the image that depend on externals are written later, when the externals are known. Such a block gets no static
//! offset, because the C library copies the image of a static block when it loads the block. If the code requires a
//! static offset, such a link is refused.

use crate::error::Result;
use crate::host::{Executor, StaticTls, ThreadLocalBlock};
use crate::link::{PlacedLink, ThreadLocalPlace};

pub(super) struct ThreadLocals {
    block: Box<dyn ThreadLocalBlock>,
    /// Whether no bytes of the image are missing.
    is_complete: bool,
}

impl ThreadLocals {
    /// Loads the block of a link, if it has one, and gives the link its module number and static offset.
    ///
    /// # Errors
    /// The C library refuses. The error has its text and the first reference that needs the block.
    pub(super) fn place(placed: &mut PlacedLink, executor: &dyn Executor) -> Result<Option<Box<ThreadLocals>>> {
        let Some(plan) = placed.thread_local_plan().copied() else { return Ok(None) };
        let (image, is_complete) = placed.thread_local_image()?;
        // The static space of the C library is small, and the C library does not reuse all of it. So a block requests
        // it only if code of this or another object may need it.
        let static_tls = match (plan.is_static, plan.is_shared && is_complete) {
            (true, _) => StaticTls::Required,
            (false, true) => StaticTls::Wanted,
            (false, false) => StaticTls::NotNeeded,
        };
        let block = executor.load_thread_locals(&image, plan.size, plan.align, static_tls);
        let mut block = block.map_err(|problem| placed.thread_local_block_refused(&problem))?;
        if is_complete {
            block.complete();
        }
        placed
            .set_thread_local_place(ThreadLocalPlace { module: block.number(), static_offset: block.static_offset() });
        Ok(Some(Box::new(ThreadLocals { block, is_complete })))
    }

    /// The loaded image, if bytes of it depend on externals and are still missing.
    pub(super) fn incomplete_image(&mut self) -> Option<&mut [u8]> {
        if self.is_complete { None } else { self.block.image() }
    }

    /// Ends the writing of the image, after its last bytes are written: from now on threads may copy it.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        self.block.complete();
    }
}
