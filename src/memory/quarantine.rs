//! [`QuarantineManager`]: a memory manager that does not reuse freed code memory while a debugger is attached.
//!
//! gdb removes its breakpoints from a library that is unloaded, but not from generated code that is deregistered. At
//! its next stop it writes the original bytes of such breakpoints back, into the code that has the addresses by then.
//! So an allocation that is dropped while a debugger is attached goes into quarantine. The quarantine is freed when an
//! allocation is dropped without a debugger, or with the manager.
//!
//! Every process that traces this one counts as a debugger, `strace` too. The check reads a file of `/proc` at each
//! removal. So this manager wraps the memory only of sessions that register their code with debuggers.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::allocation::{Finalized, InFlight, downcast};
use crate::memory::frame::Frame;
use crate::memory::manager::{MemoryManager, Released};
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::memory::statistics::{MemoryStatistics, MemoryUsage};
use crate::os::is_traced;
use crate::sync::{Arc, MappedU64, Mutex};

/// Wraps another manager.
pub(crate) struct QuarantineManager<M> {
    manager: M,
    quarantine: Quarantine,
}

/// The allocations that were dropped while a debugger was attached.
type Quarantine = Arc<Mutex<Vec<Box<dyn Finalized>>>>;

impl<M: MemoryManager> QuarantineManager<M> {
    /// Wraps `manager`.
    pub(crate) fn new(manager: M) -> QuarantineManager<M> {
        QuarantineManager { manager, quarantine: Arc::new(Mutex::new(Vec::new())) }
    }
}

// SAFETY: M1 - the wrapped manager makes all allocations and keeps the contract. The wrappers forward each call. They drop
// the allocations late, never early.
unsafe impl<M: MemoryManager> MemoryManager for QuarantineManager<M> {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let inner = self.manager.allocate(plan)?;
        Ok(Box::new(QuarantineInFlight { inner, quarantine: self.quarantine.clone() }))
    }

    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        // The manager knows only its own allocations. It would finalize the wrappers one by one.
        let unwrap = |(allocation, frames)| match downcast::<QuarantineInFlight>(allocation) {
            Ok(wrapper) => (wrapper.inner, frames),
            Err(other) => (other, frames),
        };
        let finalized = self.manager.finalize_all(batch.into_iter().map(unwrap).collect())?;
        Ok(finalized.into_iter().map(|inner| QuarantineFinalized::wrap(inner, self.quarantine.clone())).collect())
    }

    fn can_run(&self) -> bool {
        self.manager.can_run()
    }

    fn has_large_sections(&self) -> bool {
        self.manager.has_large_sections()
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

struct QuarantineInFlight {
    inner: Box<dyn InFlight>,
    quarantine: Quarantine,
}

impl InFlight for QuarantineInFlight {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.inner.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.inner.working(pool)
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.inner.large_section_address(index)
    }

    fn large_section(&mut self, index: usize) -> &mut [u8] {
        self.inner.large_section(index)
    }

    fn scratch_address(&self) -> ExecutorAddr {
        self.inner.scratch_address()
    }

    fn scratch(&mut self) -> &mut [u8] {
        self.inner.scratch()
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let QuarantineInFlight { inner, quarantine } = *self;
        Ok(QuarantineFinalized::wrap(inner.finalize(frames)?, quarantine))
    }
}

struct QuarantineFinalized {
    /// `Some` until this is dropped.
    inner: Option<Box<dyn Finalized>>,
    quarantine: Quarantine,
}

impl QuarantineFinalized {
    fn wrap(inner: Box<dyn Finalized>, quarantine: Quarantine) -> Box<dyn Finalized> {
        Box::new(QuarantineFinalized { inner: Some(inner), quarantine })
    }
}

