//! The AArch64 relocation types as edge kinds (AAELF64, "Relocation codes and operations").

use crate::arch::aarch64::relocation::Aarch64Relocation;
use crate::arch::edge_kind::EdgeKind;
use crate::arch::relocation_type::RelocationType;

/// All types of relocatable objects, by number.
pub(crate) static TYPES: [RelocationType; 1024] = {
    let mut types = [RelocationType::NO_EDGE; 1024];
    let mut number = 0;
    while number < types.len() {
        if let Some(kind) = kind_of(number as u32) {
            types[number] = RelocationType::of(kind);
        }
        number += 1;
    }
    types
};

/// The kind of a relocation type; `None` for one that makes no edge: a marker ([`is_marker`]), or a type that is not
/// supported.
pub(crate) const fn kind_of(r_type: u32) -> Option<EdgeKind> {
    Some(match r_type {
        257 => EdgeKind::Pointer64,
        260 => EdgeKind::Delta64,
        307 => EdgeKind::GotOffset64,
        314 => EdgeKind::Branch32,
        315 => EdgeKind::GotLoad32,
        _ => match Aarch64Relocation::of_number(r_type) {
            Some(relocation) => EdgeKind::Aarch64(relocation),
            None => return None,
        },
    })
}

impl EdgeKind {
    /// The kind of an AArch64 relocation with a number of ELF for the Arm 64-bit Architecture: 283 is `R_AARCH64_CALL26`. `None` if
    /// relocatable objects have no such relocation, or if it changes no byte.
    pub fn of_aarch64(number: u32) -> Option<EdgeKind> {
        kind_of(number)
    }
}

/// The name of a kind's relocation. A kind without one on AArch64 occurs only in what the linker makes, as a field of data.
pub(crate) fn kind_name(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Pointer64 => "R_AARCH64_ABS64",
        EdgeKind::Delta64 => "R_AARCH64_PREL64",
        EdgeKind::Delta32 => "R_AARCH64_PREL32",
        EdgeKind::GotOffset64 => "R_AARCH64_GOTREL64",
        EdgeKind::Branch32 => "R_AARCH64_PLT32",
        EdgeKind::GotLoad32 => "R_AARCH64_GOTPCREL32",
        EdgeKind::Aarch64(relocation) => relocation.row().name,
        _ => "a relocation of another architecture",
    }
}

/// Whether an instruction of a kind computes the address of its symbol, or a part of it.
#[cfg(feature = "reload")]
pub(crate) fn makes_address(kind: EdgeKind) -> bool {
    use Aarch64Relocation as R;
    let EdgeKind::Aarch64(relocation) = kind else { return false };
    matches!(
        relocation,
        R::AdrPrelLo21
            | R::AdrPrelPgHi21
            | R::AdrPrelPgHi21Nc
            | R::AddAbsLo12Nc
            | R::MovwUabsG0
            | R::MovwUabsG0Nc
            | R::MovwUabsG1
            | R::MovwUabsG1Nc
            | R::MovwUabsG2
            | R::MovwUabsG2Nc
            | R::MovwUabsG3
    )
}

/// Whether edges of a kind occur in AArch64 code. The linker makes distances of 32 bits.
pub(crate) fn has_kind(kind: EdgeKind) -> bool {
    use EdgeKind::*;
    matches!(kind, Pointer64 | Delta64 | Delta32 | GotOffset64 | Branch32 | GotLoad32 | Aarch64(_))
}

/// Whether a relocation is only a marker, which makes no edge and changes no byte.
pub(crate) fn is_marker(r_type: u32) -> bool {
    const R_AARCH64_NONE: [u32; 2] = [0, 256];
    // Mark instructions of a sequence with a TLS descriptor, for linkers that rewrite it. Here it stays as it is.
    const R_AARCH64_TLSDESC_LDR: u32 = 567;
    const R_AARCH64_TLSDESC_CALL: u32 = 569;
    R_AARCH64_NONE.contains(&r_type) || (R_AARCH64_TLSDESC_LDR..=R_AARCH64_TLSDESC_CALL).contains(&r_type)
}

/// Relocations that occur only in a linker's output. They are not supported; errors name them.
pub(crate) const OF_LINKED_FILES: &[(u32, &str)] = &[
    (1024, "R_AARCH64_COPY"),
    (1025, "R_AARCH64_GLOB_DAT"),
    (1026, "R_AARCH64_JUMP_SLOT"),
    (1027, "R_AARCH64_RELATIVE"),
    (1028, "R_AARCH64_TLS_DTPMOD"),
    (1029, "R_AARCH64_TLS_DTPREL"),
    (1030, "R_AARCH64_TLS_TPREL"),
    (1031, "R_AARCH64_TLSDESC"),
    (1032, "R_AARCH64_IRELATIVE"),
];

/// The relocation for a field of eight bytes that holds an address.
pub(crate) const ABSOLUTE: u32 = 257;
/// The relocation that changes nothing.
pub(crate) const NONE: u32 = 0;

/// Bytes of an absolute field of debug information; `None` for another relocation.
pub(crate) fn absolute_width(r_type: u32) -> Option<usize> {
    match r_type {
        257 => Some(8),
        258 => Some(4),
        _ => None,
    }
}

/// The relocations by which the loader fills in the place of a thread-local variable: module, offset in the module's
/// block, distance from the thread pointer (`R_AARCH64_TLS_DTPMOD`, `R_AARCH64_TLS_DTPREL`, `R_AARCH64_TLS_TPREL`).
pub(crate) const THREAD_LOCAL: [u32; 3] = [1028, 1029, 1030];
