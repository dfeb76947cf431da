//! [`Name`]: a symbol name that is cheap to clone.
//!
//! A name is a range of a reference-counted text. The names of one object share one text, because the object defines and
//! removes them together. The last name frees the text, so a million names that were defined and removed leave no memory
//! behind.
//!
//! There is no intern table. A name hashes and compares as its text, so a lookup of a name that does not exist allocates
//! nothing.
//!
//! [`NameRef`] is a name borrowed from a table: copying it does not touch the reference count.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use smallvec::SmallVec;

use crate::sync::Arc;

/// A symbol name. It is cheap to clone, and hashes and compares as its text.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    start: u32,
    end: u32,
}

/// A borrowed [`Name`]: copying it does not change the reference count of the text.
#[derive(Clone, Copy)]
pub(crate) struct NameRef<'a> {
    pub(crate) text: &'a Arc<str>,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl<'a> NameRef<'a> {
    /// The length in bytes. Does not read the text.
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// As [`as_str`](Self::as_str), but without the check for character boundaries, so it does not read the text.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.text.as_bytes().get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn as_str(self) -> &'a str {
        // The range is always valid. Without a panic branch, the compiler drops a call whose result is not used.
        self.text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub(crate) fn to_name(self) -> Name {
        Name { text: self.text.clone(), start: self.start, end: self.end }
    }
}

impl Name {
    /// Makes a name with a text of its own. A text longer than 4 GiB is cut to the last character boundary below 4 GiB.
    pub fn new(text: &str) -> Name {
        Name::from_text(Arc::from(text))
    }

    /// Makes names that share one allocation. It is freed when the last of them is dropped. Long names have one each.
    pub fn all_of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> impl Iterator<Item = Name> {
        let text = Name::concat(texts.clone().map(str::as_bytes));
        let mut end = 0;
        texts.map(move |part| Name::next_part(&text, &mut end, part.as_bytes()))
    }

    /// Concatenates the texts that are not [long](LONG), for [`next_part`](Self::next_part). The caller knows that the bytes are
    /// UTF-8; otherwise the result is empty.
    pub(crate) fn concat<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Arc<str> {
        let texts = texts.filter(|part| part.len() < LONG);
        // Usually the texts fit into the inline buffer, so that the shared text is the only allocation.
        let mut text: SmallVec<[u8; 512]> = SmallVec::with_capacity(texts.clone().map(<[u8]>::len).sum());
        texts.for_each(|part| text.extend_from_slice(part));
        Arc::from(std::str::from_utf8(&text).unwrap_or_default())
    }

    /// Makes the name `part`, which is in the shared `text` at `start`. Where the range is not in `text`, the name gets a
    /// text of its own.
    #[inline]
    pub(crate) fn from_part(text: &Arc<str>, start: usize, part: &[u8]) -> Name {
        let end = start.wrapping_add(part.len());
        if start <= end && end <= text.len() && u32::try_from(end).is_ok() {
            return Name { text: text.clone(), start: start as u32, end: end as u32 };
        }
        Name::own_text(part)
    }

    /// Makes the name of `part`, the next of the texts that [`concat`](Self::concat) got. `end` is the end of the one before it in
    /// the shared `text`. A long name gets a text of its own: concatenation would copy its bytes twice.
    #[inline]
    pub(crate) fn next_part(text: &Arc<str>, end: &mut usize, part: &[u8]) -> Name {
        if part.len() >= LONG {
            return Name::own_text(part);
        }
        let start = *end;
        *end += part.len();
        Name::from_part(text, start, part)
    }

    #[cold]
    fn own_text(text: &[u8]) -> Name {
        Name::new(&String::from_utf8_lossy(text))
    }

    fn from_text(text: Arc<str>) -> Name {
        let end = u32::try_from(text.len())
            .unwrap_or_else(|_| (0..=u32::MAX).rev().find(|end| text.is_char_boundary(*end as usize)).unwrap_or(0));
        Name { text, start: 0, end }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.borrowed().as_str()
    }

    pub(crate) fn borrowed(&self) -> NameRef<'_> {
        NameRef { text: &self.text, start: self.start, end: self.end }
    }
}

/// The length in bytes from which a name does not share a concatenated text.
const LONG: usize = 512;

/// The bytes before the first null byte; `None` when there is no null byte. Names are short, so reading eight bytes at a time
/// is faster than a search that is tuned for long texts.
#[inline]
pub(crate) fn until_nul(bytes: &[u8]) -> Option<&[u8]> {
    const ONES: u64 = u64::MAX / 255;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The subtraction borrows towards higher bytes, so the lowest set bit belongs to the first null byte.
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

// A table keyed by `Name` can be searched with a `&str`, because `Hash` and `Eq` of both are those of the text.
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
        Name::from_text(Arc::from(text))
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
    fn until_nul_stops_at_the_first_null_byte_at_every_position() {
        for length in 0..sized(40, 20) {
            for first in 0..length {
                let mut bytes = vec![0x80u8; length];
                bytes[first] = 0;
                bytes[first + 1..].iter_mut().step_by(3).for_each(|byte| *byte = 0);
                bytes[first + 1..].iter_mut().skip(1).step_by(3).for_each(|byte| *byte = 1);
                assert_eq!(until_nul(&bytes), Some(&bytes[..first]), "{bytes:?}");
            }
            for byte in [1, 0x7f, 0x80, 0xff] {
                assert_eq!(until_nul(&vec![byte; length]), None);
            }
        }
    }

    #[test]
    fn a_name_shares_the_text_that_contains_it_and_otherwise_owns_one() {
        let text: Arc<str> = Arc::from("schön\0fo\0");
        let names = [(0, "schön"), (7, "fo"), (10, ""), (9, "fo"), (usize::MAX, "fo"), (usize::MAX, "")]
            .map(|(start, part)| (Name::from_part(&text, start, part.as_bytes()), part));
        assert!(names.iter().all(|(name, part)| name.as_str() == *part));
        assert_eq!(names.map(|(name, _)| Arc::ptr_eq(&name.text, &text)), [true, true, true, false, false, false]);
    }

    #[test]
    fn names_that_share_a_text_equal_names_with_texts_of_their_own() {
        let texts = ["foo", "", "fo", "ofo", "schön", "foo"];
        let names: Vec<Name> = Name::all_of(texts.into_iter()).collect();
        assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), texts);
        assert_eq!(names, texts.map(Name::new));
        assert!(names.iter().all(|name| Arc::ptr_eq(&name.text, &names[0].text)));
        let table: HashMap<Name, usize> = names.into_iter().enumerate().map(|(index, name)| (name, index)).collect();
        assert_eq!((table.get("ofo"), table.get("foo"), table.get("of")), (Some(&3), Some(&5), None));
    }

    #[test]
    fn a_long_name_has_a_text_of_its_own_and_the_others_share_one() {
        let long = ["l".repeat(LONG), "m".repeat(LONG - 1)];
        let texts = ["a", &long[0], "b", &long[1], "c"];
        let names: Vec<Name> = Name::all_of(texts.into_iter()).collect();
        assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), texts);
        assert_eq!(
            names.iter().map(|name| name.text.len()).collect::<Vec<_>>(),
            [LONG + 2, LONG, LONG + 2, LONG + 2, LONG + 2]
        );
    }
}
