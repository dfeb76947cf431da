//! [`WindowLayout`]: the offsets of the frame table and the pools in a window, and the sizes of their units.
//!
//! This file only calculates. `mod.rs` has a picture of a window.
//!
//! # Pages
//! A layout is the same for every kernel, because the process that makes it may be of another one than the process that maps it: what
//! is mapped lies at multiples of [`MAX_PAGE_SIZE`]. Each process maps, counts and returns pages of its own kernel ([`page_size`]).

use std::ops::Range;

use crate::arch::MAX_PAGE_SIZE;
use crate::base::{ExecutorAddr, SegmentKind, align_up};
use crate::os::page_size;

/// The range of one pool, or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRange {
    /// Offset in bytes: of a pool from the base of the window, of a part from the start of its pool.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// The layout of a window, as offsets from its base.
///
/// Mappers map the pools at fixed addresses and rely on the layout for that: its pools lie inside the window and do not
/// overlap. So the fields are private, and [`divide`](Self::divide) is the only constructor.
///
/// ```compile_fail,E0616
/// let mut layout = jittison::memory::WindowLayout::divide(64 << 20).unwrap();
/// layout.pools[1].size = 1 << 30; // would be mapped over the neighbours of the window
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLayout {
    size: u64,
    /// The pools, in [`SegmentKind::ALL`] order.
    pools: [PoolRange; 3],
    file_size: u64,
}

impl WindowLayout {
    /// Divides a window of `size` bytes. `None` if `size` is too small for one chunk of each pool, or so large that a
    /// 32-bit displacement does not reach across.
    pub fn divide(size: u64) -> Option<WindowLayout> {
        if size > MAX_WINDOW {
            return None;
        }
        // Half is code. Each 64 bytes of code have 8 bytes of frame table. The rest is divided 3 : 4.
        let code = (size / 2) & !(CHUNK - 1);
        let table = code / TEXT_GRANULE * FRAME_SLOT;
        let code_offset = align_up(FRAME_TABLE_OFFSET + table + GUARD, CHUNK)?;
        let rest = size.checked_sub(code_offset + code + 2 * CHUNK)?;
        let read_only = (rest * 3 / 7) & !(CHUNK - 1);
        let read_only_offset = code_offset + code + CHUNK;
        let data_offset = read_only_offset + read_only + CHUNK;
        let data = size.checked_sub(data_offset)? & !(CHUNK - 1);
        if code == 0 || read_only == 0 || data == 0 {
            return None;
        }
        Some(WindowLayout {
            size: data_offset + data,
            pools: [
                PoolRange { offset: code_offset, size: code },
                PoolRange { offset: read_only_offset, size: read_only },
                PoolRange { offset: data_offset, size: data },
            ],
            file_size: read_only_offset + read_only,
        })
    }

    /// The layout of a window in another process: its size, and the offset and size of each pool in [`SegmentKind::ALL`] order.
    /// `None` if the pools overlap, are not inside the window, or are not in this order.
    #[cfg(feature = "executor")]
    pub(crate) fn from_shape(size: u64, pools: [(u64, u64); 3]) -> Option<WindowLayout> {
        let table = (pools[0].1 / TEXT_GRANULE).checked_mul(FRAME_SLOT)?;
        let mut end = FRAME_TABLE_OFFSET.checked_add(table)?;
        for (offset, size) in pools {
            let is_aligned = offset.is_multiple_of(CHUNK) && size.is_multiple_of(CHUNK) && size > 0;
            if !is_aligned || end.checked_add(GUARD)? > offset {
                return None;
            }
            end = offset.checked_add(size)?;
        }
        let [.., read_only, _] = pools;
        let pools = pools.map(|(offset, size)| PoolRange { offset, size });
        (end == size && size <= MAX_WINDOW).then_some(WindowLayout {
            size,
            pools,
            file_size: read_only.0 + read_only.1,
        })
    }

