//! [`Aarch64Relocation`]: the relocation types of AArch64 that no other architecture has.
//!
//! The table is that of ELF for the Arm 64-bit Architecture (AAELF64), from "Static AArch64 relocations" on. A row gives the
//! variant, the number, the name, the formula, its parts (`formula.rs`), the field (`field.rs`), and the values that fit. A type
//! that means the same on every architecture is no row: `relocations.rs` maps it to that kind of edge.

use crate::arch::aarch64::field::Field;
use crate::arch::formula::{Base, Formula, Frame};

/// The values that a field may have: the smallest and the largest. `None` for all.
type Range = Option<(i128, i128)>;

/// What a relocation type means.
pub(crate) struct Row {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) formula: Formula,
    pub(crate) field: Field,
    pub(crate) range: Range,
}

impl Row {
    /// Whether the instruction makes the address of the symbol or of an entry, or loads from it, or makes the symbol's page. The page
    /// of an entry is always in reach.
    pub(crate) const fn is_narrow_instruction(&self) -> bool {
        match (self.formula.base, self.field) {
            (Base::Branch, _) => false,
            (Base::Symbol, Field::Adrp) => true,
            (_, field) => matches!(field, Field::Adr | Field::Literal),
        }
    }

    /// Whether the value is a distance of a thread-local variable, or loads one, in an instruction that can move to a thunk.
    pub(crate) const fn is_computed(&self) -> bool {
        match self.formula.base {
            Base::StaticOffset | Base::BlockOffset => true,
            Base::StaticSlot => matches!(self.field, Field::LoadStore(_) | Field::Literal),
            _ => false,
        }
    }
}

macro_rules! relocations {
    ($($variant:ident = $number:literal $name:ident, $text:literal, $base:ident, $frame:ident, $field:expr, $range:expr;)*) => {
        /// A relocation of AArch64, named as in ELF for the Arm 64-bit Architecture.
        ///
        /// In the formulas, `S` is the symbol's address, `A` the addend, `P` the field's address, `L` the address of the symbol's
        /// stub, or `S` where the field reaches it, `G` the address of its GOT slot, `GOT` the address of the GOT, and `Page(x)`
        /// is `x` with its low twelve bits zero. `T`, `B`, `I` and `D` are addresses of GOT entries of a thread-local variable:
        /// the pair of the variable, the pair of the object's own block, the static offset, the descriptor. `DTPREL` and `TPREL`
        /// are the distances of a variable from the start of the block and from the thread pointer. A type with `_NC` in its name
        /// stores a part of the value without a check. All others fail if the value does not fit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Aarch64Relocation {
            $(
                #[doc = concat!("`", $text, "`. `R_AARCH64_", stringify!($name), "` (", $number, ").")]
                $variant,
            )*
        }

        impl Aarch64Relocation {
            /// All types, by number.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Aarch64Relocation] = &[$(Aarch64Relocation::$variant),*];

            /// The type with a number; `None` if the table has none.
            pub(crate) const fn of_number(number: u32) -> Option<Aarch64Relocation> {
                match number {
                    $($number => Some(Aarch64Relocation::$variant),)*
                    _ => None,
                }
            }

            /// The number of the type in ELF for the Arm 64-bit Architecture.
            pub fn number(self) -> u32 {
                self.row().number
            }
        }

        const ROWS: &[Row] = &[
            $(
                Row {
                    number: $number,
                    name: concat!("R_AARCH64_", stringify!($name)),
                    formula: Formula { base: Base::$base, frame: Frame::$frame },
                    field: $field,
                    range: $range,
                },
            )*
        ];
    };
}

use Field::{Add, AddHigh, Adr, Adrp, Branch, Bytes, GotLoad, Literal, LoadStore, MoveSigned, MoveWide, TestBranch};

