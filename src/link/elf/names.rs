//! [`NameTable`]: a string table of an object, checked once, so that names need no checks of their own.
//!
//! A table is *plain* if it is ASCII and ends with a null byte, as nearly all are. In a plain table a null-terminated
//! ASCII name begins at every offset. Any other table is not used by the fast paths.

use std::cell::OnceCell;
use std::ops::Range;

use crate::base::until_nul;

/// A string table.
pub(super) struct NameTable<'a> {
    bytes: &'a [u8],
    /// Offset in the object, which is smaller than 4 GiB.
    start: u32,
    /// Whether the table is ASCII and ends with a null byte.
    is_plain: bool,
    /// The table as text. `None` if it is not UTF-8.
    text: OnceCell<Option<&'a str>>,
}

impl<'a> NameTable<'a> {
    /// The table in `range` of the object.
    pub(super) fn new(object: &'a [u8], range: Range<usize>) -> NameTable<'a> {
        let (bytes, start) = (&object[range.clone()], range.start as u32);
        let is_plain = bytes.last() == Some(&0) && is_ascii(bytes);
        NameTable { bytes, start, is_plain, text: OnceCell::new() }
    }

    /// A table that was found to be plain before.
    pub(super) fn plain(bytes: &'a [u8], start: u32) -> NameTable<'a> {
        NameTable { bytes, start, is_plain: true, text: OnceCell::new() }
    }

    /// Offset in the object.
    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a name begins at every offset.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether a name of the table may have this byte.
    pub(super) fn has_byte(&self, byte: u8) -> bool {
        memchr::memchr(byte, self.bytes).is_some()
    }

    /// Whether no name of the table has more than `longest` bytes. Searches only for the last null byte of each piece
    /// of `longest + 1` bytes.
    pub(super) fn are_at_most(&self, longest: usize) -> bool {
        let mut rest = self.bytes;
        while let Some(piece) = rest.get(..=longest) {
            let Some(end) = piece.iter().rposition(|byte| *byte == 0) else { return false };
            rest = &rest[end + 1..];
        }
        true
    }

    /// A plain table from the offset `at` on, where a name begins. `None` if the table is not plain, or if `at` is
    /// outside.
    #[inline]
    pub(super) fn suffix(&self, at: u32) -> Option<&'a [u8]> {
        if self.is_plain { self.bytes_from(at) } else { None }
    }

    /// The table from the offset `at` on, plain or not. `None` if `at` is outside.
    #[inline]
    pub(super) fn bytes_from(&self, at: u32) -> Option<&'a [u8]> {
        self.bytes.get(at as usize..).filter(|rest| !rest.is_empty())
    }

    /// The table as text, if it is UTF-8.
    pub(super) fn text(&self) -> Option<&'a str> {
        *self.text.get_or_init(|| std::str::from_utf8(self.bytes).ok())
    }

    /// The name at the offset `at`, if the table is UTF-8.
    pub(super) fn text_at(&self, at: u32) -> Option<&'a str> {
        let rest = self.text()?.get(at as usize..)?;
        rest.get(..until_nul(rest.as_bytes())?.len())
    }
}

/// Whether no byte has its upper bit set. Reads eight bytes at a time; for short tables this is cheaper than `is_ascii`
/// of std.
fn is_ascii(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let rest = rest.iter().fold(0, |union, byte| union | byte);
    words.iter().fold(u64::from(rest), |union, word| union | u64::from_le_bytes(*word)) & UPPER_BITS == 0
}

const UPPER_BITS: u64 = 0x8080_8080_8080_8080;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_at_every_offset_of_a_plain_table() {
        let names = |bytes: &'static [u8]| NameTable::new(bytes, 0..bytes.len());
        let plain = names(b"\0a long name.text\0b\0");
        assert_eq!(plain.suffix(1).and_then(until_nul), Some(&b"a long name.text"[..]));
        assert_eq!((plain.suffix(12), plain.suffix(18)), (Some(&b".text\0b\0"[..]), Some(&b"b\0"[..])));
        assert_eq!((plain.suffix(20), plain.suffix(u32::MAX), plain.text_at(20)), (None, None, None));
        for other in [&b""[..], b"\0ab", b"\0\xc3\xb6\0", b"\0fourteen byte\x80\0", b"\0\x80four and more\0"] {
            assert_eq!(names(other).suffix(0), None, "{other:?}");
        }
        assert_eq!(names("\0schön\0".as_bytes()).text_at(1), Some("schön"));
        assert_eq!(names("\0schön\0".as_bytes()).text_at(5), None, "inside a character");
    }

    #[test]
    fn are_at_most_accepts_the_longest_length_and_no_shorter_one() {
        for (bytes, longest) in [(&b""[..], 0), (b"\0", 0), (b"\0a\0four\0ab\0", 4), (b"no end", 6), (b"\0ab\0abc", 3)]
        {
            let names = NameTable::new(bytes, 0..bytes.len());
            for limit in 0..10 {
                assert_eq!(names.are_at_most(limit), limit >= longest, "{bytes:?}, {limit}");
            }
        }
    }
}
