//! [`Mismatch`]: one difference between the linker's bytes and the verifier's.

/// A difference. The verifier reports it as [`LinkFault::Verification`](crate::error::LinkFault::SecondOpinion).
pub(super) struct Mismatch {
    /// Offset in the section in bytes, or an index, as `kind` says.
    pub(super) offset: u64,
    /// The relocation's psABI name, or what else differs.
    pub(super) kind: String,
    /// What the linker computed.
    pub(super) found: String,
    /// What the verifier computed.
    pub(super) expected: String,
}

impl Mismatch {
    pub(super) fn new(offset: u64, kind: impl ToString, found: impl ToString, expected: impl ToString) -> Mismatch {
        Mismatch { offset, kind: kind.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}
