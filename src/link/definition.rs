//! [`Definition`]: what a symbol of a graph stands for.

use crate::link::edge::BlockId;

/// What a symbol stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// An offset in bytes in a block. It may be equal to the block's size.
    Block(BlockId, u64),
    /// A fixed value (`SHN_ABS`).
    Absolute(u64),
    /// A definition outside the object. The link looks it up by name.
    External,
    /// No address: the symbol's section is not loaded or was dropped.
    Nowhere,
}
