//! [`SegmentKind`]: the three kinds of code memory. The protection of each kind never changes.
//!
//! The kind is the index into the arrays of three in plans, windows and accounts. It knows no sizes and no addresses.

/// The kind of a range of code memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// Machine code and linker-made stubs: readable and executable, never writable through this view.
    Code,
    /// Constants, unwind tables, GOTs, and data that only relocation writes: readable.
    ReadOnly,
    /// Data and zero-fill: readable and writable.
    Data,
}

impl SegmentKind {
    /// All kinds, in index order.
    pub const ALL: [SegmentKind; 3] = [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data];

    /// The position in [`SegmentKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in errors and reports.
    pub const fn name(self) -> &'static str {
        match self {
            SegmentKind::Code => "code",
            SegmentKind::ReadOnly => "read-only",
            SegmentKind::Data => "data",
        }
    }
}
