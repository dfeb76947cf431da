//! [`MemoryEvent`]: a change of the code memory, as an observer sees it.
//!
//! The room `memory` makes the events and the room `session` delivers them to the observers. Neither may import the other, so
//! the type is in this room.

use std::fmt;

use crate::base::{ExecutorAddr, SegmentKind};

/// A change of the code memory. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryEvent {
    /// A window was mapped. It is address space that has no memory yet.
    #[non_exhaustive]
    WindowMapped {
        /// The first address of the window.
        address: ExecutorAddr,
        /// The size of the window.
        bytes: u64,
    },
    /// A window is about to be unmapped.
    #[non_exhaustive]
    WindowUnmapped {
        /// The first address of the window.
        address: ExecutorAddr,
        /// The size of the window.
        bytes: u64,
    },
    /// A large section was mapped. It has a mapping of its own because no window has space for it.
    #[non_exhaustive]
    LargeSectionMapped {
        /// The first address of the section.
        address: ExecutorAddr,
        /// The size of the mapping: a multiple of the page size.
        bytes: u64,
    },
    /// The mapping of a large section is about to be unmapped.
    #[non_exhaustive]
    LargeSectionUnmapped {
        /// The first address of the section.
        address: ExecutorAddr,
        /// The size of the mapping: a multiple of the page size.
        bytes: u64,
    },
    /// A pool grew: the manager now allocates from these slabs, or from this part of a slab of code.
    #[non_exhaustive]
    SlabOpened {
        /// The pool.
        pool: SegmentKind,
        /// The first address of the slabs.
        address: ExecutorAddr,
        /// The size of the slabs together.
        bytes: u64,
    },
    /// A pool shrank: these slabs are empty, and the manager no longer allocates from them.
    #[non_exhaustive]
    SlabClosed {
        /// The pool.
        pool: SegmentKind,
        /// The first address of the slabs.
        address: ExecutorAddr,
        /// The size of the slabs together.
        bytes: u64,
    },
    /// Free pages were returned to the kernel.
    #[non_exhaustive]
    Returned {
        /// The first address of the window that the pages belong to.
        window: ExecutorAddr,
        /// The size of the pages that had memory.
        bytes: u64,
        /// The number of entire slabs among them.
        slabs: usize,
    },
}

impl fmt::Display for MemoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryEvent::WindowMapped { address, bytes } => write!(f, "window mapped at {address}: {bytes} bytes"),
            MemoryEvent::WindowUnmapped { address, bytes } => write!(f, "window unmapped at {address}: {bytes} bytes"),
            MemoryEvent::LargeSectionMapped { address, bytes } => {
                write!(f, "large section mapped at {address}: {bytes} bytes")
            }
            MemoryEvent::LargeSectionUnmapped { address, bytes } => {
                write!(f, "large section unmapped at {address}: {bytes} bytes")
            }
            MemoryEvent::SlabOpened { pool, address, bytes } => {
                write!(f, "{} pool grew at {address} by {bytes} bytes", pool.name())
            }
            MemoryEvent::SlabClosed { pool, address, bytes } => {
                write!(f, "{} pool shrank at {address} by {bytes} bytes", pool.name())
            }
            MemoryEvent::Returned { window, bytes, slabs } => {
                write!(
                    f,
                    "{bytes} bytes of the window at {window} returned to the kernel, {slabs} entire slabs among them"
                )
            }
        }
    }
}
