//! What the formulas of the link verifier work with: a relocation, a section as it is in memory, a difference.
//!
//! `link/verify` supplies a [`SectionView`]. The architecture checks each field of it by the formula that the psABI gives
//! for its relocation type. The formulas use numbers of relocation types, not [`EdgeKind`](crate::arch::EdgeKind): they
//! must not repeat a mistake of the linker's own tables.

mod field_value;
mod mismatch;
mod property;
mod relocation;
mod section_view;

pub(crate) use field_value::FieldValue;
pub(crate) use mismatch::Mismatch;
pub(crate) use property::has_property;
pub(crate) use relocation::Relocation;
pub(crate) use section_view::SectionView;
