//! [`Content`] and [`Text`]: the bytes of a block and the name of a symbol, as ranges of the object or as data that the linker made.

use std::ops::Range;

use crate::base::RecycledVec;

/// Where a block's bytes come from.
#[derive(Debug)]
pub(crate) enum Content {
    /// A range of the object.
    Object(Range<usize>),
    /// Bytes that the linker or a plugin made: an index into `SyntheticData::contents`.
    Synthetic(u32),
    /// A table of the linker. The fixup phase writes all of it.
    Table,
    /// Zeroes.
    Zero,
}

/// A name.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    /// A range of the object.
    Object(Range<u32>),
    /// A range of the object from this position up to the next null byte. Most local symbols' names are never read, so
    /// their length is computed on demand.
    Terminated(u32),
    /// A name that is built into the linker.
    Fixed(&'static str),
    /// A name that the linker or a plugin made: an index into `SyntheticData::names`.
    Synthetic(u32),
}

/// Contents and names that are not in the object.
#[derive(Default)]
pub(crate) struct SyntheticData {
    pub(crate) contents: Vec<RecycledVec<u8>>,
    pub(crate) names: Vec<Box<str>>,
}

impl SyntheticData {
    pub(crate) fn add_content(&mut self, content: RecycledVec<u8>) -> Content {
        self.contents.push(content);
        Content::Synthetic(self.contents.len() as u32 - 1)
    }

    pub(crate) fn add_name(&mut self, name: &str) -> Text {
        self.names.push(Box::from(name));
        Text::Synthetic(self.names.len() as u32 - 1)
    }
}
