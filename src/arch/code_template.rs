//! [`CodeTemplate`]: machine code of the linker's own, with fields to fill in.

use crate::arch::edge_kind::EdgeKind;

/// Machine code whose fields depend on symbols. `T` names the symbols that one template needs.
pub(crate) struct CodeTemplate<T: 'static> {
    pub(crate) bytes: &'static [u8],
    pub(crate) fields: &'static [TemplateField<T>],
}

/// A field of a template: an edge without its symbol.
pub(crate) struct TemplateField<T> {
    /// Offset in the template in bytes.
    pub(crate) offset: u32,
    pub(crate) kind: EdgeKind,
    pub(crate) addend: i64,
    /// What the field refers to.
    pub(crate) target: T,
}

/// What the code of an indirect function refers to.
#[derive(Clone, Copy)]
pub(crate) enum IndirectTarget {
    /// The slot that the stub jumps through.
    Slot,
    /// The function that chooses the implementation.
    Resolver,
    /// The part that all entries of an object share.
    Common,
}

/// The code for the indirect functions of an object. `link/indirect.rs` says how the parts work together.
pub(crate) struct IndirectCode {
    /// The part that all entries share. Its fields call functions of the C library, by name.
    pub(crate) common: CodeTemplate<&'static str>,
    /// The stub, then the entry.
    pub(crate) stub_and_entry: CodeTemplate<IndirectTarget>,
    /// Offset of the entry in `stub_and_entry`.
    pub(crate) entry: u64,
}

/// The code that takes branches further than they reach. `link/veneer_plan.rs` says where it is.
pub(crate) struct VeneerCode {
    /// In code of at most as many bytes, every branch of `branches` reaches its target.
    pub(crate) reach: u64,
    /// Bytes of code between two blocks of veneers. The rest of the reach is for the veneers.
    pub(crate) group: u64,
    pub(crate) branches: &'static [EdgeKind],
    /// Jumps to a definition of the same object.
    pub(crate) direct: CodeTemplate<()>,
    /// Jumps to the address in the slot of a symbol.
    pub(crate) through_slot: CodeTemplate<()>,
}

/// What the code that registers a handler refers to.
#[derive(Clone, Copy)]
pub(crate) enum HandlerTarget {
    /// `__dso_handle` of the object.
    Handle,
    /// The function that registers the handler.
    Function,
}

/// What a counter stub refers to.
#[derive(Clone, Copy)]
pub(crate) enum CounterTarget {
    /// The number of calls that are left, in eight bytes.
    Counter,
    /// The word with the address of the entry that is called when none is left.
    Entry,
    /// The function whose calls are counted.
    Function,
}
