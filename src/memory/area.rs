//! [`Area`]: one allocation that several links fill, each its own [`Place`].
//!
//! An area holds the parts of a section that several objects have. Its memory is finalized before the first link writes
//! to it. A place belongs to one link, and is written once:
//!
//! ```text
//!   Area::allocate ──► Place, Place, …  one for each link
//!                        │ with_places: the link writes a buffer, as if it were a large section
//!                        │ finalize: the buffer is copied to the place
//!                        ▼
//!                      WrittenPlace     in the finalized allocation of the link
//! ```
//!
//! Each place keeps the area. So the memory is freed with the last of the links.

use std::ops::Range;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::allocation::{Finalized, InFlight};
use crate::memory::fork_guard::wait_for_forks;
use crate::memory::frame::Frame;
use crate::memory::manager::MemoryManager;
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::memory::statistics::MemoryUsage;
use crate::sync::{Arc, MappedU64, Mutex};

/// What an area needs of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AreaRequest {
    pub(crate) pool: SegmentKind,
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// As [`SegmentPlan::group`].
    pub(crate) group: u64,
    /// As [`SegmentPlan::low`].
    pub(crate) low: bool,
}

/// One allocation for several links.
pub(crate) struct Area {
    memory: Box<dyn Finalized>,
    pool: SegmentKind,
    /// Held while a place is written.
    writing: Mutex<()>,
}

/// A range of an area that one link writes. It is zero until then.
pub(crate) struct Place {
    area: Arc<Area>,
    range: Range<u64>,
}

/// A place with the bytes of its link.
pub(crate) struct WrittenPlace {
    area: Arc<Area>,
    size: u64,
}

/// The blocks of one link in one place: the offset and the size of each.
pub(crate) type PlacedBlocks = (Place, Vec<(u64, u64)>);

impl Area {
    /// Allocates an area, and divides it into places. The ranges are in ascending order. `None` if the manager cannot write
    /// memory that is finalized.
    ///
    /// # Errors
    /// As [`MemoryManager::allocate`].
    pub(crate) fn allocate(
        manager: &dyn MemoryManager,
        request: AreaRequest,
        ranges: &[Range<u64>],
    ) -> Result<Option<(Arc<Area>, Vec<Place>)>> {
        let AreaRequest { pool, size, align, group, low } = request;
        assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= size), "the places are in the area");
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "the places do not overlap");
        let mut plan = SegmentPlan { group, low, ..SegmentPlan::default() };
        plan.segments[pool.index()] = SegmentRequest { size, align, zero_fill: size };
        let memory = manager.allocate(&plan)?.finalize(Vec::new())?;
        // SAFETY: M9 - there is no byte to write, so this only asks whether the memory supports it.
        if unsafe { memory.write(pool, 0, &[]) }.is_err() {
            return Ok(None);
        }
        let area = Arc::new(Area { memory, pool, writing: Mutex::new(()) });
        let places = ranges.iter().map(|range| Place { area: area.clone(), range: range.clone() }).collect();
        Ok(Some((area, places)))
    }

    pub(crate) fn address(&self) -> ExecutorAddr {
        self.memory.address(self.pool)
    }
}

impl Place {
    pub(crate) fn address(&self) -> ExecutorAddr {
        self.area.address().offset(self.range.start)
    }

    /// Writes blocks at their offsets in the place.
    fn write<'a>(self, blocks: impl Iterator<Item = (u64, &'a [u8])>) -> Result<WrittenPlace> {
        let Place { area, range } = self;
        let writing = area.writing.lock();
        for (offset, bytes) in blocks {
            let start = range.start + offset;
            assert!(start + bytes.len() as u64 <= range.end, "the blocks are in the place");
            // SAFETY: M9 - the range is in this place, which `allocate` made once and this call consumes. The link that owns it
            // is not published, so no code uses it. The lock excludes other writers.
            unsafe { area.memory.write(area.pool, start, bytes) }?;
        }
        drop(writing);
        Ok(WrittenPlace { size: range.end - range.start, area })
    }
}

