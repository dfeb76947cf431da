//! [`BlockLines`]: the source lines of a block, as a generator hands them over.

use crate::link::edge::BlockId;
use crate::sync::Arc;

/// The source lines of the code of one block, which come from one file.
pub(crate) struct BlockLines {
    pub(crate) block: BlockId,
    pub(crate) file: Arc<str>,
    /// Offset in the block in bytes, and line; line 0 for code without one.
    pub(crate) rows: Vec<(u32, u32)>,
}
