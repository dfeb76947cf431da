//! The relocation types once more, for the verifier.

use crate::arch::edge_kind::EdgeKind;
use crate::arch::verify::Relocation;

/// A relocation, with the width and the name of its type.
pub(crate) fn relocation(offset: u64, r_type: u32, symbol: u32, addend: i64) -> Relocation {
    let row = RELOCATIONS.into_iter().find(|(number, ..)| *number == r_type);
    let (width, name) = row.map_or((0, "relocation of an unknown type"), |(_, width, name)| (width, name));
    // Relaxation of a GOT load rewrites the two bytes before the field with it (psABI B.2).
    let rewritable_before = if matches!(r_type, 41 | 42) { 2 } else { 0 };
    Relocation { offset, r_type, symbol, addend, width, name, rewritable_before }
}

/// Whether a relocation of a type changes bytes: all but `R_X86_64_NONE` and `R_X86_64_TLSDESC_CALL`.
pub(crate) fn changes_bytes(r_type: u32) -> bool {
    !matches!(r_type, 0 | 35)
}

/// The relocation type with the formula of an edge kind.
pub(crate) fn number_of(kind: EdgeKind) -> u32 {
    use EdgeKind::*;
    match kind {
        Pointer64 => 1,
        Delta32 => 2,
        GotSlot32 => 3,
        Branch32 => 4,
        GotLoad32 => 9,
        Pointer32 => 10,
        Pointer32Signed => 11,
        Pointer16 => 12,
        Delta16 => 13,
        Pointer8 => 14,
        Delta8 => 15,
        ThreadLocalOffset64 => 17,
        StaticOffset64 => 18,
        ThreadLocalPair32 => 19,
        ThreadLocalBlock32 => 20,
        ThreadLocalOffset32 => 21,
        StaticLoad32 => 22,
        StaticOffset32 => 23,
        Delta64 => 24,
        GotOffset64 => 25,
        GotBase32 => 26,
        GotSlot64 => 27,
        GotLoad64 => 28,
        GotBase64 => 29,
        Size32 => 32,
        Size64 => 33,
        ThreadLocalDescriptor32 => 34,
        GotLoad32Relaxable => 41,
        GotLoad32RexRelaxable => 42,
        GotLoad32Apx => 43,
        // Refused: `edge_rules.rs`.
        Aarch64(_) => 0,
    }
}

/// Relocation types: number, bytes of the field, name (psABI 1.0, 4.4.1, table 4.9).
const RELOCATIONS: [(u32, usize, &str); 40] = [
    (1, 8, "R_X86_64_64"),
    (2, 4, "R_X86_64_PC32"),
    (3, 4, "R_X86_64_GOT32"),
    (4, 4, "R_X86_64_PLT32"),
    (9, 4, "R_X86_64_GOTPCREL"),
    (10, 4, "R_X86_64_32"),
    (11, 4, "R_X86_64_32S"),
    (12, 2, "R_X86_64_16"),
    (13, 2, "R_X86_64_PC16"),
    (14, 1, "R_X86_64_8"),
    (15, 1, "R_X86_64_PC8"),
    (17, 8, "R_X86_64_DTPOFF64"),
    (18, 8, "R_X86_64_TPOFF64"),
    (19, 4, "R_X86_64_TLSGD"),
    (20, 4, "R_X86_64_TLSLD"),
    (21, 4, "R_X86_64_DTPOFF32"),
    (22, 4, "R_X86_64_GOTTPOFF"),
    (23, 4, "R_X86_64_TPOFF32"),
    (24, 8, "R_X86_64_PC64"),
    (25, 8, "R_X86_64_GOTOFF64"),
    (26, 4, "R_X86_64_GOTPC32"),
    (27, 8, "R_X86_64_GOT64"),
    (28, 8, "R_X86_64_GOTPCREL64"),
    (29, 8, "R_X86_64_GOTPC64"),
    (30, 8, "R_X86_64_GOTPLT64"),
    (31, 8, "R_X86_64_PLTOFF64"),
    (32, 4, "R_X86_64_SIZE32"),
    (33, 8, "R_X86_64_SIZE64"),
    (34, 4, "R_X86_64_GOTPC32_TLSDESC"),
    (41, 4, "R_X86_64_GOTPCRELX"),
    (42, 4, "R_X86_64_REX_GOTPCRELX"),
    (43, 4, "R_X86_64_CODE_4_GOTPCRELX"),
    (44, 4, "R_X86_64_CODE_4_GOTTPOFF"),
    (45, 4, "R_X86_64_CODE_4_GOTPC32_TLSDESC"),
    (46, 4, "R_X86_64_CODE_5_GOTPCRELX"),
    (47, 4, "R_X86_64_CODE_5_GOTTPOFF"),
    (48, 4, "R_X86_64_CODE_5_GOTPC32_TLSDESC"),
    (49, 4, "R_X86_64_CODE_6_GOTPCRELX"),
    (50, 4, "R_X86_64_CODE_6_GOTTPOFF"),
    (51, 4, "R_X86_64_CODE_6_GOTPC32_TLSDESC"),
];
