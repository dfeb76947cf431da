//! [`OfflineMemory`]: memory for links that never run, at addresses that the caller chooses.
//!
//! Use it to inspect linked bytes: to test a relocation at the limits of its range, or to link for addresses where this
//! process has nothing mapped. The bytes are in private memory of this process, outside of any window.
//!
//! Each allocation follows the previous one: code, constants, data, large sections, each aligned as the plan requests.
//! No address is reused, so an address means one thing as long as the memory lives.
//!
//! Finalizing an allocation frees its bytes: read them before.
//!
//! A session with this memory links, and finds addresses. It refuses calls that would run code
//! ([`MemoryFault::NeverRuns`]). The managers of `platform` that are used without a [`Jit`](crate::Jit) do not check this.

use crate::base::{ExecutorAddr, SegmentKind, align_up};
use crate::error::{MemoryFault, Result};
use crate::memory::allocation::{Finalized, InFlight};
use crate::memory::frame::Frame;
use crate::memory::manager::MemoryManager;
use crate::memory::plan::{LargeRequest, SegmentPlan};
use crate::memory::statistics::{MemoryStatistics, MemoryUsage};
use crate::os::PrivatePages;
use crate::sync::{Arc, MappedU64, Mutex, Rank};

/// Code memory that nothing can run.
pub struct OfflineMemory {
    state: Arc<Mutex<State>>,
}

struct State {
    /// The first address that no allocation has used.
    next: u64,
    live_bytes: u64,
    allocations: usize,
}

impl OfflineMemory {
    /// Memory whose first allocation starts at `base`, rounded up to its alignment.
    pub fn new(base: ExecutorAddr) -> OfflineMemory {
        let state = State { next: base.value(), live_bytes: 0, allocations: 0 };
        OfflineMemory { state: Arc::new(Mutex::ranked(Rank::Windows, state)) }
    }
}

// SAFETY: nothing runs this memory: `can_run` is false. M1 - each allocation owns its bytes on the heap. Its segments follow
// each other and have 1 GiB at most.
unsafe impl MemoryManager for OfflineMemory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        if plan.requested_bytes() > MAX_BYTES {
            let pool = SegmentKind::Data.name();
            let problem = "a link in offline memory gets at most 1 GiB";
            return Err(MemoryFault::BadPlan { pool, size: plan.requested_bytes(), align: 1, problem }.into());
        }
        let (addresses, large_addresses) = self.place(plan)?;
        let segments = [
            ZeroedBytes::new(plan.segments[0].size)?,
            ZeroedBytes::new(plan.segments[1].size)?,
            ZeroedBytes::new(plan.segments[2].size)?,
        ];
        let requests = plan.large_sections.iter().zip(large_addresses);
        let large = requests.map(|(request, address)| Ok((address, ZeroedBytes::new(request.size)?)));
        let large = large.collect::<Result<LargeBuffers>>()?;
        let size = plan.requested_bytes() + plan.large_sections.iter().map(|request| request.size).sum::<u64>();
        let sizes = SegmentKind::ALL.map(|pool| plan.segment(pool).size);
        let mut state = self.state.lock();
        state.allocations += 1;
        state.live_bytes += size;
        drop(state);
        Ok(Box::new(OfflineAllocation { state: self.state.clone(), addresses, segments, large, sizes, size }))
    }

    fn statistics(&self) -> MemoryStatistics {
        let state = self.state.lock();
        MemoryStatistics {
            allocations: state.allocations,
            live_bytes: state.live_bytes,
            reserved_bytes: state.live_bytes,
            ..MemoryStatistics::default()
        }
    }

    fn can_run(&self) -> bool {
        false
    }
}

impl OfflineMemory {
    /// The addresses of the segments and of the large sections of a plan. Later plans get other addresses, even if the
    /// bytes of this one cannot be allocated.
    fn place(&self, plan: &SegmentPlan) -> Result<([ExecutorAddr; 3], Vec<ExecutorAddr>)> {
        let mut state = self.state.lock();
        let mut next = state.next;
        let mut addresses = [ExecutorAddr::NULL; 3];
        for pool in SegmentKind::ALL {
            let segment = plan.segment(pool);
            let start = align_up(next, segment.align.max(GRANULE))
                .filter(|_| segment.align.is_power_of_two() || segment.align == 0);
            let end = start.and_then(|start| start.checked_add(segment.size));
            let (Some(start), Some(end)) = (start, end) else {
                let problem = "the alignment is not a power of two, or the address space ends before the segment";
                let (size, align) = (segment.size, segment.align);
                return Err(MemoryFault::BadPlan { pool: pool.name(), size, align, problem }.into());
            };
            addresses[pool.index()] = ExecutorAddr::new(start);
            next = end;
        }
        // The caller decides where this memory is, so large sections follow the segments.
        let large = place_large(plan, &mut next)?;
        state.next = next;
        Ok((addresses, large))
    }
}

