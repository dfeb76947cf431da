//! [`Names`]: a string table, looked at once, so that no name in it has to be looked at again.

use std::cell::OnceCell;
use std::ops::Range;

use crate::base::ahead_of_null;

/// A string table.
pub(super) struct Names<'a> {
    bytes: &'a [u8],
    /// Where it stands in the object, which is smaller than 4 GiB.
    start: u32,
    /// It is ASCII and ends with a null byte, as nearly all do: wherever in it a name begins, there is one.
    is_plain: bool,
    /// All of it, if all of it is text.
    text: OnceCell<Option<&'a str>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(object: &'a [u8], range: Range<usize>) -> Names<'a> {
        let (bytes, start) = (&object[range.clone()], range.start as u32);
        let is_plain = bytes.last() == Some(&0) && is_ascii(bytes);
        Names { bytes, start, is_plain, text: OnceCell::new() }
    }

    /// One that has been seen to be plain.
    pub(super) fn plain(bytes: &'a [u8], start: u32) -> Names<'a> {
        Names { bytes, start, is_plain: true, text: OnceCell::new() }
    }

    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a name is wherever a byte is.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether no name in it has more than so many bytes. Few of the table's are looked at: the last null byte of every so
    /// many.
    pub(super) fn are_within(&self, longest: usize) -> bool {
        let mut rest = self.bytes;
        while let Some(ahead) = rest.get(..=longest) {
            let Some(end) = ahead.iter().rposition(|byte| *byte == 0) else { return false };
            rest = &rest[end + 1..];
        }
        true
    }

    /// From the beginning of a name to the end of the table, if there is a name at this place without doubt.
    #[inline]
    pub(super) fn onwards(&self, at: u32) -> Option<&'a [u8]> {
        if self.is_plain { self.bytes.get(at as usize..).filter(|rest| !rest.is_empty()) } else { None }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        *self.text.get_or_init(|| std::str::from_utf8(self.bytes).ok())
    }

    /// The name at this place, if all of the table is text.
    pub(super) fn text_at(&self, at: u32) -> Option<&'a str> {
        let rest = self.text()?.get(at as usize..)?;
        rest.get(..ahead_of_null(rest.as_bytes())?.len())
    }
}

/// Whether none of the bytes has its upper bit: for tables of some hundred bytes, whose ends other ways go over one by one.
fn is_ascii(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let rest = rest.iter().fold(0, |all, byte| all | byte);
    words.iter().fold(u64::from(rest), |all, word| all | u64::from_le_bytes(*word)) & UPPER_BITS == 0
}

const UPPER_BITS: u64 = 0x8080_8080_8080_8080;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_without_doubt_where_a_plain_table_has_a_byte() {
        let names = |bytes: &'static [u8]| Names::new(bytes, 0..bytes.len());
        let plain = names(b"\0a long name.text\0b\0");
        assert_eq!(plain.onwards(1).and_then(ahead_of_null), Some(&b"a long name.text"[..]));
        assert_eq!((plain.onwards(12), plain.onwards(18)), (Some(&b".text\0b\0"[..]), Some(&b"b\0"[..])));
        assert_eq!((plain.onwards(20), plain.onwards(u32::MAX), plain.text_at(20)), (None, None, None));
        for other in [&b""[..], b"\0ab", b"\0\xc3\xb6\0", b"\0fourteen byte\x80\0", b"\0\x80four and more\0"] {
            assert_eq!(names(other).onwards(0), None, "{other:?}");
        }
        assert_eq!(names("\0schön\0".as_bytes()).text_at(1), Some("schön"));
        assert_eq!(names("\0schön\0".as_bytes()).text_at(5), None, "within a character");
    }

    #[test]
    fn names_are_within_the_length_of_the_longest_and_of_nothing_less() {
        for (bytes, longest) in [(&b""[..], 0), (b"\0", 0), (b"\0a\0four\0ab\0", 4), (b"no end", 6), (b"\0ab\0abc", 3)]
        {
            let names = Names::new(bytes, 0..bytes.len());
            for limit in 0..10 {
                assert_eq!(names.are_within(limit), limit >= longest, "{bytes:?}, {limit}");
            }
        }
    }
}
