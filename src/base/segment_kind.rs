//! [`SegmentKind`]: the three kinds of code memory, each with one protection for life.
//!
//! Indexes the arrays of three that plans, windows and accounts are made of. Knows no sizes and no addresses.

/// What a range of code memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// Machine code and linker-made stubs: readable, executable, never writable through this view.
    Code,
    /// Constants, unwind tables, GOTs, data that only relocation writes: readable.
    ReadOnly,
    /// Data and zero-fill: readable, writable.
    Data,
}

impl SegmentKind {
    /// All pools, in index order.
    pub const ALL: [SegmentKind; 3] = [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data];

    /// Position in [`SegmentKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name used in errors and reports.
    pub const fn name(self) -> &'static str {
        match self {
            SegmentKind::Code => "code",
            SegmentKind::ReadOnly => "read-only",
            SegmentKind::Data => "data",
        }
    }
}
