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
    pub(crate) fn as_str(self) -> &'a str {
        &self.text[self.start as usize..self.end as usize]
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
        // Mostly few and short: then the one allocation is that of the shared text.
        let mut text: SmallVec<[u8; 512]> = SmallVec::with_capacity(texts.clone().map(str::len).sum());
        texts.clone().for_each(|part| text.extend_from_slice(part.as_bytes()));
        let text: Arc<str> = Arc::from(std::str::from_utf8(&text).unwrap_or_default());
        let mut start = 0;
        texts.map(move |part| {
            let range = start..start + part.len();
            start = range.end;
            match (u32::try_from(range.start), u32::try_from(range.end)) {
                (Ok(start), Ok(end)) => Name { text: text.clone(), start, end },
                _ => Name::new(&text[range]),
            }
        })
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
