//! [`OfflineMemory`]: memory for links that are looked at and never run, at addresses that the caller chooses.
//!
//! Every allocation stands behind the one before, code first, then constants, then data, each where its alignment asks;
//! nothing is used twice, so that an address means one thing as long as the memory lives. The bytes stand on the heap.
//! This is what checks a relocation at its limits, and what links for a place where this process has nothing mapped.

use crate::base::{ExecutorAddr, SegmentKind, align_up};
use crate::error::{MemoryFault, Result};
use crate::memory::frame_table::Frame;
use crate::memory::manager::{Finalized, InFlight, MemoryManager, MemoryStatistics, MemoryUsage};
use crate::memory::plan::SegmentPlan;
use crate::sync::{Arc, MappedU64, Mutex, Rank};

/// Code memory that nothing can run.
pub struct OfflineMemory {
    books: Arc<Mutex<Books>>,
}

struct Books {
    next: u64,
    live_bytes: u64,
    allocations: usize,
}

impl OfflineMemory {
    /// Memory whose first allocation stands at `base`, or as soon behind it as its alignment asks.
    pub fn new(base: ExecutorAddr) -> OfflineMemory {
        let books = Books { next: base.value(), live_bytes: 0, allocations: 0 };
        OfflineMemory { books: Arc::new(Mutex::ranked(Rank::Windows, books)) }
    }
}

impl MemoryManager for OfflineMemory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        if plan.requested_bytes() > LARGEST {
            let pool = SegmentKind::Data.name();
            let problem = "memory that is only looked at gives no link more than 1 GiB";
            return Err(MemoryFault::BadPlan { pool, size: plan.requested_bytes(), align: 1, problem }.into());
        }
        let mut books = self.books.lock();
        let mut next = books.next;
        let mut addresses = [ExecutorAddr::NULL; 3];
        for pool in SegmentKind::ALL {
            let segment = plan.segment(pool);
            let place = align_up(next, segment.align.max(GRANULE))
                .filter(|_| segment.align.is_power_of_two() || segment.align == 0);
            let end = place.and_then(|place| place.checked_add(segment.size));
            let (Some(place), Some(end)) = (place, end) else {
                let problem = "the address space ends before it, or its alignment is none";
                let (size, align) = (segment.size, segment.align);
                return Err(MemoryFault::BadPlan { pool: pool.name(), size, align, problem }.into());
            };
            addresses[pool.index()] = ExecutorAddr::new(place);
            next = end;
        }
        // Sections that may live apart are the links' own affair; here they stand beside the others.
        let apart = place_apart(plan, &mut next)?;
        books.next = next;
        books.allocations += 1;
        let size = plan.requested_bytes() + plan.apart.iter().map(|request| request.size).sum::<u64>();
        books.live_bytes += size;
        drop(books);
        let segments = SegmentKind::ALL.map(|pool| vec![0; plan.segment(pool).size as usize]);
        let sizes = SegmentKind::ALL.map(|pool| plan.segment(pool).size);
        Ok(Box::new(Offline { books: self.books.clone(), addresses, segments, apart, sizes, size }))
    }

    fn statistics(&self) -> MemoryStatistics {
        let books = self.books.lock();
        MemoryStatistics {
            allocations: books.allocations,
            live_bytes: books.live_bytes,
            reserved_bytes: books.live_bytes,
            ..MemoryStatistics::default()
        }
    }

    fn can_run(&self) -> bool {
        false
    }
}

type Apart = Vec<(ExecutorAddr, Vec<u8>)>;

fn place_apart(plan: &SegmentPlan, next: &mut u64) -> Result<Apart> {
    let place = |request: &crate::memory::plan::LargeRequest| {
        let (size, align) = (request.size, request.align.max(1));
        let start = if align.is_power_of_two() && size <= LARGEST { align_up(*next, align) } else { None };
        let end = start.and_then(|start| start.checked_add(size));
        let (Some(start), Some(end)) = (start, end) else {
            let problem = "memory that is only looked at has no room for it";
            return Err(MemoryFault::BadPlan { pool: "apart", size, align, problem }.into());
        };
        *next = end;
        Ok((ExecutorAddr::new(start), vec![0; size as usize]))
    };
    plan.apart.iter().map(place).collect()
}

/// One allocation, in both its states.
struct Offline {
    books: Arc<Mutex<Books>>,
    addresses: [ExecutorAddr; 3],
    segments: [Vec<u8>; 3],
    apart: Apart,
    sizes: [u64; 3],
    size: u64,
}

impl InFlight for Offline {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.addresses[pool.index()]
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        &mut self.segments[pool.index()]
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        self.apart.get(index).map_or(ExecutorAddr::NULL, |(address, _)| *address)
    }

    fn apart(&mut self, index: usize) -> &mut [u8] {
        self.apart.get_mut(index).map_or(&mut [], |(_, bytes)| bytes)
    }

    /// Nobody unwinds what nobody runs.
    fn finalize(mut self: Box<Self>, _: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        // Whoever wanted to see the bytes has seen them.
        self.segments = Default::default();
        self.apart.iter_mut().for_each(|(_, bytes)| *bytes = Vec::new());
        Ok(self)
    }
}

impl Finalized for Offline {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.addresses[pool.index()]
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        InFlight::apart_address(self, index)
    }

    fn usage(&self) -> MemoryUsage {
        let [code, read_only, data] = self.sizes;
        let metadata = size_of::<Offline>() as u64;
        MemoryUsage { allocations: 1, code, read_only, data, reserved: self.size, metadata }
    }

    fn word(&self, _offset: u64) -> Option<&MappedU64> {
        None
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let mut books = self.books.lock();
        books.live_bytes -= self.size;
        books.allocations -= 1;
    }
}

/// Segments begin at multiples of this, in bytes.
const GRANULE: u64 = 16;
/// Bytes that one link may ask for.
const LARGEST: u64 = 1 << 30;