/// The address and the bytes of each large section.
type LargeBuffers = Vec<(ExecutorAddr, ZeroedBytes)>;

fn place_large(plan: &SegmentPlan, next: &mut u64) -> Result<Vec<ExecutorAddr>> {
    let place = |request: &LargeRequest| {
        let (size, align) = (request.size, request.align.max(1));
        let start = if align.is_power_of_two() && size <= MAX_BYTES { align_up(*next, align) } else { None };
        let end = start.and_then(|start| start.checked_add(size));
        let (Some(start), Some(end)) = (start, end) else {
            let problem =
                "it is larger than 1 GiB, its alignment is not a power of two, or the address space ends before it";
            return Err(MemoryFault::BadPlan { pool: "large-section", size, align, problem }.into());
        };
        *next = end;
        Ok(ExecutorAddr::new(start))
    };
    plan.large_sections.iter().map(place).collect()
}

/// Bytes that are zero until they are written. An object chooses their number, so a lack of memory is an error and does
/// not end the process.
enum ZeroedBytes {
    Heap(Vec<u8>),
    /// Many bytes, of which the first so many count. The kernel backs only the pages that are written.
    Mapped(PrivatePages, usize),
}

impl ZeroedBytes {
    fn new(size: u64) -> Result<ZeroedBytes> {
        let refused = |problem: String| MemoryFault::Refused { step: format!("allocating {size} bytes"), problem };
        let length = usize::try_from(size).map_err(|problem| refused(problem.to_string()))?;
        if length >= MAPPED_SIZE {
            let pages = PrivatePages::map(length, 1).map_err(|problem| refused(problem.to_string()))?;
            return Ok(ZeroedBytes::Mapped(pages, length));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|problem| refused(problem.to_string()))?;
        bytes.resize(length, 0);
        Ok(ZeroedBytes::Heap(bytes))
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            ZeroedBytes::Heap(bytes) => bytes,
            ZeroedBytes::Mapped(pages, length) => &mut pages.bytes()[..*length],
        }
    }
}

impl Default for ZeroedBytes {
    fn default() -> ZeroedBytes {
        ZeroedBytes::Heap(Vec::new())
    }
}

/// An allocation, in flight and finalized.
struct OfflineAllocation {
    state: Arc<Mutex<State>>,
    addresses: [ExecutorAddr; 3],
    segments: [ZeroedBytes; 3],
    large: LargeBuffers,
    sizes: [u64; 3],
    size: u64,
}

impl InFlight for OfflineAllocation {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.addresses[pool.index()]
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.segments[pool.index()].bytes()
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.large.get(index).map_or(ExecutorAddr::NULL, |(address, _)| *address)
    }

    fn large_section(&mut self, index: usize) -> &mut [u8] {
        self.large.get_mut(index).map_or(&mut [], |(_, bytes)| bytes.bytes())
    }

    /// Ignores the frames: no unwinder walks code that never runs. Frees the bytes and keeps the addresses.
    fn finalize(mut self: Box<Self>, _: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        self.segments = Default::default();
        self.large.iter_mut().for_each(|(_, bytes)| *bytes = ZeroedBytes::default());
        Ok(self)
    }
}

impl Finalized for OfflineAllocation {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.addresses[pool.index()]
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        InFlight::large_section_address(self, index)
    }

    fn usage(&self) -> MemoryUsage {
        let [code, read_only, data] = self.sizes;
        let metadata = size_of::<OfflineAllocation>() as u64;
        MemoryUsage { allocations: 1, code, read_only, data, reserved: self.size, metadata }
    }

    fn word(&self, _offset: u64) -> Option<&MappedU64> {
        None
    }

    /// Ignores the bytes: this memory keeps none.
    unsafe fn write(&self, _pool: SegmentKind, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl Drop for OfflineAllocation {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.live_bytes -= self.size;
        state.allocations -= 1;
    }
}

/// Segments start at multiples of so many bytes.
const GRANULE: u64 = 16;

/// So many bytes are a mapping of their own.
const MAPPED_SIZE: usize = 1 << 20;

/// The greatest number of bytes that one link may request.
const MAX_BYTES: u64 = 1 << 30;