    /// The size of the window in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The number of bytes from the base that the shared file backs: everything before the guard of the data pool.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The same pools in a window of another size, for tests that map nothing.
    #[cfg(test)]
    pub(crate) fn with_size(self, size: u64) -> WindowLayout {
        WindowLayout { size, ..self }
    }

    /// The range of a pool.
    pub fn pool(&self, pool: SegmentKind) -> PoolRange {
        self.pools[pool.index()]
    }

    /// The code pool and the page before it, which is mapped with the same protection: code built with
    /// `-fsanitize=function` (UBSan) reads the 8 bytes before each function that it calls.
    pub(crate) fn readable_code(&self) -> PoolRange {
        let code = self.pool(SegmentKind::Code);
        let offset = code.offset.saturating_sub(page_size());
        PoolRange { offset, size: code.offset + code.size - offset }
    }

    /// The address of a pool in a window at `base`.
    pub fn pool_start(&self, base: ExecutorAddr, pool: SegmentKind) -> ExecutorAddr {
        base.offset(self.pool(pool).offset)
    }
}

/// The complete pages of `page` bytes in the `size` bytes from `start` on, as a range of bytes. Empty, and inside these bytes or at their end, if
/// there are none.
pub(crate) fn complete_pages(start: u64, size: u64, page: u64) -> Range<u64> {
    let end = start + size;
    let first = start.next_multiple_of(page).min(end);
    first..(end / page * page).max(first)
}

/// Bytes of a granule: the unit of allocation in a pool.
pub(crate) fn granule_size(pool: SegmentKind) -> u64 {
    if pool == SegmentKind::Code { TEXT_GRANULE } else { DATA_GRANULE }
}

/// Bytes that one granule of a pool reserves, with its slot of the frame table.
pub(crate) fn reserved_bytes_per_granule(pool: SegmentKind) -> u64 {
    granule_size(pool) + if pool == SegmentKind::Code { FRAME_SLOT } else { 0 }
}

/// The unit of growth, of guards and of alignment in bytes: the size of a huge page.
pub(crate) const CHUNK: u64 = 2 << 20;

/// The greatest size of a window in bytes. A signed 32-bit displacement reaches between any two addresses of a window.
pub(crate) const MAX_WINDOW: u64 = (1 << 31) - (1 << 16);

/// Bytes per granule of the code pool, and so per slot of the frame table: a cache line, so that no two objects share
/// one.
pub(crate) const TEXT_GRANULE: u64 = 64;

/// Bytes per granule of the other pools: the greatest alignment of a standard type in the psABI.
pub(crate) const DATA_GRANULE: u64 = 16;

/// Bytes of a slot of the frame table.
pub(crate) const FRAME_SLOT: u64 = 8;

/// The offset of the unwind header in a window. The table after its 12 bytes is aligned for 8-byte stores.
pub(crate) const FRAME_HEADER_OFFSET: u64 = 0x1004;
pub(crate) const FRAME_TABLE_OFFSET: u64 = FRAME_HEADER_OFFSET + 12;

/// The CIE and the FDE of free slots, as offsets in the header page, before the unwind header (`window_image.rs` writes
/// them).
pub(crate) const EMPTY_CIE_OFFSET: u64 = 0xa00;
pub(crate) const EMPTY_FDE_OFFSET: u64 = EMPTY_CIE_OFFSET + 24;
pub(crate) const EMPTY_FDE_FROM_HEADER: u64 = EMPTY_FDE_OFFSET.wrapping_sub(FRAME_HEADER_OFFSET);