impl Finalized for QuarantineFinalized {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.inner.as_ref().map_or(ExecutorAddr::NULL, |inner| inner.address(pool))
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.inner.as_ref().map_or(ExecutorAddr::NULL, |inner| inner.large_section_address(index))
    }

    fn usage(&self) -> MemoryUsage {
        self.inner.as_ref().map_or(MemoryUsage::default(), |inner| inner.usage())
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        self.inner.as_ref().and_then(|inner| inner.word(offset))
    }

    fn is_copied(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_copied())
    }

    fn word_stored(&self, word: &MappedU64) {
        if let Some(inner) = &self.inner {
            inner.word_stored(word);
        }
    }

    unsafe fn write(&self, pool: SegmentKind, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: M9 - as the caller promises.
        self.inner.as_ref().map_or(Ok(()), |inner| unsafe { inner.write(pool, offset, bytes) })
    }
}

impl Drop for QuarantineFinalized {
    fn drop(&mut self) {
        if is_traced() {
            self.quarantine.lock().extend(self.inner.take());
            return;
        }
        // The allocations are dropped after the lock is released.
        let freed = std::mem::take(&mut *self.quarantine.lock());
        drop(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::{SegmentPlan, SegmentRequest};
    use crate::memory::{OfflineMemory, SlabPool, SlabPoolOptions};

    /// A manager whose answers differ from those of all others.
    struct Inner(OfflineMemory, Arc<Mutex<Vec<usize>>>);

    impl Inner {
        /// The manager, and the sizes of the batches that it finalizes.
        fn new() -> (Inner, Arc<Mutex<Vec<usize>>>) {
            let batches = Arc::new(Mutex::new(Vec::new()));
            (Inner(OfflineMemory::new(ExecutorAddr::new(0x1000)), batches.clone()), batches)
        }
    }

    // SAFETY: M1 - the wrapped manager makes all allocations.
    unsafe impl MemoryManager for Inner {
        fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
            self.0.allocate(plan)
        }

        fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
            self.1.lock().push(batch.len());
            assert!(
                batch.iter().all(|(one, _)| !(&**one as &dyn std::any::Any).is::<QuarantineInFlight>()),
                "the manager gets its own allocations"
            );
            self.0.finalize_all(batch)
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
    fn the_wrapped_manager_answers_every_query() {
        let memory = QuarantineManager::new(Inner::new().0);
        assert!(!memory.can_run());
        assert_eq!((memory.statistics().allocations, memory.release_free_slabs()), (3, 7));
        assert!(memory.memory_map().is_some());
    }

    #[test]
    fn a_batch_reaches_the_wrapped_manager_as_one_batch() {
        let (inner, batches) = Inner::new();
        let memory = QuarantineManager::new(inner);
        let mut plan = SegmentPlan::default();
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: 16, align: 16, zero_fill: 0 };
        let in_flight: Vec<_> = (0..3).map(|_| memory.allocate(&plan).unwrap()).collect();
        let addresses: Vec<_> = in_flight.iter().map(|one| one.address(SegmentKind::Code)).collect();
        let batch = in_flight.into_iter().map(|one| (one, Vec::new())).collect();
        let finalized = memory.finalize_all(batch).unwrap();
        assert_eq!(*batches.lock(), [3]);
        let finalized_at: Vec<_> = finalized.iter().map(|one| one.address(SegmentKind::Code)).collect();
        assert_eq!(finalized_at, addresses, "in the same order");
        assert!(finalized.iter().all(|one| one.usage().code == 16));
        assert_eq!(Arc::strong_count(&memory.quarantine), 4, "each is wrapped");
        drop(finalized);
        assert_eq!(Arc::strong_count(&memory.quarantine), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn scratch_memory_comes_from_the_wrapped_manager() {
        let memory = QuarantineManager::new(SlabPool::new(SlabPoolOptions::default()).unwrap());
        let mut plan =
            SegmentPlan { scratch: SegmentRequest { size: 64, align: 8, zero_fill: 0 }, ..SegmentPlan::default() };
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: 16, align: 16, zero_fill: 0 };
        let mut placed = memory.allocate(&plan).unwrap();
        assert_eq!(placed.scratch().len(), 64);
        assert_ne!(placed.scratch_address(), ExecutorAddr::NULL);
    }
}
