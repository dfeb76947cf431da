//! [`MemoryEvent`]: what becomes of code memory. It stands here since the room that tells and the one that passes it on
//! do not know each other.

use std::fmt;

use crate::base::{ExecutorAddr, SegmentKind};

/// What became of code memory. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryEvent {
    /// A window was mapped: address space, which holds no memory yet.
    #[non_exhaustive]
    WindowMapped {
        /// Where it starts.
        address: ExecutorAddr,
        /// How long it is.
        bytes: u64,
    },
    /// A window is about to be unmapped.
    #[non_exhaustive]
    WindowUnmapped {
        /// Where it starts.
        address: ExecutorAddr,
        /// How long it is.
        bytes: u64,
    },
    /// A section too large for a window was mapped apart.
    #[non_exhaustive]
    ApartMapped {
        /// Where it starts.
        address: ExecutorAddr,
        /// In whole pages.
        bytes: u64,
    },
    /// A section that was mapped apart is about to be unmapped.
    #[non_exhaustive]
    ApartUnmapped {
        /// Where it starts.
        address: ExecutorAddr,
        /// In whole pages.
        bytes: u64,
    },
    /// A pool grew: these slabs are allocated from, from now on.
    #[non_exhaustive]
    SlabOpened {
        /// The pool.
        pool: SegmentKind,
        /// Where they start.
        address: ExecutorAddr,
        /// How long they are.
        bytes: u64,
    },
    /// A pool shrank: nothing lives in these slabs, and nothing is allocated from them.
    #[non_exhaustive]
    SlabClosed {
        /// The pool.
        pool: SegmentKind,
        /// Where they start.
        address: ExecutorAddr,
        /// How long they are.
        bytes: u64,
    },
    /// Pages that nothing lives in went back to the kernel.
    #[non_exhaustive]
    Returned {
        /// Of which window: where it starts.
        window: ExecutorAddr,
        /// Of pages that held something.
        bytes: u64,
        /// How many whole slabs these were.
        slabs: usize,
    },
}

impl fmt::Display for MemoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryEvent::WindowMapped { address, bytes } => write!(f, "window mapped at {address}: {bytes} bytes"),
            MemoryEvent::WindowUnmapped { address, bytes } => write!(f, "window unmapped at {address}: {bytes} bytes"),
            MemoryEvent::ApartMapped { address, bytes } => {
                write!(f, "section mapped apart at {address}: {bytes} bytes")
            }
            MemoryEvent::ApartUnmapped { address, bytes } => {
                write!(f, "section apart unmapped at {address}: {bytes} bytes")
            }
            MemoryEvent::SlabOpened { pool, address, bytes } => {
                write!(f, "{} pool grew at {address} by {bytes} bytes", pool.name())
            }
            MemoryEvent::SlabClosed { pool, address, bytes } => {
                write!(f, "{} pool shrank at {address} by {bytes} bytes", pool.name())
            }
            MemoryEvent::Returned { window, bytes, slabs } => {
                write!(f, "{bytes} bytes of the window at {window} returned, in them {slabs} whole slabs")
            }
        }
    }
}
