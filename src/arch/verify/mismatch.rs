//! [`Mismatch`]: one difference between the linker's bytes and the verifier's.

/// A difference. The verifier reports it as [`LinkFault::Verification`](crate::error::LinkFault::Verification).
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Offset in the section in bytes, or an index, as `kind` says.
    pub(crate) offset: u64,
    /// The relocation's psABI name, or what else differs.
    pub(crate) kind: String,
    /// What the linker computed.
    pub(crate) found: String,
    /// What the verifier computed.
    pub(crate) expected: String,
}

impl Mismatch {
    pub(crate) fn new(offset: u64, kind: impl ToString, found: impl ToString, expected: impl ToString) -> Mismatch {
        Mismatch { offset, kind: kind.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}
