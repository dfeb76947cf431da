//! [`Formula`]: the value of an edge whose field is bits of an instruction, as what is taken from what.

/// The value of an edge: an address or a distance, minus the frame that it counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formula {
    pub(crate) base: Base,
    pub(crate) frame: Frame,
}

/// What a value is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// `S + A`.
    Symbol,
    /// `S + A`, and the symbol's stub may stand for `S`.
    Branch,
    /// The symbol's GOT slot.
    Slot,
    /// The GOT's pair of module and offset of a thread-local variable.
    Pair,
    /// The GOT's pair of the object's local-dynamic block.
    Block,
    /// The GOT slot with the variable's distance from the thread pointer.
    StaticSlot,
    /// The GOT's descriptor of a thread-local variable.
    Descriptor,
    /// The variable's distance from the start of the object's local-dynamic block, plus the addend.
    BlockOffset,
    /// The variable's distance from the thread pointer, plus the addend.
    StaticOffset,
}

/// What a value counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Zero. Addresses of the upper half of the address space are negative.
    Absolute,
    /// Zero. All addresses are positive.
    Unsigned,
    /// The field.
    Place,
    /// The page of the field; the value is the distance of pages.
    Page,
    /// The GOT.
    Got,
    /// The page of the GOT.
    GotPage,
}

impl Base {
    /// Whether the value is that of an entry of the GOT, so that an addend has no meaning.
    pub(crate) const fn is_entry(self) -> bool {
        matches!(self, Base::Slot | Base::Pair | Base::Block | Base::StaticSlot | Base::Descriptor)
    }
}

/// The page of an address, 4 KiB as the instructions count it, whatever the kernel's pages are.
pub(crate) const fn page_of(address: i128) -> i128 {
    address & !0xfff
}
