//! [`NewBlock`]: a block as a code generator hands it over.

use std::fmt;

use crate::base::SegmentKind;
use crate::link::buffer::ObjectBuffer;
use crate::link::content::GivenContent;

/// A block for [`GraphBuilder::add_block`](super::GraphBuilder::add_block).
#[derive(Debug)]
pub struct NewBlock<'a> {
    pub(super) section: &'a str,
    pub(super) kind: SegmentKind,
    pub(super) align: u64,
    pub(super) content: BlockContent<'a>,
    pub(super) is_thread_local: bool,
    pub(super) is_retained: bool,
}

/// The bytes of a block before fix-up. A slice is copied into the graph, which is the fastest for small blocks; a vector is
/// kept.
pub struct BlockContent<'a>(pub(super) ContentSource<'a>);

pub(super) enum ContentSource<'a> {
    /// Copied into the buffer of the graph.
    Copied(&'a [u8]),
    Given(GivenContent),
    /// This number of zeroes.
    Zero(u64),
}

impl<'a> NewBlock<'a> {
    /// A block of section `section`, in memory of one kind. Its alignment is 1 byte.
    pub fn new(section: &'a str, kind: SegmentKind, content: impl Into<BlockContent<'a>>) -> NewBlock<'a> {
        let content = content.into();
        NewBlock { section, kind, align: 1, content, is_thread_local: false, is_retained: false }
    }

    /// Machine code (`.text`), aligned to 16 bytes.
    pub fn code(content: impl Into<BlockContent<'a>>) -> NewBlock<'a> {
        NewBlock::new(".text", SegmentKind::Code, content).with_align(16)
    }

    /// Constants (`.rodata`), aligned to 16 bytes.
    pub fn constants(content: impl Into<BlockContent<'a>>) -> NewBlock<'a> {
        NewBlock::new(".rodata", SegmentKind::ReadOnly, content).with_align(16)
    }

    /// Variables (`.data`), aligned to 16 bytes.
    pub fn data(content: impl Into<BlockContent<'a>>) -> NewBlock<'a> {
        NewBlock::new(".data", SegmentKind::Data, content).with_align(16)
    }

    /// Variables that are zero at first (`.bss`), aligned to 16 bytes. `size` is in bytes.
    pub fn zeroes(size: u64) -> NewBlock<'a> {
        NewBlock::new(".bss", SegmentKind::Data, BlockContent::zeroes(size)).with_align(16)
    }

    /// Thread-local variables (`.tdata`), aligned to 16 bytes. Each thread has a copy, which begins with the content.
    pub fn thread_local(content: impl Into<BlockContent<'a>>) -> NewBlock<'a> {
        let block = NewBlock::new(".tdata", SegmentKind::Data, content).with_align(16);
        NewBlock { is_thread_local: true, ..block }
    }

    /// Sets the name of the section. Blocks of one section need not be neighbours. If it is a C identifier, `__start_NAME`
    /// and `__stop_NAME` are its bounds. A section whose blocks have an effect in an object, such as `.init_array`, is refused.
    pub fn in_section(self, section: &'a str) -> NewBlock<'a> {
        NewBlock { section, ..self }
    }

    /// Sets the alignment in bytes, a power of two.
    pub fn with_align(self, align: u64) -> NewBlock<'a> {
        NewBlock { align, ..self }
    }

    /// Keeps the block even if no visible symbol leads to it (`SHF_GNU_RETAIN`).
    pub fn retained(self) -> NewBlock<'a> {
        NewBlock { is_retained: true, ..self }
    }
}

impl<'a> BlockContent<'a> {
    /// Bytes that the generator writes into the memory of the link, so that nothing is copied. The link calls `write` with
    /// `size` bytes, whose content is not defined, and applies the edges after it.
    ///
    /// `write` may be called more than once, on any thread, and writes the same bytes each time. Plugins see no content of
    /// such a block before the fix-up.
    pub fn written(size: u64, write: impl Fn(&mut [u8]) + Send + Sync + 'static) -> BlockContent<'a> {
        BlockContent(ContentSource::Given(GivenContent::written(size, write)))
    }

    /// Bytes of a shared buffer, which the graph keeps until it is linked.
    pub fn shared(bytes: ObjectBuffer) -> BlockContent<'a> {
        BlockContent(ContentSource::Given(GivenContent::shared(bytes)))
    }

    /// This number of zeroes. No byte is stored before the link.
    pub fn zeroes(size: u64) -> BlockContent<'a> {
        BlockContent(ContentSource::Zero(size))
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        match &self.0 {
            ContentSource::Copied(bytes) => bytes.len() as u64,
            ContentSource::Given(given) => given.size(),
            ContentSource::Zero(size) => *size,
        }
    }

    /// A copy of the bytes. `None` for zero-fill.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        match &self.0 {
            ContentSource::Copied(bytes) => Some(bytes.to_vec()),
            ContentSource::Given(given) => Some(given.to_bytes()),
            ContentSource::Zero(_) => None,
        }
    }
}

impl<'a> From<&'a [u8]> for BlockContent<'a> {
    /// The bytes are copied.
    fn from(bytes: &'a [u8]) -> BlockContent<'a> {
        BlockContent(ContentSource::Copied(bytes))
    }
}

impl<'a> From<Vec<u8>> for BlockContent<'a> {
    /// The graph keeps the vector.
    fn from(bytes: Vec<u8>) -> BlockContent<'a> {
        BlockContent(ContentSource::Given(GivenContent::owned(bytes)))
    }
}

impl fmt::Debug for BlockContent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.size())
    }
}
