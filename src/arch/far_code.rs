//! [`FarCode`]: a section of code some of whose references do not reach their targets, or have no fixed value.

use std::ops::Range;

use crate::arch::edge_kind::EdgeKind;

/// A section of code with far references: references whose target is out of reach, and references to thread-local
/// variables at distances that differ from thread to thread.
pub(crate) struct FarCode<'a> {
    /// The section's bytes in the object.
    pub(crate) content: &'a [u8],
    /// The section's address.
    pub(crate) address: u64,
    /// Offsets at which an instruction is known to begin, ascending.
    #[cfg_attr(not(feature = "range-extension"), allow(dead_code))]
    pub(crate) starts: &'a [u64],
    /// Offsets of all relocated fields, ascending.
    #[cfg_attr(not(feature = "range-extension"), allow(dead_code))]
    pub(crate) fields: &'a [u32],
    /// The far references, by ascending offset.
    pub(crate) references: &'a [FarReference],
    /// The address of the block of thunks, which all sections of the object share; `None` if no thunk is reserved.
    pub(crate) thunks: Option<u64>,
}

/// A reference that its instruction cannot hold.
#[derive(Clone, Copy)]
pub(crate) struct FarReference {
    /// Offset of the field in its section.
    pub(crate) offset: u32,
    pub(crate) kind: EdgeKind,
    pub(crate) value: FarValue,
}

/// What the operand of a far reference stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FarValue {
    /// `S + A`.
    #[cfg_attr(not(feature = "range-extension"), allow(dead_code))]
    Address(u64),
    /// A distance that differs from thread to thread.
    Distance(ThreadDistance),
}

/// The distance of a thread-local variable from the thread pointer, or from the start of a thread-local block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadDistance {
    /// The address of the descriptor of the variable.
    pub(crate) variable: u64,
    /// The address of the descriptor of the block's start; `None` for the thread pointer.
    pub(crate) block: Option<u64>,
    /// Bytes to add.
    pub(crate) addend: i64,
    /// The address of the function that the descriptors need ([`Arch::tls_descriptor`](crate::arch::Arch::tls_descriptor)).
    pub(crate) function: u64,
}

/// Why a far reference cannot be extended.
#[derive(Debug)]
pub(crate) struct FarCodeFault {
    /// Index of the reference.
    pub(crate) reference: usize,
    /// The range of its instruction in the section; empty if that is not known.
    pub(crate) instruction: Range<usize>,
    /// The reason, as a clause.
    pub(crate) problem: String,
}
