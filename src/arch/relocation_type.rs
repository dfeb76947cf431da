//! [`RelocationType`]: what a relocation type means, as a row of an architecture's table.

use crate::arch::edge_kind::{EdgeKind, KindSet};

/// What a relocation type means.
#[derive(Clone, Copy)]
pub(crate) struct RelocationType {
    /// The kind as a set; [`KindSet::NO_EDGE`] for a type that makes no edge.
    pub(crate) kinds: KindSet,
    /// See [`EdgeKind::uses`].
    pub(crate) uses: u32,
    /// Without meaning for a type that makes no edge.
    pub(crate) kind: EdgeKind,
    /// Bytes of the field.
    pub(crate) width: u8,
}

impl RelocationType {
    pub(crate) const NO_EDGE: RelocationType =
        RelocationType { kinds: KindSet::NO_EDGE, uses: 0, kind: EdgeKind::Pointer64, width: 0 };

    pub(crate) const fn of(kind: EdgeKind) -> RelocationType {
        RelocationType { kinds: KindSet::of(&[kind]), uses: kind.uses(), kind, width: kind.width() as u8 }
    }
}

/// All relocation types of an architecture, by number. The length is a power of two.
pub(crate) enum RelocationTypes {
    UpTo64(&'static [RelocationType; 64]),
    UpTo1024(&'static [RelocationType; 1024]),
}
