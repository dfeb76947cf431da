//! [`Frame`]: the address of a function and of its unwind information.
//!
//! A link hands the frames of its code to [`InFlight::finalize`](crate::memory::InFlight::finalize), which writes them
//! into the frame table (`frame_table.rs`).

use crate::base::{ExecutorAddr, impl_recycle};

/// A function with unwind information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The first byte of the function.
    pub start: ExecutorAddr,
    /// Its frame description entry (FDE).
    pub fde: ExecutorAddr,
}

impl_recycle!(Frame);
