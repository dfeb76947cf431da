//! [`FoundExternal`]: what the lookup of one external symbol of a link found.
//!
//! The caller of the link looks the externals up. It makes one `FoundExternal` for each, in the order of the link's
//! externals. `targets.rs` takes the addresses. `fixup.rs` reads the other fields.

use crate::base::ExecutorAddr;

/// What the lookup of an external symbol found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoundExternal {
    /// The address. Null for a weak external that nothing defines. For a thread-local variable, this is a
    /// [`TlsIndex`](crate::base::TlsIndex), as an address.
    pub address: ExecutorAddr,
    /// Whether the symbol is known to be a function. A stub may then stand for a function that is out of reach.
    pub is_callable: bool,
    /// `None` for a symbol that is not thread-local. `Some(offset)` for a thread-local variable: `offset` is the
    /// variable's distance in bytes from the thread pointer, if the link asked for the distance and every thread has
    /// the same one.
    pub thread_local: Option<Option<i64>>,
    /// The alignment in bytes of the block of a thread-local variable that takes the place of a common symbol. Zero for others.
    pub block_align: u64,
}