/// Unmapped bytes between the frame table and the code pool. The last page before the code pool is readable
/// ([`WindowLayout::readable_code`]).
const GUARD: u64 = 2 * MAX_PAGE_SIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_do_not_overlap_and_have_guards_between_them_at_any_size() {
        for megabytes in [32, 64, 100, 512, 1024, 2047] {
            let layout = WindowLayout::divide(megabytes << 20).unwrap();
            let table_end = FRAME_TABLE_OFFSET + layout.pools[0].size / TEXT_GRANULE * FRAME_SLOT;
            assert!(table_end + GUARD <= layout.pools[0].offset);
            for pair in layout.pools.windows(2) {
                assert!(pair[0].offset + pair[0].size + GUARD <= pair[1].offset);
            }
            assert_eq!(layout.pools[2].offset + layout.pools[2].size, layout.size);
            assert!(layout.pools.iter().all(|pool| pool.offset % CHUNK == 0 && pool.size % CHUNK == 0));
            assert!(layout.size <= megabytes << 20);
        }
    }

    #[cfg(feature = "executor")]
    #[test]
    fn a_layout_is_made_again_from_its_shape_and_from_no_other_one() {
        for megabytes in [32, 64, 100, 512, 1024, 2047] {
            let layout = WindowLayout::divide(megabytes << 20).unwrap();
            let pools = layout.pools.map(|pool| (pool.offset, pool.size));
            assert_eq!(WindowLayout::from_shape(layout.size, pools), Some(layout));
            let refused = |change: fn(&mut u64, &mut [(u64, u64); 3])| {
                let (mut size, mut pools) = (layout.size, pools);
                change(&mut size, &mut pools);
                assert_eq!(WindowLayout::from_shape(size, pools), None);
            };
            refused(|size, _| *size += CHUNK);
            refused(|_, pools| pools[0].0 = 0);
            refused(|_, pools| pools[1].0 -= CHUNK);
            refused(|_, pools| pools[1].1 = 0);
            refused(|_, pools| pools[0].1 += MAX_PAGE_SIZE);
            refused(|_, pools| pools[2].0 = u64::MAX - CHUNK + 1);
            refused(|size, pools| (*size, pools[2].1) = (*size + (1 << 40), pools[2].1 + (1 << 40)));
            refused(|_, pools| pools.swap(0, 2));
        }
    }

    /// The pages of the kernels of all architectures.
    const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

    #[test]
    fn complete_pages_are_those_of_which_every_byte_is_in_the_range() {
        for page in PAGES {
            for start in [0, 1, page - 1, page, page + 1, 5 * page - 1] {
                for size in [0, 1, page - 1, page, page + 1, 2 * page - 1, 2 * page, 3 * page + 1] {
                    let found = complete_pages(start, size, page);
                    let is_complete =
                        |first: &u64| (start..start + size + 1).contains(first) && first + page <= start + size;
                    let expected: Vec<u64> = (0..9).map(|index| index * page).filter(is_complete).collect();
                    assert!(found.clone().step_by(page as usize).eq(expected), "{start} {size} {page}");
                    assert!(start <= found.start && found.start <= found.end && found.end <= start + size);
                }
            }
        }
    }

    #[test]
    fn what_is_mapped_starts_and_ends_with_pages_of_every_kernel() {
        for page in PAGES {
            for megabytes in [32, 64, 100, 512, 1024, 2047] {
                let layout = WindowLayout::divide(megabytes << 20).unwrap();
                assert!(layout.pools.iter().all(|pool| pool.offset % page == 0 && pool.size % page == 0));
                assert!(layout.size.is_multiple_of(page) && layout.file_size.is_multiple_of(page));
                // The header and the table end before the readable page in front of the code.
                let table = layout.pools[0].size / TEXT_GRANULE * FRAME_SLOT;
                assert!((FRAME_TABLE_OFFSET + table).next_multiple_of(page) + page <= layout.pools[0].offset);
            }
        }
    }

    #[test]
    fn a_size_too_small_for_the_pools_or_too_large_for_a_displacement_has_no_layout() {
        assert_eq!(WindowLayout::divide(4 << 20), None);
        assert_eq!(WindowLayout::divide(1 << 31), None);
        assert_eq!(WindowLayout::divide(0), None);
        assert_eq!(WindowLayout::divide(u64::MAX), None);
    }
}
