//! [`KeptNames`]: the names of a link's externals, for a lookup that outlasts the borrow of the link. A name of the object is a range
//! of the object's bytes, which are shared. So no name is copied, except those that the linker or a plugin has added.

use std::ops::Range;

use crate::link::buffer::ObjectBuffer;

/// Names, in order.
pub(crate) struct KeptNames {
    object: ObjectBuffer,
    names: Vec<KeptName>,
}

enum KeptName {
    /// A range of the object.
    Object(Range<usize>),
    Copied(Box<str>),
}

impl KeptNames {
    /// Keeps names, most of which are parts of `object`.
    pub(crate) fn new<'a>(object: &ObjectBuffer, names: impl Iterator<Item = &'a str>) -> KeptNames {
        let bytes: &[u8] = object;
        let keep = |name: &str| {
            let start = (name.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
            let range = start..start.wrapping_add(name.len());
            match bytes.get(range.clone()) {
                Some(_) => KeptName::Object(range),
                None => KeptName::Copied(Box::from(name)),
            }
        };
        KeptNames { names: names.map(keep).collect(), object: object.clone() }
    }

    /// The names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let bytes: &[u8] = &self.object;
        self.names.iter().map(move |name| match name {
            KeptName::Object(range) => {
                bytes.get(range.clone()).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
            }
            KeptName::Copied(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_object_are_not_copied_and_others_are() {
        let object = ObjectBuffer::from(b"\0one\0sch\xc3\xb6n\0".to_vec());
        let text = std::str::from_utf8(&object).unwrap();
        let names = [&text[1..4], &text[5..11], "added", ""];
        let kept = KeptNames::new(&object, names.into_iter());
        drop(object.clone());
        assert_eq!(kept.iter().collect::<Vec<_>>(), names);
        let is_shared = |name: &KeptName| matches!(name, KeptName::Object(_));
        assert_eq!(kept.names.iter().map(is_shared).collect::<Vec<_>>()[..3], [true, true, false]);
    }
}
