//! [`Parts`]: the bytes of an archive, of which only some are in memory.
//!
//! Whoever parses an archive asks for bytes by their place. Bytes that are not there are an error, and [`Parts::wanted`] says
//! how far the file has to be read for the next try.

use std::cell::Cell;
use std::ops::Range;

use object::ReadRef;

use crate::link::buffer::ObjectBuffer;

/// The first bytes of a file, and a window somewhere behind them.
pub(super) struct Parts<'a> {
    head: &'a [u8],
    window: Window,
    size_bytes: u64,
    wanted: Cell<u64>,
}

/// Bytes of a file from `start` on.
#[derive(Default)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) bytes: ObjectBuffer,
}

impl Window {
    /// Whether it holds bytes up to `end`.
    pub(super) fn reaches(&self, end: u64) -> bool {
        !self.bytes.is_empty() && self.start + self.bytes.len() as u64 >= end
    }
}

impl<'a> Parts<'a> {
    pub(super) fn new(head: &'a [u8], window: Window, size_bytes: u64) -> Parts<'a> {
        Parts { head, window, size_bytes, wanted: Cell::new(0) }
    }

    /// The end of what was asked for, lies in the file, and is not there. Zero if nothing is missing.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.get()
    }

    pub(super) fn into_window(self) -> Window {
        self.window
    }
}

impl<'a> ReadRef<'a> for &'a Parts<'_> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size_bytes)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size_bytes).ok_or(())?;
        let found = part(self.head, offset..end).or_else(|| {
            let start = self.window.start;
            part(&self.window.bytes, offset.checked_sub(start)?..end.checked_sub(start)?)
        });
        if found.is_none() {
            self.wanted.set(self.wanted.get().max(end));
        }
        found.ok_or(())
    }

    /// No archive is read this way: names have a size.
    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        Err(())
    }
}

fn part(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}