relocations! {
    Abs32 = 258 ABS32, "S + A", Symbol, Absolute, Bytes(4), either(32);
    Abs16 = 259 ABS16, "S + A", Symbol, Absolute, Bytes(2), either(16);
    Prel32 = 261 PREL32, "S + A - P", Symbol, Place, Bytes(4), either(32);
    Prel16 = 262 PREL16, "S + A - P", Symbol, Place, Bytes(2), either(16);
    MovwUabsG0 = 263 MOVW_UABS_G0, "S + A", Symbol, Unsigned, MoveWide(0), unsigned(16);
    MovwUabsG0Nc = 264 MOVW_UABS_G0_NC, "S + A", Symbol, Unsigned, MoveWide(0), ANY;
    MovwUabsG1 = 265 MOVW_UABS_G1, "S + A", Symbol, Unsigned, MoveWide(1), unsigned(32);
    MovwUabsG1Nc = 266 MOVW_UABS_G1_NC, "S + A", Symbol, Unsigned, MoveWide(1), ANY;
    MovwUabsG2 = 267 MOVW_UABS_G2, "S + A", Symbol, Unsigned, MoveWide(2), unsigned(48);
    MovwUabsG2Nc = 268 MOVW_UABS_G2_NC, "S + A", Symbol, Unsigned, MoveWide(2), ANY;
    MovwUabsG3 = 269 MOVW_UABS_G3, "S + A", Symbol, Unsigned, MoveWide(3), ANY;
    MovwSabsG0 = 270 MOVW_SABS_G0, "S + A", Symbol, Absolute, MoveSigned(0), signed(17);
    MovwSabsG1 = 271 MOVW_SABS_G1, "S + A", Symbol, Absolute, MoveSigned(1), signed(33);
    MovwSabsG2 = 272 MOVW_SABS_G2, "S + A", Symbol, Absolute, MoveSigned(2), signed(49);
    LdPrelLo19 = 273 LD_PREL_LO19, "S + A - P", Symbol, Place, Literal, signed(21);
    AdrPrelLo21 = 274 ADR_PREL_LO21, "S + A - P", Symbol, Place, Adr, signed(21);
    AdrPrelPgHi21 = 275 ADR_PREL_PG_HI21, "Page(S + A) - Page(P)", Symbol, Page, Adrp, signed(33);
    AdrPrelPgHi21Nc = 276 ADR_PREL_PG_HI21_NC, "Page(S + A) - Page(P)", Symbol, Page, Adrp, ANY;
    AddAbsLo12Nc = 277 ADD_ABS_LO12_NC, "S + A", Symbol, Absolute, Add, ANY;
    Ldst8AbsLo12Nc = 278 LDST8_ABS_LO12_NC, "S + A", Symbol, Absolute, LoadStore(0), ANY;
    Tstbr14 = 279 TSTBR14, "L + A - P", Branch, Place, TestBranch, signed(16);
    Condbr19 = 280 CONDBR19, "L + A - P", Branch, Place, Literal, signed(21);
    Jump26 = 282 JUMP26, "L + A - P", Branch, Place, Branch, signed(28);
    Call26 = 283 CALL26, "L + A - P", Branch, Place, Branch, signed(28);
    Ldst16AbsLo12Nc = 284 LDST16_ABS_LO12_NC, "S + A", Symbol, Absolute, LoadStore(1), ANY;
    Ldst32AbsLo12Nc = 285 LDST32_ABS_LO12_NC, "S + A", Symbol, Absolute, LoadStore(2), ANY;
    Ldst64AbsLo12Nc = 286 LDST64_ABS_LO12_NC, "S + A", Symbol, Absolute, LoadStore(3), ANY;
    MovwPrelG0 = 287 MOVW_PREL_G0, "S + A - P", Symbol, Place, MoveSigned(0), signed(17);
    MovwPrelG0Nc = 288 MOVW_PREL_G0_NC, "S + A - P", Symbol, Place, MoveWide(0), ANY;
    MovwPrelG1 = 289 MOVW_PREL_G1, "S + A - P", Symbol, Place, MoveSigned(1), signed(33);
    MovwPrelG1Nc = 290 MOVW_PREL_G1_NC, "S + A - P", Symbol, Place, MoveWide(1), ANY;
    MovwPrelG2 = 291 MOVW_PREL_G2, "S + A - P", Symbol, Place, MoveSigned(2), signed(49);
    MovwPrelG2Nc = 292 MOVW_PREL_G2_NC, "S + A - P", Symbol, Place, MoveWide(2), ANY;
    MovwPrelG3 = 293 MOVW_PREL_G3, "S + A - P", Symbol, Place, MoveSigned(3), ANY;
    Ldst128AbsLo12Nc = 299 LDST128_ABS_LO12_NC, "S + A", Symbol, Absolute, LoadStore(4), ANY;
    MovwGotoffG0 = 300 MOVW_GOTOFF_G0, "G - GOT", Slot, Got, MoveSigned(0), signed(17);
    MovwGotoffG0Nc = 301 MOVW_GOTOFF_G0_NC, "G - GOT", Slot, Got, MoveWide(0), ANY;
    MovwGotoffG1 = 302 MOVW_GOTOFF_G1, "G - GOT", Slot, Got, MoveSigned(1), signed(33);
    MovwGotoffG1Nc = 303 MOVW_GOTOFF_G1_NC, "G - GOT", Slot, Got, MoveWide(1), ANY;
    MovwGotoffG2 = 304 MOVW_GOTOFF_G2, "G - GOT", Slot, Got, MoveSigned(2), signed(49);
    MovwGotoffG2Nc = 305 MOVW_GOTOFF_G2_NC, "G - GOT", Slot, Got, MoveWide(2), ANY;
    MovwGotoffG3 = 306 MOVW_GOTOFF_G3, "G - GOT", Slot, Got, MoveSigned(3), ANY;
    Gotrel32 = 308 GOTREL32, "S + A - GOT", Symbol, Got, Bytes(4), signed(32);
    GotLdPrel19 = 309 GOT_LD_PREL19, "G - P", Slot, Place, Literal, signed(21);
    Ld64GotoffLo15 = 310 LD64_GOTOFF_LO15, "G - GOT", Slot, Got, GotLoad, unsigned(15);
    AdrGotPage = 311 ADR_GOT_PAGE, "Page(G) - Page(P)", Slot, Page, Adrp, signed(33);
    Ld64GotLo12Nc = 312 LD64_GOT_LO12_NC, "G", Slot, Absolute, LoadStore(3), ANY;
    Ld64GotpageLo15 = 313 LD64_GOTPAGE_LO15, "G - Page(GOT)", Slot, GotPage, GotLoad, unsigned(15);
    TlsgdAdrPrel21 = 512 TLSGD_ADR_PREL21, "T - P", Pair, Place, Adr, signed(21);
    TlsgdAdrPage21 = 513 TLSGD_ADR_PAGE21, "Page(T) - Page(P)", Pair, Page, Adrp, signed(33);
    TlsgdAddLo12Nc = 514 TLSGD_ADD_LO12_NC, "T", Pair, Absolute, Add, ANY;
    TlsgdMovwG1 = 515 TLSGD_MOVW_G1, "T - GOT", Pair, Got, MoveSigned(1), signed(33);
    TlsgdMovwG0Nc = 516 TLSGD_MOVW_G0_NC, "T - GOT", Pair, Got, MoveWide(0), ANY;
    TlsldAdrPrel21 = 517 TLSLD_ADR_PREL21, "B - P", Block, Place, Adr, signed(21);
    TlsldAdrPage21 = 518 TLSLD_ADR_PAGE21, "Page(B) - Page(P)", Block, Page, Adrp, signed(33);
    TlsldAddLo12Nc = 519 TLSLD_ADD_LO12_NC, "B", Block, Absolute, Add, ANY;
    TlsldMovwG1 = 520 TLSLD_MOVW_G1, "B - GOT", Block, Got, MoveSigned(1), signed(33);
    TlsldMovwG0Nc = 521 TLSLD_MOVW_G0_NC, "B - GOT", Block, Got, MoveWide(0), ANY;
    TlsldLdPrel19 = 522 TLSLD_LD_PREL19, "B - P", Block, Place, Literal, signed(21);
    TlsldMovwDtprelG2 = 523 TLSLD_MOVW_DTPREL_G2, "DTPREL(S + A)", BlockOffset, Absolute, MoveSigned(2), signed(49);
    TlsldMovwDtprelG1 = 524 TLSLD_MOVW_DTPREL_G1, "DTPREL(S + A)", BlockOffset, Absolute, MoveSigned(1), signed(33);
    TlsldMovwDtprelG1Nc = 525 TLSLD_MOVW_DTPREL_G1_NC, "DTPREL(S + A)", BlockOffset, Absolute, MoveWide(1), ANY;
    TlsldMovwDtprelG0 = 526 TLSLD_MOVW_DTPREL_G0, "DTPREL(S + A)", BlockOffset, Absolute, MoveSigned(0), signed(17);
    TlsldMovwDtprelG0Nc = 527 TLSLD_MOVW_DTPREL_G0_NC, "DTPREL(S + A)", BlockOffset, Absolute, MoveWide(0), ANY;
    TlsldAddDtprelHi12 = 528 TLSLD_ADD_DTPREL_HI12, "DTPREL(S + A)", BlockOffset, Absolute, AddHigh, unsigned(24);
    TlsldAddDtprelLo12 = 529 TLSLD_ADD_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, Add, unsigned(12);
    TlsldAddDtprelLo12Nc = 530 TLSLD_ADD_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, Add, ANY;
    TlsldLdst8DtprelLo12 = 531 TLSLD_LDST8_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(0), unsigned(12);
    TlsldLdst8DtprelLo12Nc = 532 TLSLD_LDST8_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(0), ANY;
    TlsldLdst16DtprelLo12 = 533 TLSLD_LDST16_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(1), unsigned(12);
    TlsldLdst16DtprelLo12Nc = 534 TLSLD_LDST16_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(1), ANY;
    TlsldLdst32DtprelLo12 = 535 TLSLD_LDST32_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(2), unsigned(12);
    TlsldLdst32DtprelLo12Nc = 536 TLSLD_LDST32_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(2), ANY;
    TlsldLdst64DtprelLo12 = 537 TLSLD_LDST64_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(3), unsigned(12);
    TlsldLdst64DtprelLo12Nc = 538 TLSLD_LDST64_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(3), ANY;
    TlsieMovwGottprelG1 = 539 TLSIE_MOVW_GOTTPREL_G1, "I - GOT", StaticSlot, Got, MoveSigned(1), signed(33);
    TlsieMovwGottprelG0Nc = 540 TLSIE_MOVW_GOTTPREL_G0_NC, "I - GOT", StaticSlot, Got, MoveWide(0), ANY;
    TlsieAdrGottprelPage21 = 541 TLSIE_ADR_GOTTPREL_PAGE21, "Page(I) - Page(P)", StaticSlot, Page, Adrp, signed(33);
    TlsieLd64GottprelLo12Nc = 542 TLSIE_LD64_GOTTPREL_LO12_NC, "I", StaticSlot, Absolute, LoadStore(3), ANY;
    TlsieLdGottprelPrel19 = 543 TLSIE_LD_GOTTPREL_PREL19, "I - P", StaticSlot, Place, Literal, signed(21);
    TlsleMovwTprelG2 = 544 TLSLE_MOVW_TPREL_G2, "TPREL(S + A)", StaticOffset, Absolute, MoveSigned(2), signed(49);
    TlsleMovwTprelG1 = 545 TLSLE_MOVW_TPREL_G1, "TPREL(S + A)", StaticOffset, Absolute, MoveSigned(1), signed(33);
    TlsleMovwTprelG1Nc = 546 TLSLE_MOVW_TPREL_G1_NC, "TPREL(S + A)", StaticOffset, Absolute, MoveWide(1), ANY;
    TlsleMovwTprelG0 = 547 TLSLE_MOVW_TPREL_G0, "TPREL(S + A)", StaticOffset, Absolute, MoveSigned(0), signed(17);
    TlsleMovwTprelG0Nc = 548 TLSLE_MOVW_TPREL_G0_NC, "TPREL(S + A)", StaticOffset, Absolute, MoveWide(0), ANY;
    TlsleAddTprelHi12 = 549 TLSLE_ADD_TPREL_HI12, "TPREL(S + A)", StaticOffset, Absolute, AddHigh, unsigned(24);
    TlsleAddTprelLo12 = 550 TLSLE_ADD_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, Add, unsigned(12);
    TlsleAddTprelLo12Nc = 551 TLSLE_ADD_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, Add, ANY;
    TlsleLdst8TprelLo12 = 552 TLSLE_LDST8_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(0), unsigned(12);
    TlsleLdst8TprelLo12Nc = 553 TLSLE_LDST8_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(0), ANY;
    TlsleLdst16TprelLo12 = 554 TLSLE_LDST16_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(1), unsigned(12);
    TlsleLdst16TprelLo12Nc = 555 TLSLE_LDST16_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(1), ANY;
    TlsleLdst32TprelLo12 = 556 TLSLE_LDST32_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(2), unsigned(12);
    TlsleLdst32TprelLo12Nc = 557 TLSLE_LDST32_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(2), ANY;
    TlsleLdst64TprelLo12 = 558 TLSLE_LDST64_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(3), unsigned(12);
    TlsleLdst64TprelLo12Nc = 559 TLSLE_LDST64_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(3), ANY;
    TlsdescLdPrel19 = 560 TLSDESC_LD_PREL19, "D - P", Descriptor, Place, Literal, signed(21);
    TlsdescAdrPrel21 = 561 TLSDESC_ADR_PREL21, "D - P", Descriptor, Place, Adr, signed(21);
    TlsdescAdrPage21 = 562 TLSDESC_ADR_PAGE21, "Page(D) - Page(P)", Descriptor, Page, Adrp, signed(33);
    TlsdescLd64Lo12 = 563 TLSDESC_LD64_LO12, "D", Descriptor, Absolute, LoadStore(3), ANY;
    TlsdescAddLo12 = 564 TLSDESC_ADD_LO12, "D", Descriptor, Absolute, Add, ANY;
    TlsdescOffG1 = 565 TLSDESC_OFF_G1, "D - GOT", Descriptor, Got, MoveSigned(1), signed(33);
    TlsdescOffG0Nc = 566 TLSDESC_OFF_G0_NC, "D - GOT", Descriptor, Got, MoveWide(0), ANY;
    TlsleLdst128TprelLo12 = 570 TLSLE_LDST128_TPREL_LO12, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(4), unsigned(12);
    TlsleLdst128TprelLo12Nc = 571 TLSLE_LDST128_TPREL_LO12_NC, "TPREL(S + A)", StaticOffset, Absolute, LoadStore(4), ANY;
    TlsldLdst128DtprelLo12 = 572 TLSLD_LDST128_DTPREL_LO12, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(4), unsigned(12);
    TlsldLdst128DtprelLo12Nc = 573 TLSLD_LDST128_DTPREL_LO12_NC, "DTPREL(S + A)", BlockOffset, Absolute, LoadStore(4), ANY;
}

/// Every value fits.
const ANY: Range = None;

/// Values of so many bits, with a sign.
const fn signed(bits: u32) -> Range {
    Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
}

/// Values of so many bits, without a sign.
const fn unsigned(bits: u32) -> Range {
    Some((0, (1 << bits) - 1))
}

/// Values of so many bits, with or without a sign.
const fn either(bits: u32) -> Range {
    Some((-(1 << (bits - 1)), (1 << bits) - 1))
}

impl Aarch64Relocation {
    pub(crate) const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}
