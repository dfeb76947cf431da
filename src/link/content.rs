//! [`Content`] and [`Text`]: the bytes of a block and the name of a symbol, as ranges of the object or as data of others.

use std::fmt;
use std::ops::Range;

use crate::base::RecycledVec;
use crate::link::buffer::ObjectBuffer;

/// Where a block's bytes come from.
#[derive(Debug)]
pub(crate) enum Content {
    /// A range of the object.
    Object(Range<usize>),
    /// Bytes that the linker or a plugin made: an index into `SyntheticData::contents`.
    Synthetic(u32),
    /// Bytes that a generator handed over: an index into `SyntheticData::given`.
    Given(u32),
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
    pub(crate) given: Vec<GivenContent>,
}

/// Bytes of a block that a generator handed over and that are not in the buffer of its graph.
pub struct GivenContent(Source);

enum Source {
    Owned(Vec<u8>),
    Shared(ObjectBuffer),
    /// The generator writes the bytes into the memory of the link.
    Written {
        size: u64,
        write: Box<WriteContent>,
    },
}

type WriteContent = dyn Fn(&mut [u8]) + Send + Sync;

impl GivenContent {
    pub(crate) fn owned(bytes: Vec<u8>) -> GivenContent {
        GivenContent(Source::Owned(bytes))
    }

    pub(crate) fn shared(bytes: ObjectBuffer) -> GivenContent {
        GivenContent(Source::Shared(bytes))
    }

    pub(crate) fn written(size: u64, write: impl Fn(&mut [u8]) + Send + Sync + 'static) -> GivenContent {
        GivenContent(Source::Written { size, write: Box::new(write) })
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match &self.0 {
            Source::Owned(bytes) => bytes.len() as u64,
            Source::Shared(bytes) => bytes.len() as u64,
            Source::Written { size, .. } => *size,
        }
    }

    /// The bytes. `None` if the generator writes them later.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::Owned(bytes) => Some(bytes),
            Source::Shared(bytes) => Some(bytes),
            Source::Written { .. } => None,
        }
    }

    /// Writes the bytes into memory of their size.
    pub(crate) fn write(&self, memory: &mut [u8]) {
        match &self.0 {
            Source::Owned(bytes) => memory.copy_from_slice(bytes),
            Source::Shared(bytes) => memory.copy_from_slice(bytes),
            Source::Written { write, .. } => {
                // No byte of an earlier use of the memory reaches the generator.
                memory.fill(0);
                write(memory);
            }
        }
    }

    /// A copy of the bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size() as usize];
        self.write(&mut bytes);
        bytes
    }
}

impl fmt::Debug for GivenContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.size())
    }
}

impl SyntheticData {
    pub(crate) fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.names.is_empty() && self.given.is_empty()
    }

    pub(crate) fn add_content(&mut self, content: RecycledVec<u8>) -> Content {
        self.contents.push(content);
        Content::Synthetic(self.contents.len() as u32 - 1)
    }

    pub(crate) fn add_given(&mut self, given: GivenContent) -> Content {
        self.given.push(given);
        Content::Given(self.given.len() as u32 - 1)
    }

    pub(crate) fn add_name(&mut self, name: &str) -> Text {
        self.names.push(Box::from(name));
        Text::Synthetic(self.names.len() as u32 - 1)
    }
}