/// Adds blocks in places to an allocation. The link sees them as large sections, after the `large_count` sections that
/// the allocation has itself.
pub(crate) fn with_places(
    memory: Box<dyn InFlight>,
    large_count: usize,
    places: Vec<PlacedBlocks>,
) -> Box<dyn InFlight> {
    let buffers = places.iter().flat_map(|(place, blocks)| {
        let start = place.address();
        blocks.iter().map(move |(offset, size)| Buffer { address: start.offset(*offset), size: *size, bytes: None })
    });
    Box::new(PlacedInFlight { buffers: buffers.collect(), memory, large_count, places })
}

/// The bytes of one block.
struct Buffer {
    address: ExecutorAddr,
    size: u64,
    /// `None` until the link asks for them. It never asks for those of zero-fill, which may be large.
    bytes: Option<Vec<u8>>,
}

/// An allocation in flight with blocks in areas.
struct PlacedInFlight {
    memory: Box<dyn InFlight>,
    large_count: usize,
    /// The blocks, in the order of `places`.
    buffers: Vec<Buffer>,
    places: Vec<PlacedBlocks>,
}

impl PlacedInFlight {
    /// The position of a large section in `buffers`. `None` for a section of the allocation itself.
    fn position(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.large_count)
    }
}

impl InFlight for PlacedInFlight {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.memory.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.memory.working(pool)
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        match self.position(index) {
            Some(position) => self.buffers.get(position).map_or(ExecutorAddr::NULL, |buffer| buffer.address),
            None => self.memory.large_section_address(index),
        }
    }

    fn large_section(&mut self, index: usize) -> &mut [u8] {
        match self.position(index) {
            Some(position) => self
                .buffers
                .get_mut(position)
                .map_or(&mut [], |buffer| buffer.bytes.get_or_insert_with(|| vec![0; buffer.size as usize])),
            None => self.memory.large_section(index),
        }
    }

    fn scratch_address(&self) -> ExecutorAddr {
        self.memory.scratch_address()
    }

    fn scratch(&mut self) -> &mut [u8] {
        self.memory.scratch()
    }

    /// Writes the places, and waits for a fork that may not have copied them. The link is published later.
    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let PlacedInFlight { memory, buffers, places, .. } = *self;
        let mut buffers = buffers.iter().map(|buffer| buffer.bytes.as_deref().unwrap_or_default());
        let write = |(place, blocks): PlacedBlocks| {
            place.write(blocks.iter().map(|(offset, _)| *offset).zip(buffers.by_ref().take(blocks.len())))
        };
        let places = places.into_iter().map(write).collect::<Result<_>>()?;
        // The own memory may be in a window that a fork does not copy, so its finalization may not wait. No lock is held here.
        wait_for_forks();
        Ok(Box::new(PlacedFinalized { memory: memory.finalize(frames)?, places }))
    }
}

/// A finalized allocation with blocks in areas. The fields drop in this order: the code before what it uses.
struct PlacedFinalized {
    memory: Box<dyn Finalized>,
    places: Box<[WrittenPlace]>,
}

impl Finalized for PlacedFinalized {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.memory.address(pool)
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.memory.large_section_address(index)
    }

    fn usage(&self) -> MemoryUsage {
        let own = MemoryUsage { metadata: size_of::<Self>() as u64, ..MemoryUsage::default() };
        [self.memory.usage(), own].into_iter().chain(self.places.iter().map(WrittenPlace::usage)).sum()
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        self.memory.word(offset)
    }

    fn is_copied(&self) -> bool {
        self.memory.is_copied()
    }

    fn word_stored(&self, word: &MappedU64) {
        self.memory.word_stored(word);
    }

    unsafe fn write(&self, pool: SegmentKind, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: M9 - as the caller promises.
        unsafe { self.memory.write(pool, offset, bytes) }
    }
}

impl WrittenPlace {
    fn usage(&self) -> MemoryUsage {
        let size_in = |pool| if self.area.pool == pool { self.size } else { 0 };
        MemoryUsage {
            read_only: size_in(SegmentKind::ReadOnly),
            data: size_in(SegmentKind::Data),
            reserved: self.size,
            metadata: size_of::<Self>() as u64,
            ..MemoryUsage::default()
        }
    }
}

