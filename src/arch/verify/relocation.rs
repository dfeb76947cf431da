//! [`Relocation`]: a relocation as the verifier sees it.

use std::ops::Range;

/// A relocation of the object; or an edge that the linker or a plugin made, as the relocation with the same formula.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) r_type: u32,
    pub(crate) symbol: u32,
    pub(crate) addend: i64,
    /// Bytes of the field; zero for an unknown type.
    pub(crate) width: usize,
    /// The psABI's name of the type.
    pub(crate) name: &'static str,
    /// Bytes before the field that the linker may rewrite with it.
    pub(crate) rewritable_before: usize,
}

impl Relocation {
    /// The range of the field in its section.
    pub(crate) fn field(&self) -> Range<usize> {
        self.offset as usize..(self.offset as usize).saturating_add(self.width)
    }

    /// The field and the bytes before it that the linker may rewrite.
    pub(crate) fn rewritable(&self) -> Range<usize> {
        self.field().start.saturating_sub(self.rewritable_before)..self.field().end
    }
}
