//! [`LargeSection`]: a section that has a mapping of its own, outside every window.
//!
//! The addresses of a window are scarce, because displacements must reach across it. A large section needs no place
//! there if code reaches it only by 64-bit addresses. It costs a mapping while it lives, one or two system calls when it
//! is made, and one when it is dropped: little in comparison with writing so many bytes. It is private memory and never
//! executable. A forked child has its own copy.
//!
//! [`LargeTotals`] counts the large sections of one manager. All threads share its counters, but only allocations with
//! such sections touch them. `link/large_sections.rs` decides which sections are large.

use crate::base::{ExecutorAddr, MemoryEvent};
use crate::error::{MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::events::EventSink;
use crate::memory::layout::CHUNK;
use crate::memory::plan::LargeRequest;
use crate::memory::statistics::{MemoryStatistics, MemoryUsage};
use crate::os::{PrivatePages, page_size};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The bytes of all large sections of one manager.
pub(crate) struct LargeTotals {
    budget: Arc<Budget>,
    sink: EventSink,
    /// Requested bytes.
    live: AtomicU64,
    /// Bytes of their pages.
    reserved: AtomicU64,
}

impl LargeTotals {
    pub(crate) fn new(budget: Arc<Budget>, sink: EventSink) -> Arc<LargeTotals> {
        Arc::new(LargeTotals { budget, sink, live: AtomicU64::new(0), reserved: AtomicU64::new(0) })
    }

    /// Adds the large sections to the statistics of the windows. All their pages count as open and resident.
    pub(crate) fn add_to(&self, sum: &mut MemoryStatistics) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        sum.live_bytes += self.live.load(Ordering::Relaxed);
        sum.reserved_bytes += reserved;
        sum.opened_bytes += reserved;
        sum.resident_bytes += reserved;
    }
}

/// A mapped large section. Its fields drop in order: first the pages, then their count.
pub(crate) struct LargeSection {
    pages: PrivatePages,
    request: LargeRequest,
    counted: CountedBytes,
}

/// Bytes that are part of the totals until this is dropped.
struct CountedBytes {
    totals: Arc<LargeTotals>,
    live: u64,
    reserved: u64,
}

impl LargeSection {
    /// Maps a large section.
    ///
    /// # Errors
    /// [`MemoryFault`]. A failed call holds no memory.
    pub(crate) fn map(totals: &Arc<LargeTotals>, request: &LargeRequest) -> Result<LargeSection> {
        let LargeRequest { size, align, .. } = *request;
        let align = align.max(1);
        let bad = |problem| MemoryFault::BadPlan { pool: POOL_NAME, size, align, problem };
        if size == 0 {
            return Err(bad("the section is empty").into());
        }
        if !align.is_power_of_two() {
            return Err(bad("the alignment is not a power of two").into());
        }
        if align > CHUNK {
            return Err(bad("the alignment is greater than 2 MiB").into());
        }
        let reserved = size
            .checked_next_multiple_of(page_size())
            .ok_or_else(|| bad("the section is larger than the address space"))?;
        let counted = CountedBytes::new(totals, size, reserved)?;
        let pages = PrivatePages::map(size as usize, align as usize).map_err(|error| MemoryFault::Refused {
            step: format!("mapping a large section of {} KiB", reserved >> 10),
            problem: error.to_string(),
        })?;
        let section = LargeSection { pages, request: *request, counted };
        let address = section.address();
        totals.sink.deliver_one(MemoryEvent::LargeSectionMapped { address, bytes: reserved });
        Ok(section)
    }

    pub(crate) fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pages.address())
    }

    /// The bytes of the section. Only its link uses them before [`seal`](Self::seal).
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.pages.bytes()[..self.request.size as usize]
    }

    /// Gives the section its final protection.
    ///
    /// # Errors
    /// If the kernel refuses the protection.
    pub(crate) fn seal(&mut self) -> Result<()> {
        if self.request.is_read_only {
            self.pages.seal().map_err(|error| MemoryFault::Refused {
                step: format!("making a large section of {} KiB read-only", self.pages.size_bytes() >> 10),
                problem: error.to_string(),
            })?;
        }
        Ok(())
    }

    pub(crate) fn usage(&self) -> MemoryUsage {
        let (read_only, data) = if self.request.is_read_only { (self.request.size, 0) } else { (0, self.request.size) };
        MemoryUsage {
            read_only,
            data,
            reserved: self.pages.size_bytes() as u64,
            metadata: size_of::<LargeSection>() as u64,
            ..MemoryUsage::default()
        }
    }
}

impl Drop for LargeSection {
    fn drop(&mut self) {
        let (address, bytes) = (self.address(), self.counted.reserved);
        self.counted.totals.sink.deliver_one(MemoryEvent::LargeSectionUnmapped { address, bytes });
    }
}

impl CountedBytes {
    fn new(totals: &Arc<LargeTotals>, live: u64, reserved: u64) -> Result<CountedBytes> {
        totals.budget.reserve(reserved)?;
        // Relaxed: the sums are for reports, and no other memory is read because of them.
        totals.live.fetch_add(live, Ordering::Relaxed);
        totals.reserved.fetch_add(reserved, Ordering::Relaxed);
        Ok(CountedBytes { totals: totals.clone(), live, reserved })
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.totals.live.fetch_sub(self.live, Ordering::Relaxed);
        self.totals.reserved.fetch_sub(self.reserved, Ordering::Relaxed);
        self.totals.budget.release(self.reserved);
    }
}

/// The name of the pool in errors about large sections.
const POOL_NAME: &str = "large-section";
