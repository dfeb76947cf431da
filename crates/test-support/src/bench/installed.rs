//! An object as a memory manager sees it: 2 KiB of code, 0.5 KiB of constants, 0.5 KiB of data, and four functions that the
//! unwinder finds. [`install`] allocates, writes all bytes and finalizes. Nothing is linked, and nothing runs.

use std::hint::black_box;

use jittison::base::SegmentKind;
use jittison::memory::{Finalized, Frame, MemoryManager, SegmentPlan, SegmentRequest, SlabPool};

pub const CODE: usize = 2_048;
/// Also the size of the data.
pub const CONSTANTS: usize = 512;

pub fn plan() -> SegmentPlan {
    let request = |size: usize| SegmentRequest { size: size as u64, align: 16, zero_fill: 0 };
    SegmentPlan { segments: [CODE, CONSTANTS, CONSTANTS].map(request), frame_count: 4, ..SegmentPlan::default() }
}

pub fn install(pool: &SlabPool) -> Box<dyn Finalized> {
    let mut memory = pool.allocate(&plan()).unwrap();
    for pool in SegmentKind::ALL {
        copy(memory.working(pool));
    }
    let (code, table) = (memory.address(SegmentKind::Code), memory.address(SegmentKind::ReadOnly));
    let frames = (0..4).map(|index| Frame { start: code.offset(index * 512), fde: table.offset(index * 32) });
    memory.finalize(frames.collect()).unwrap()
}

/// Writes all bytes of a segment, which is at most as long as the code.
pub fn copy(into: &mut [u8]) {
    static BYTES: [u8; CODE] = [0xc3; CODE];
    into.copy_from_slice(black_box(&BYTES[..into.len()]));
    black_box(into);
}