#[cfg(all(test, not(loom)))]
#[cfg_attr(miri, allow(dead_code, unused_imports))]
mod tests {
    use super::*;
    use crate::memory::statistics::MemoryStatistics;
    use crate::memory::{MemoryMapper, SingleMapper, SlabPool, SlabPoolOptions, SystemMapper};

    fn pool(mapper: impl MemoryMapper + 'static) -> SlabPool {
        SlabPool::with_mapper(mapper, SlabPoolOptions::default()).unwrap()
    }

    fn request(pool: SegmentKind) -> AreaRequest {
        AreaRequest { pool, size: 24, align: 8, group: 0, low: false }
    }

    /// Finalizes an allocation with one block of five bytes at offset 3 of the place.
    fn fill(memory: &dyn MemoryManager, place: Place, bytes: &[u8; 5]) -> Box<dyn Finalized> {
        let own = memory.allocate(&SegmentPlan::default()).unwrap();
        let address = place.address();
        let mut own = with_places(own, 0, vec![(place, vec![(3, 5)])]);
        assert_eq!(own.large_section_address(0), address.offset(3));
        own.large_section(0).copy_from_slice(bytes);
        own.finalize(Vec::new()).unwrap()
    }

    fn bytes_at(address: ExecutorAddr, length: usize) -> Vec<u8> {
        // SAFETY: M1 - the caller's area has so many bytes from this address on, and nothing writes them now.
        unsafe { std::slice::from_raw_parts(address.value() as *const u8, length) }.to_vec()
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn each_link_writes_its_place_and_the_last_one_frees_the_area() {
        let managers = [pool(SystemMapper::default()), pool(SingleMapper)];
        for (memory, kind) in
            managers.iter().flat_map(|memory| [SegmentKind::ReadOnly, SegmentKind::Data].map(|kind| (memory, kind)))
        {
            let (area, places) = Area::allocate(memory, request(kind), &[0..8, 8..8, 8..24]).unwrap().unwrap();
            let (start, mut places) = (area.address(), places.into_iter());
            drop(area);
            assert_eq!(bytes_at(start, 24), [0; 24]);
            let (first, empty, last) = (places.next().unwrap(), places.next().unwrap(), places.next().unwrap());
            let last = fill(memory, last, b"later");
            let first = fill(memory, first, b"first");
            assert_eq!(bytes_at(start, 24), b"\0\0\0first\0\0\0later\0\0\0\0\0\0\0\0");
            let usage = first.usage();
            assert_eq!((usage.read_only, usage.data), if kind == SegmentKind::Data { (0, 8) } else { (8, 0) });
            drop((first, empty));
            assert_eq!(memory.statistics().live_bytes, 24, "one link is left");
            drop(last);
            assert_eq!(memory.statistics().live_bytes, 0);
        }
    }

    /// A manager whose finalized memory cannot be written.
    struct Sealed(SlabPool);
    struct SealedInFlight(Box<dyn InFlight>);
    struct SealedMemory(Box<dyn Finalized>);

    // SAFETY: M8 - the pool makes all allocations.
    unsafe impl MemoryManager for Sealed {
        fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
            Ok(Box::new(SealedInFlight(self.0.allocate(plan)?)))
        }

        fn statistics(&self) -> MemoryStatistics {
            self.0.statistics()
        }
    }

    impl InFlight for SealedInFlight {
        fn address(&self, pool: SegmentKind) -> ExecutorAddr {
            self.0.address(pool)
        }

        fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
            self.0.working(pool)
        }

        fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
            Ok(Box::new(SealedMemory(self.0.finalize(frames)?)))
        }
    }

    impl Finalized for SealedMemory {
        fn address(&self, pool: SegmentKind) -> ExecutorAddr {
            self.0.address(pool)
        }

        fn usage(&self) -> MemoryUsage {
            self.0.usage()
        }

        fn word(&self, offset: u64) -> Option<&MappedU64> {
            self.0.word(offset)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn a_manager_that_cannot_write_finalized_memory_gets_no_area() {
        let memory = Sealed(pool(SystemMapper::default()));
        assert!(Area::allocate(&memory, request(SegmentKind::Data), &[]).unwrap().is_none());
        assert_eq!(memory.statistics().live_bytes, 0);
    }
}
