//! Thread-local storage of a [`PlacedLink`]: its block, the image of the block, and thunks.
//!
//! | step of the caller | here |
//! |---|---|
//! | load the block | [`thread_local_plan`](PlacedLink::thread_local_plan), [`thread_local_image`](PlacedLink::thread_local_image), then [`set_thread_local_place`](PlacedLink::set_thread_local_place) |
//! | the externals are found | [`complete_image`](PlacedLink::complete_image), if the image was not complete; the block may get a static offset now |
//! | before fix-up | [`allocate_thunks`](PlacedLink::allocate_thunks) |

use crate::arch::KindSet;
use crate::base::ExecutorAddr;
use crate::error::{Error, Result};
use crate::link::found_external::FoundExternal;
use crate::link::pipeline::PlacedLink;
use crate::link::thread_local_plan::{ThreadLocalPlace, ThreadLocalPlan};
use crate::link::thread_local_thunks::ThreadLocalThunks;
use crate::link::thread_locals;
use crate::link::verify;
use crate::memory::MemoryManager;

/// Links without a session use some of these methods.
#[cfg_attr(not(feature = "unstable"), allow(dead_code))]
impl PlacedLink {
    /// What the thread-local block needs, if the object has one. Before the block is placed,
    /// [`definitions`](Self::definitions) has none of its variables.
    pub fn thread_local_plan(&self) -> Option<&ThreadLocalPlan> {
        self.link.thread_locals.as_ref()
    }

    /// The initialisation image of the thread-local block, and whether it is complete. It is complete if none of its
    /// edges refers to an external. The fields of such edges still have the object's bytes; `finish`
    /// writes them. The image is empty without a thread-local block.
    ///
    /// # Errors
    /// A [`LinkFault`](crate::error::LinkFault), for a relocation that an image cannot have.
    pub fn thread_local_image(&self) -> Result<(Vec<u8>, bool)> {
        let link = &*self.link;
        let mut image = vec![0; link.thread_locals.map_or(0, |plan| plan.image_size as usize)];
        let resolved = link.resolved(&[]);
        let is_complete = resolved.own_image(&mut image)?;
        if cfg!(debug_assertions) {
            verify::check_own_image(&resolved, &image)?;
        }
        Ok((image, is_complete))
    }

    /// Writes the image again, with the addresses of the externals.
    ///
    /// # Errors
    /// As `finish`.
    pub(crate) fn complete_image(&mut self, found: &[FoundExternal], image: &mut [u8]) -> Result<()> {
        self.link.insert_externals(found);
        let resolved = self.link.resolved(found);
        resolved.complete_image(image)?;
        if cfg!(debug_assertions) {
            verify::check_complete_image(&resolved, image)?;
        }
        Ok(())
    }

    /// Whether the code may need distances of thread-local variables that nothing has computed yet.
    pub(crate) fn may_need_thunks(&self) -> bool {
        self.link.graph.kinds.has_any_of(KindSet::FIXED_DISTANCE)
    }

    /// Whether some edge holds a distance from the thread pointer.
    pub(crate) fn uses_thread_pointer(&self) -> bool {
        self.link.graph.kinds.has_any_of(KindSet::THREAD_POINTER)
    }

    /// Allocates the thunks that compute distances of thread-local variables, if the link needs some. The thread-local
    /// block has its final place. `get_address` returns the address of `__tls_get_addr`.
    ///
    /// # Errors
    /// [`LinkFault::Unsupported`](crate::error::LinkFault::Unsupported), for a distance that no thunk can compute; an
    /// error of the memory manager.
    pub(crate) fn allocate_thunks(
        &mut self,
        found: &[FoundExternal],
        memory: &dyn MemoryManager,
        get_address: impl FnOnce() -> Option<ExecutorAddr>,
    ) -> Result<Option<ThreadLocalThunks>> {
        self.link.insert_externals(found);
        ThreadLocalThunks::allocate(&self.link.resolved(found), &self.link.plan, memory, get_address)
    }

    /// The error for a thread-local block that the C library refused. `problem` is its reason.
    pub(crate) fn thread_local_block_refused(&self, problem: &str) -> Error {
        let size = self.link.thread_locals.map_or(0, |plan| plan.size);
        thread_locals::block_refused(&self.link.graph, size, problem)
    }

    /// Sets where the C library put the thread-local block. For links without a session.
    #[cfg(feature = "unstable")]
    pub fn place_thread_locals(&mut self, place: ThreadLocalPlace) {
        self.set_thread_local_place(place);
    }

    /// Sets where the C library put the thread-local block.
    pub(crate) fn set_thread_local_place(&mut self, place: ThreadLocalPlace) {
        self.link.addresses.thread_locals = Some(place);
    }
}
