//! [`WindowLayout`]: where in a window everything stands. Arithmetic only.

use crate::base::{ExecutorAddr, SegmentKind, align_up};

/// Where one pool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRange {
    /// Offset from the window's base, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Where everything stands, as offsets from a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLayout {
    /// The window's size in bytes.
    pub size: u64,
    /// The pools, in [`SegmentKind::ALL`] order.
    pub pools: [PoolRange; 3],
    /// Bytes from the base that are backed by the shared file: everything before the data pool.
    pub file_size: u64,
}

impl WindowLayout {
    /// Divides `size` bytes. `None` when that is too small for one chunk of each pool, or too large for any two of its
    /// addresses to reach each other in 32 bits.
    pub fn divide(size: u64) -> Option<WindowLayout> {
        if size > MAX_WINDOW {
            return None;
        }
        // Half is code, and each 64 bytes of code have 8 bytes of frame table; the rest is shared out 3 : 4.
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

    /// Where a pool stands.
    pub fn pool(&self, pool: SegmentKind) -> PoolRange {
        self.pools[pool.index()]
    }

    /// The code pool and the page before it, which is mapped with it: instrumented code looks at the 8 bytes before any
    /// function that it calls (UBSan, `-fsanitize=function`).
    pub(crate) fn readable_code(&self) -> PoolRange {
        let code = self.pool(SegmentKind::Code);
        let offset = code.offset.saturating_sub(PAGE);
        PoolRange { offset, size: code.offset + code.size - offset }
    }

    /// Where a pool starts in a window at `base`.
    pub fn pool_start(&self, base: ExecutorAddr, pool: SegmentKind) -> ExecutorAddr {
        base.offset(self.pool(pool).offset)
    }
}

/// Growth, guards and alignment go by this: the size of a huge page.
pub(crate) const CHUNK: u64 = 2 << 20;

/// Any two addresses of a window reach each other in a signed 32-bit displacement.
pub(crate) const MAX_WINDOW: u64 = (1 << 31) - (1 << 16);

/// Bytes of text per slot of the frame table: a cache line, so that no two objects share one.
pub(crate) const TEXT_GRANULE: u64 = 64;

/// Bytes per granule of the other pools: the alignment that the psABI promises to any object.
pub(crate) const DATA_GRANULE: u64 = 16;

pub(crate) const FRAME_SLOT: u64 = 8;

/// The unwind header stands here, so that the table behind its 12 bytes is aligned for 8-byte stores.
pub(crate) const FRAME_HEADER_OFFSET: u64 = 0x1004;
pub(crate) const FRAME_TABLE_OFFSET: u64 = FRAME_HEADER_OFFSET + 12;

/// Before the code pool, its last page is readable.
const GUARD: u64 = 2 * PAGE;

/// The page size of the only architecture there is so far.
pub(crate) const PAGE: u64 = 4096;

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

    #[test]
    fn a_window_too_small_or_too_large_to_reach_across_is_refused() {
        assert_eq!(WindowLayout::divide(4 << 20), None);
        assert_eq!(WindowLayout::divide(1 << 31), None);
        assert_eq!(WindowLayout::divide(0), None);
        assert_eq!(WindowLayout::divide(u64::MAX), None);
    }
}
