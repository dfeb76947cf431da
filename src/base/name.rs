//! [`Name`]: a shared symbol name.
//!
//! A stretch of a counted text, which is freed with its last user, so a million names defined and removed leave nothing.
//! The names of one object share one text: they come together, and go together. There is no pool to sweep: a lookup
//! compares text by hash and never interns, so looking for a name that does not exist allocates nothing.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use smallvec::SmallVec;

use crate::sync::Arc;

/// A symbol name. Cheap to clone; hashes and compares as its text.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    start: u32,
    end: u32,
}

/// A name, seen without counting on its text.
#[derive(Clone, Copy)]
pub(crate) struct NameRef<'a> {
    pub(crate) text: &'a Arc<str>,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl<'a> NameRef<'a> {
    /// Bytes, without a look at the text.
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// As [`as_str`](Self::as_str), without a look at the text.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.text.as_bytes().get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn as_str(self) -> &'a str {
        // Always there; without a way to panic, a text that nobody looks at costs nothing.
        self.text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn to_name(self) -> Name {
        Name { text: self.text.clone(), start: self.start, end: self.end }
    }
}

impl Name {
    /// A name with this text; of a text longer than 4 GiB, what comes before.
    pub fn new(text: &str) -> Name {
        Name::whole(Arc::from(text))
    }

    /// Names that share one allocation, which lives as long as any of them.
    pub fn all_of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> impl Iterator<Item = Name> {
        let text = Name::joined(texts.clone().map(str::as_bytes));
        let mut start = 0;
        texts.map(move |part| {
            let begin = start;
            start += part.len();
            Name::part_of(&text, begin, part.as_bytes())
        })
    }

    /// Texts one behind the other, for [`part_of`](Self::part_of): bytes that are known to be text.
    pub(crate) fn joined<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Arc<str> {
        // Mostly few and short: then the one allocation is that of the shared text.
        let mut text: SmallVec<[u8; 512]> = SmallVec::with_capacity(texts.clone().map(<[u8]>::len).sum());
        texts.for_each(|part| text.extend_from_slice(part));
        Arc::from(std::str::from_utf8(&text).unwrap_or_default())
    }

    /// A part of a shared text: `part`, which stands at `start` there. One that does not has a text of its own.
    #[inline]
    pub(crate) fn part_of(text: &Arc<str>, start: usize, part: &[u8]) -> Name {
        let end = start.wrapping_add(part.len());
        if start <= end && end <= text.len() && u32::try_from(end).is_ok() {
            return Name { text: text.clone(), start: start as u32, end: end as u32 };
        }
        Name::apart(part)
    }

    #[cold]
    fn apart(text: &[u8]) -> Name {
        Name::new(&String::from_utf8_lossy(text))
    }

    fn whole(text: Arc<str>) -> Name {
        let end = u32::try_from(text.len())
            .unwrap_or_else(|_| (0..=u32::MAX).rev().find(|end| text.is_char_boundary(*end as usize)).unwrap_or(0));
        Name { text, start: 0, end }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.borrowed().as_str()
    }

    pub(crate) fn borrowed(&self) -> NameRef<'_> {
        NameRef { text: &self.text, start: self.start, end: self.end }
    }
}

/// What stands ahead of the first null byte; `None` without one. Names are short: to go by words is over before a search
/// made for long texts has begun.
#[inline]
pub(crate) fn ahead_of_null(bytes: &[u8]) -> Option<&[u8]> {
    const ONES: u64 = u64::MAX / 255;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Borrows run upwards: the lowest bit that is left is that of the first null byte.
        let nulls = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if nulls != 0 {
            return bytes.get(..number * 8 + nulls.trailing_zeros() as usize / 8);
        }
    }
    let end = words.len() * 8 + rest.iter().position(|byte| *byte == 0)?;
    bytes.get(..end)
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

// Lets tables keyed by `Name` be searched with a `&str`: `Hash` and `Eq` of the two agree, as both are those of the text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::whole(Arc::from(text))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::base::sized;

    #[test]
    fn the_first_null_byte_is_found_wherever_it_stands() {
        for length in 0..sized(40, 20) {
            for first in 0..length {
                let mut bytes = vec![0x80u8; length];
                bytes[first] = 0;
                bytes[first + 1..].iter_mut().step_by(3).for_each(|byte| *byte = 0);
                bytes[first + 1..].iter_mut().skip(1).step_by(3).for_each(|byte| *byte = 1);
                assert_eq!(ahead_of_null(&bytes), Some(&bytes[..first]), "{bytes:?}");
            }
            for byte in [1, 0x7f, 0x80, 0xff] {
                assert_eq!(ahead_of_null(&vec![byte; length]), None);
            }
        }
    }

    #[test]
    fn parts_of_a_text_share_it_and_others_have_their_own() {
        let text: Arc<str> = Arc::from("schön\0fo\0");
        let names = [(0, "schön"), (7, "fo"), (10, ""), (9, "fo"), (usize::MAX, "fo"), (usize::MAX, "")]
            .map(|(start, part)| (Name::part_of(&text, start, part.as_bytes()), part));
        assert!(names.iter().all(|(name, part)| name.as_str() == *part));
        assert_eq!(names.map(|(name, _)| Arc::ptr_eq(&name.text, &text)), [true, true, true, false, false, false]);
    }

    #[test]
    fn names_that_share_a_text_are_their_own_and_equal_names_with_texts_of_their_own() {
        let texts = ["foo", "", "fo", "ofo", "schön", "foo"];
        let names: Vec<Name> = Name::all_of(texts.into_iter()).collect();
        assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), texts);
        assert_eq!(names, texts.map(Name::new));
        assert!(names.iter().all(|name| Arc::ptr_eq(&name.text, &names[0].text)));
        let table: HashMap<Name, usize> = names.into_iter().enumerate().map(|(index, name)| (name, index)).collect();
        assert_eq!((table.get("ofo"), table.get("foo"), table.get("of")), (Some(&3), Some(&5), None));
    }
}
