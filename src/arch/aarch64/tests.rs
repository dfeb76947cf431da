//! The table of relocations against the verifier's formulas, which are written from the names of AAELF64, and against
//! instructions that GNU `as` encoded.

use super::relocation::Aarch64Relocation;
use super::relocations::{TYPES, kind_of};
use super::verify;
use crate::arch::edge_kind::{EdgeKind, KindSet};

/// An instruction whose fields are all ones and one whose are all zeroes: only the bits of the field may change.
const INSTRUCTIONS: [u32; 4] = [0, u32::MAX, 0x9000_0003, 0xf280_0005];

fn stored(relocation: Aarch64Relocation, old: u32, value: i128) -> u64 {
    let width = relocation.row().field.width();
    let mut field = old.to_le_bytes()[..width].to_vec();
    relocation.row().field.store(&mut field, value);
    field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[test]
fn every_relocation_stores_what_the_verifier_expects_and_refuses_the_same_values() {
    assert_eq!(Aarch64Relocation::ALL.len(), 107);
    for relocation in Aarch64Relocation::ALL {
        let row = relocation.row();
        let name = row.name.strip_prefix("R_AARCH64_").unwrap();
        let (min, max) = row.range.unwrap_or((i64::MIN.into(), i64::MAX.into()));
        let unit = i128::from(row.field.multiple());
        // The first and the last values that fit, those next to them, and some between.
        let (first, last) = (min + (-min).rem_euclid(unit), max - max.rem_euclid(unit));
        let within = [first, first + unit, last, last - unit, 0, unit, 0x5a5_a5a5 / unit * unit, -0x5a5_a5a0];
        let mask = u64::MAX >> (64 - 8 * row.field.width());
        for value in within.into_iter().filter(|value| (min..=max).contains(value) && value % unit == 0) {
            for old in INSTRUCTIONS.map(|old| old & mask as u32) {
                let expected = verify::stored(name, old.into(), value).map(|stored| stored & mask);
                assert_eq!(Some(stored(*relocation, old, value)), expected, "{name} of {value:#x} in {old:#x}");
            }
        }
        if row.range.is_some() {
            for value in [first - unit, last + unit] {
                assert_eq!(verify::stored(name, 0, value), None, "{name} of {value:#x} is out of range");
            }
        }
        if unit > 1 {
            assert_eq!(verify::stored(name, 0, first + 1), None, "{name}: misaligned");
        }
    }
}

#[test]
fn relocations_of_gnu_as_have_its_encodings() {
    use Aarch64Relocation::*;
    // Encoded by GNU `as` from the instruction with the number in place of the symbol.
    let cases = [
        (AdrPrelPgHi21, 0x9000_0003, 0x1234_5000, 0xb009_1a23), // adrp x3, 0x12345000
        (AdrPrelLo21, 0x1000_0000, -1, 0x70ff_ffe0),            // adr x0, . - 1
        (AddAbsLo12Nc, 0x9100_0021, 0x7_6abc, 0x912a_f021),     // add x1, x1, 0xabc
        (Ldst8AbsLo12Nc, 0x3940_0020, 0xabc, 0x396a_f020),      // ldrb w0, [x1, 0xabc]
        (Ldst16AbsLo12Nc, 0x7940_0020, 0xabc, 0x7955_7820),     // ldrh w0, [x1, 0xabc]
        (Ldst32AbsLo12Nc, 0xb940_0020, 0xabc, 0xb94a_bc20),     // ldr w0, [x1, 0xabc]
        (Ldst64AbsLo12Nc, 0xf940_0020, 0xab8, 0xf945_5c20),     // ldr x0, [x1, 0xab8]
        (Ldst128AbsLo12Nc, 0x3dc0_0020, 0xab0, 0x3dc2_ac20),    // ldr q0, [x1, 0xab0]
        (LdPrelLo19, 0x5800_0000, -4, 0x58ff_ffe0),             // ldr x0, . - 4
        (Tstbr14, 0x3600_0001, -0x8000, 0x3604_0001),           // tbz w1, 0, . - 0x8000
        (Condbr19, 0x5400_0000, 0xf_fffc, 0x547f_ffe0),         // b.eq . + 0xffffc
        (Jump26, 0x1400_0000, -0x800_0000, 0x1600_0000),        // b . - 0x8000000
        (Call26, 0x9400_0000, 0x7ff_fffc, 0x95ff_ffff),         // bl . + 0x7fffffc
        (MovwUabsG1Nc, 0xf2a0_0002, 0x1_2345_6789, 0xf2a4_68a2), // movk x2, 0x2345, lsl 16
        (MovwSabsG0, 0xd280_0002, -2, 0x9280_0022),             // mov x2, -2
        (MovwSabsG0, 0x9280_0002, 3, 0xd280_0062),              // mov x2, 3
        (MovwPrelG3, 0xf2e0_0002, -1, 0xf2ff_ffe2),             // movk x2, 0xffff, lsl 48
        (Ld64GotpageLo15, 0xf940_0020, 0x7ff8, 0xf97f_fc20),    // ldr x0, [x1, 0x7ff8]
        (TlsleAddTprelHi12, 0x9140_0021, 0xfff_123, 0x917f_fc21), // add x1, x1, 0xfff, lsl 12
    ];
    for (relocation, old, value, expected) in cases {
        assert_eq!(stored(relocation, old, value), expected, "{}", relocation.row().name);
    }
}

#[test]
fn both_tables_have_the_same_relocations() {
    for number in 0..1024 {
        let (kind, known) = (kind_of(number), verify::relocation(0, number, 0, 0));
        assert_eq!(kind.is_some(), known.width > 0, "{number}");
        let Some(kind) = kind else { continue };
        assert_eq!((super::relocations::kind_name(kind), kind.width()), (known.name, known.width));
        assert_eq!(verify::number_of(kind), number);
        assert_eq!(TYPES[number as usize].kind, kind);
    }
}

#[test]
fn the_general_kind_of_a_relocation_uses_the_same_entries() {
    for relocation in Aarch64Relocation::ALL {
        let kind = EdgeKind::Aarch64(*relocation);
        let is_listed = KindSet::THREAD_LOCAL_ENTRY.contains(kind);
        assert_eq!(is_listed, kind.thread_local_entry().is_some(), "{relocation:?}");
        assert!(!KindSet::LOW.contains(kind) && !KindSet::NEAR.contains(kind), "{relocation:?}");
        assert_eq!(kind.thread_local_model().is_some(), relocation.row().name.contains("_TLS"), "{relocation:?}");
        assert_eq!(kind.needs_got_slot(), relocation.row().formula.base == crate::arch::Base::Slot, "{relocation:?}");
    }
}

#[test]
fn the_documented_table_is_that_of_the_code() {
    let document = include_str!("../../../docs/aarch64.md");
    let power = |value: i128| match value {
        0 => "0".to_string(),
        _ if value < 0 => format!("−2^{}", (-value).ilog2()),
        _ => format!("2^{} − 1", (value + 1).ilog2()),
    };
    let rows = document.lines().filter(|line| line.contains("| `R_AARCH64_")).count();
    assert_eq!(rows, Aarch64Relocation::ALL.len() + 5, "with those that other architectures have, too");
    for relocation in Aarch64Relocation::ALL {
        let row = relocation.row();
        let start = format!("| {} | `{}` | ", row.number, row.name);
        let line = document.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}"));
        let range = row.range.map_or("all".to_string(), |(min, max)| format!("{} … {}", power(min), power(max)));
        let unit = match row.field.multiple() {
            1 => "–".to_string(),
            unit => unit.to_string(),
        };
        assert!(line.contains(&format!(" | {range} | {unit} | ")), "{line} has not {range}, {unit}");
    }
}

#[test]
fn a_relocation_is_named_by_its_number_both_ways() {
    for relocation in Aarch64Relocation::ALL {
        assert_eq!(EdgeKind::of_aarch64(relocation.number()), Some(EdgeKind::Aarch64(*relocation)));
    }
    assert_eq!(Aarch64Relocation::Call26.number(), 283);
    assert_eq!(EdgeKind::of_aarch64(257), Some(EdgeKind::Pointer64));
    // `R_AARCH64_NONE` changes nothing, and only linkers write `R_AARCH64_COPY`.
    assert_eq!([256, 1024, u32::MAX].map(EdgeKind::of_aarch64), [None; 3]);
}
