//! [`FarCode`]: a section of code some of whose references do not reach their targets.

// Only the feature reads the fields.
#![cfg_attr(not(feature = "range-extension"), allow(dead_code))]

use std::ops::Range;

use crate::arch::edge_kind::EdgeKind;

/// A section of code with far references: references whose target is out of reach.
pub(crate) struct FarCode<'a> {
    /// The section's bytes in the object.
    pub(crate) content: &'a [u8],
    /// The section's address.
    pub(crate) address: u64,
    /// Offsets at which an instruction is known to begin, ascending.
    pub(crate) starts: &'a [u64],
    /// Offsets of all relocated fields, ascending.
    pub(crate) fields: &'a [u32],
    /// The far references, by ascending offset.
    pub(crate) references: &'a [FarReference],
    /// The address of the block of thunks, which all sections of the object share; `None` if no thunk is reserved.
    pub(crate) thunks: Option<u64>,
}

/// A reference whose target is out of reach.
#[derive(Clone, Copy)]
pub(crate) struct FarReference {
    /// Offset of the field in its section.
    pub(crate) offset: u32,
    pub(crate) kind: EdgeKind,
    /// `S + A`.
    pub(crate) value: u64,
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
