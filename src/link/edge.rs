//! [`Edge`]: one relocation of a graph; [`BlockId`] and [`SymbolIndex`]: positions in the arrays of a graph.

use crate::arch::{EdgeKind, TemplateField};

/// The position of a block in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(crate) u32);

/// The position of a symbol in its graph. For a symbol of the object's own symbol table, this is its ELF symbol index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolIndex(pub(crate) u32);

/// A field in a block whose value depends on a symbol: a relocation (ORC: `jitlink::Edge`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Offset of the field in bytes from the start of its block. The field must lie within the block.
    pub offset: u32,
    /// How the value is computed and stored. It decides the width of the field.
    pub kind: EdgeKind,
    /// The symbol that the field refers to.
    pub symbol: SymbolIndex,
    /// The addend (`A` in the formulas of the psABI).
    pub addend: i64,
}

impl Edge {
    /// The edge of a field of a template that stands at offset `start` of its block.
    pub(crate) fn of_field<T>(field: &TemplateField<T>, start: u64, symbol: SymbolIndex) -> Edge {
        Edge { offset: start as u32 + field.offset, kind: field.kind, symbol, addend: field.addend }
    }
}

impl BlockId {
    /// For [`sort_by_number`](crate::base::sort_by_number).
    pub(crate) fn number(&self) -> u128 {
        self.0.into()
    }

    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl SymbolIndex {
    /// For [`sort_by_number`](crate::base::sort_by_number).
    pub(crate) fn number(&self) -> u128 {
        self.0.into()
    }

    /// The position as an index. For a symbol of the object's own symbol table, this is its ELF symbol index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
