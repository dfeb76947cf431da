//! [`PartialFile`]: the bytes of a file, of which only some ranges are in memory.
//!
//! The parser of the `object` crate reads an archive by offset. A read of bytes that are not in memory fails, and
//! [`PartialFile::missing_end`] says how far the file must be read before the next try. `Archive` repeats this until
//! the parse succeeds or the file ends.

use std::cell::Cell;
use std::ops::Range;

use object::ReadRef;

use crate::link::buffer::ObjectBuffer;

/// The first bytes of a file, and one range somewhere after them.
pub(super) struct PartialFile<'a> {
    head: &'a [u8],
    range: LoadedRange,
    size_bytes: u64,
    /// See [`missing_end`](Self::missing_end).
    missing_end: Cell<u64>,
}

/// Bytes of a file, from the offset `start` on.
#[derive(Default)]
pub(super) struct LoadedRange {
    pub(super) start: u64,
    pub(super) bytes: ObjectBuffer,
}

impl LoadedRange {
    /// Whether the range is not empty and holds the bytes up to the offset `end`.
    pub(super) fn reaches(&self, end: u64) -> bool {
        !self.bytes.is_empty() && self.start + self.bytes.len() as u64 >= end
    }
}

impl<'a> PartialFile<'a> {
    pub(super) fn new(head: &'a [u8], range: LoadedRange, size_bytes: u64) -> PartialFile<'a> {
        PartialFile { head, range, size_bytes, missing_end: Cell::new(0) }
    }

    /// The greatest end of the reads that failed because their bytes are in the file but not in memory. Zero if none
    /// failed.
    pub(super) fn missing_end(&self) -> u64 {
        self.missing_end.get()
    }

    pub(super) fn into_range(self) -> LoadedRange {
        self.range
    }
}

impl<'a> ReadRef<'a> for &'a PartialFile<'_> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size_bytes)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size_bytes).ok_or(())?;
        let found = part(self.head, offset..end).or_else(|| {
            let start = self.range.start;
            part(&self.range.bytes, offset.checked_sub(start)?..end.checked_sub(start)?)
        });
        if found.is_none() {
            self.missing_end.set(self.missing_end.get().max(end));
        }
        found.ok_or(())
    }

    /// The parser of archives does not call this: names in an archive have a length.
    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        Err(())
    }
}

fn part(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}
