//! [`ThreadLocals`]: the thread-local block of one linked object, between the link that says what stands in it and the C
//! library that keeps it.

use crate::error::Result;
use crate::host::{StaticTls, ThreadLocalModule};
use crate::link::{PlacedLink, ThreadLocalPlace};

pub(super) struct ThreadLocals {
    module: ThreadLocalModule,
    /// Whether the image has all its bytes.
    is_whole: bool,
}

impl ThreadLocals {
    /// Has the C library keep the block of a link, if it has one, and lets the link know where.
    ///
    /// # Errors
    /// When the library refuses: in its words, and with the first reference that made it necessary to ask.
    pub(super) fn place(placed: &mut PlacedLink) -> Result<Option<Box<ThreadLocals>>> {
        let Some(plan) = placed.thread_local_plan().copied() else { return Ok(None) };
        let (image, is_whole) = placed.thread_local_image()?;
        // There is little room beside the thread pointers, and the C library does not use all of it again.
        let place = match (plan.is_static, plan.is_shared && is_whole) {
            (true, _) => StaticTls::Required,
            (false, true) => StaticTls::Wanted,
            (false, false) => StaticTls::NotNeeded,
        };
        let module = ThreadLocalModule::try_load(&image, plan.size, plan.align, place);
        let module = module.map_err(|problem| placed.thread_local_block_refused(&problem))?;
        placed.place_thread_locals(ThreadLocalPlace { module: module.number(), static_offset: module.static_offset() });
        Ok(Some(Box::new(ThreadLocals { module, is_whole })))
    }

    /// The image, if something is missing in it.
    pub(super) fn unfinished_image(&mut self) -> Option<&mut [u8]> {
        if self.is_whole { None } else { Some(self.module.image()) }
    }
}
