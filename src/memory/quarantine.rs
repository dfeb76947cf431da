//! [`QuarantineManager`]: code memory whose places are not used again while a debugger is attached.
//!
//! gdb takes its breakpoints out of a library that is unloaded, but not out of generated code that it is told is gone. It
//! goes on believing that they are there, and at its next stop writes back what was there before them: into whatever
//! code stands in that place by then. So an allocation that is dropped under a debugger is kept, until one is dropped
//! without, or the manager goes.
//!
//! Attached is whoever traces the process, `strace` included. To ask costs a look into `/proc` for each removal, so this is
//! put around the memory of sessions that tell debuggers of their code, and of no others.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::frame_table::Frame;
use crate::memory::manager::{Finalized, InFlight, MemoryManager, MemoryStatistics, MemoryUsage, Released};
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::os::is_traced;
use crate::sync::{Arc, MappedU64, Mutex};

/// Another manager's memory.
pub(crate) struct QuarantineManager<M> {
    manager: M,
    kept: Kept,
}

/// What was dropped under a debugger.
type Kept = Arc<Mutex<Vec<Box<dyn Finalized>>>>;

impl<M: MemoryManager> QuarantineManager<M> {
    /// Around `manager`.
    pub(crate) fn new(manager: M) -> QuarantineManager<M> {
        QuarantineManager { manager, kept: Arc::new(Mutex::new(Vec::new())) }
    }
}

impl<M: MemoryManager> MemoryManager for QuarantineManager<M> {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let inner = self.manager.allocate(plan)?;
        Ok(Box::new(Unsealed { inner, kept: self.kept.clone() }))
    }

    fn can_run(&self) -> bool {
        self.manager.can_run()
    }

    fn statistics(&self) -> MemoryStatistics {
        self.manager.statistics()
    }

    fn release_free(&self) -> Released {
        self.manager.release_free()
    }

    fn release_free_slabs(&self) -> usize {
        self.manager.release_free_slabs()
    }

    fn memory_map(&self) -> Option<MemoryMap> {
        self.manager.memory_map()
    }
}

struct Unsealed {
    inner: Box<dyn InFlight>,
    kept: Kept,
}

impl InFlight for Unsealed {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.inner.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.inner.working(pool)
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        self.inner.apart_address(index)
    }

    fn apart(&mut self, index: usize) -> &mut [u8] {
        self.inner.apart(index)
    }

    fn scratch_address(&self) -> ExecutorAddr {
        self.inner.scratch_address()
    }

    fn scratch(&mut self) -> &mut [u8] {
        self.inner.scratch()
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let Unsealed { inner, kept } = *self;
        Ok(Box::new(Sealed { inner: Some(inner.finalize(frames)?), kept }))
    }
}

struct Sealed {
    /// There until this is dropped.
    inner: Option<Box<dyn Finalized>>,
    kept: Kept,
}

impl Finalized for Sealed {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.inner.as_ref().map_or(ExecutorAddr::NULL, |inner| inner.address(pool))
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        self.inner.as_ref().map_or(ExecutorAddr::NULL, |inner| inner.apart_address(index))
    }

    fn usage(&self) -> MemoryUsage {
        self.inner.as_ref().map_or(MemoryUsage::default(), |inner| inner.usage())
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        self.inner.as_ref().and_then(|inner| inner.word(offset))
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if is_traced() {
            self.kept.lock().extend(self.inner.take());
            return;
        }
        // Dropped outside the lock.
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::{SegmentPlan, SegmentRequest};
    use crate::memory::{OfflineMemory, SlabPool, SlabPoolOptions};

    /// Whose answers nobody else gives.
    struct Other(OfflineMemory);

    impl MemoryManager for Other {
        fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
            self.0.allocate(plan)
        }

        fn can_run(&self) -> bool {
            false
        }

        fn statistics(&self) -> MemoryStatistics {
            MemoryStatistics { allocations: 3, ..MemoryStatistics::default() }
        }

        fn release_free_slabs(&self) -> usize {
            7
        }

        fn memory_map(&self) -> Option<MemoryMap> {
            Some(MemoryMap::default())
        }
    }

    #[test]
    fn every_question_is_the_other_managers() {
        let memory = QuarantineManager::new(Other(OfflineMemory::new(ExecutorAddr::new(0x1000))));
        assert!(!memory.can_run());
        assert_eq!((memory.statistics().allocations, memory.release_free_slabs()), (3, 7));
        assert!(memory.memory_map().is_some());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn room_for_the_time_of_the_link_is_the_other_managers() {
        let memory = QuarantineManager::new(SlabPool::new(SlabPoolOptions::default()).unwrap());
        let mut plan =
            SegmentPlan { scratch: SegmentRequest { size: 64, align: 8, zero_fill: 0 }, ..SegmentPlan::default() };
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: 16, align: 16, zero_fill: 0 };
        let mut placed = memory.allocate(&plan).unwrap();
        assert_eq!(placed.scratch().len(), 64);
        assert_ne!(placed.scratch_address(), ExecutorAddr::NULL);
    }
}
