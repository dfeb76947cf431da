//! The x86-64 relocation types as edge kinds (psABI 1.0, section 4.4.1, table 4.9).

use crate::arch::edge_kind::EdgeKind;
use crate::arch::relocation_type::RelocationType;

/// All types, by number. The psABI has no number from 52 on.
pub(crate) static TYPES: [RelocationType; 64] = {
    let mut types = [RelocationType::NO_EDGE; 64];
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
        1 => EdgeKind::Pointer64,
        2 => EdgeKind::Delta32,
        3 => EdgeKind::GotSlot32,
        4 => EdgeKind::Branch32,
        9 => EdgeKind::GotLoad32,
        10 => EdgeKind::Pointer32,
        11 => EdgeKind::Pointer32Signed,
        12 => EdgeKind::Pointer16,
        13 => EdgeKind::Delta16,
        14 => EdgeKind::Pointer8,
        15 => EdgeKind::Delta8,
        24 => EdgeKind::Delta64,
        25 | 31 => EdgeKind::GotOffset64,
        26 => EdgeKind::GotBase32,
        27 => EdgeKind::GotSlot64,
        28 => EdgeKind::GotLoad64,
        29 => EdgeKind::GotBase64,
        30 => EdgeKind::GotSlot64, // GOTPLT64: the same without lazy binding
        17 => EdgeKind::ThreadLocalOffset64,
        18 => EdgeKind::StaticOffset64,
        19 => EdgeKind::ThreadLocalPair32,
        20 => EdgeKind::ThreadLocalBlock32,
        21 => EdgeKind::ThreadLocalOffset32,
        22 | 44 | 47 | 50 => EdgeKind::StaticLoad32,
        23 => EdgeKind::StaticOffset32,
        34 | 45 | 48 | 51 => EdgeKind::ThreadLocalDescriptor32,
        32 => EdgeKind::Size32,
        33 => EdgeKind::Size64,
        41 => EdgeKind::GotLoad32Relaxable,
        42 => EdgeKind::GotLoad32RexRelaxable,
        43 | 46 | 49 => EdgeKind::GotLoad32Apx,
        _ => return None,
    })
}

/// The psABI's name of a kind's relocation.
pub(crate) fn kind_name(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Pointer64 => "R_X86_64_64",
        EdgeKind::Pointer32 => "R_X86_64_32",
        EdgeKind::Pointer32Signed => "R_X86_64_32S",
        EdgeKind::Pointer16 => "R_X86_64_16",
        EdgeKind::Pointer8 => "R_X86_64_8",
        EdgeKind::Delta64 => "R_X86_64_PC64",
        EdgeKind::Delta32 => "R_X86_64_PC32",
        EdgeKind::Delta16 => "R_X86_64_PC16",
        EdgeKind::Delta8 => "R_X86_64_PC8",
        EdgeKind::Branch32 => "R_X86_64_PLT32",
        EdgeKind::GotLoad32 => "R_X86_64_GOTPCREL",
        EdgeKind::GotLoad32Relaxable => "R_X86_64_GOTPCRELX",
        EdgeKind::GotLoad32RexRelaxable => "R_X86_64_REX_GOTPCRELX",
        EdgeKind::GotLoad32Apx => "R_X86_64_CODE_4_GOTPCRELX",
        EdgeKind::GotLoad64 => "R_X86_64_GOTPCREL64",
        EdgeKind::GotSlot64 => "R_X86_64_GOT64",
        EdgeKind::GotSlot32 => "R_X86_64_GOT32",
        EdgeKind::GotOffset64 => "R_X86_64_GOTOFF64",
        EdgeKind::GotBase32 => "R_X86_64_GOTPC32",
        EdgeKind::GotBase64 => "R_X86_64_GOTPC64",
        EdgeKind::Size32 => "R_X86_64_SIZE32",
        EdgeKind::Size64 => "R_X86_64_SIZE64",
        EdgeKind::ThreadLocalPair32 => "R_X86_64_TLSGD",
        EdgeKind::ThreadLocalBlock32 => "R_X86_64_TLSLD",
        EdgeKind::ThreadLocalOffset32 => "R_X86_64_DTPOFF32",
        EdgeKind::ThreadLocalOffset64 => "R_X86_64_DTPOFF64",
        EdgeKind::StaticLoad32 => "R_X86_64_GOTTPOFF",
        EdgeKind::StaticOffset32 => "R_X86_64_TPOFF32",
        EdgeKind::StaticOffset64 => "R_X86_64_TPOFF64",
        EdgeKind::ThreadLocalDescriptor32 => "R_X86_64_GOTPC32_TLSDESC",
        EdgeKind::Aarch64(relocation) => relocation.row().name,
    }
}

/// Whether a relocation is only a marker, which makes no edge and changes no byte.
pub(crate) fn is_marker(r_type: u32) -> bool {
    const R_X86_64_NONE: u32 = 0;
    // Marks the call through a TLS descriptor, for linkers that rewrite it. Here it stays as it is.
    const R_X86_64_TLSDESC_CALL: u32 = 35;
    matches!(r_type, R_X86_64_NONE | R_X86_64_TLSDESC_CALL)
}

/// Relocations that occur only in a linker's output. They are not supported; errors name them.
pub(crate) const OF_LINKED_FILES: &[(u32, &str)] = &[
    (5, "R_X86_64_COPY"),
    (6, "R_X86_64_GLOB_DAT"),
    (7, "R_X86_64_JUMP_SLOT"),
    (8, "R_X86_64_RELATIVE"),
    (16, "R_X86_64_DTPMOD64"),
    (36, "R_X86_64_TLSDESC"),
    (37, "R_X86_64_IRELATIVE"),
];

/// The relocation for a field of eight bytes that holds an address.
pub(crate) const ABSOLUTE: u32 = 1;
/// The relocation that changes nothing.
pub(crate) const NONE: u32 = 0;

/// Bytes of an absolute field of debug information; `None` for another relocation.
pub(crate) fn absolute_width(r_type: u32) -> Option<usize> {
    match r_type {
        1 => Some(8),
        10 => Some(4),
        _ => None,
    }
}

/// The relocations by which the loader fills in the place of a thread-local variable: module, offset in the module's
/// block, distance from the thread pointer (`R_X86_64_DTPMOD64`, `R_X86_64_DTPOFF64`, `R_X86_64_TPOFF64`).
pub(crate) const THREAD_LOCAL: [u32; 3] = [16, 17, 18];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::edge_kind::KindSet;

    #[test]
    fn the_set_of_kinds_with_a_thread_local_entry_agrees_with_the_kinds() {
        for kind in (0..64).filter_map(kind_of) {
            let is_listed = KindSet::THREAD_LOCAL_ENTRY.contains(kind);
            assert_eq!(is_listed, kind.thread_local_entry().is_some(), "{}", kind_name(kind));
        }
    }
}
