//! [`Decoded`]: one AArch64 instruction, with the operands that LLVM's `MCInst` lists, for the classes of instructions that
//! relocations refer to (Arm Architecture Reference Manual, C4.1).
//!
//! | instruction | operands |
//! |---|---|
//! | ADR, ADRP | register, 21 bits with a sign |
//! | ADD, SUB (immediate) | two registers, 12 bits, shift |
//! | load and store, unsigned offset | two registers, 12 bits as encoded |
//! | load (literal) | register, 19 bits with a sign |
//! | MOVN, MOVZ | register, 16 bits, shift |
//! | MOVK | two registers, 16 bits, shift |
//! | B, BL | 26 bits with a sign |
//! | B.cond | condition, 19 bits with a sign |
//! | CBZ, CBNZ | register, 19 bits with a sign |
//! | TBZ, TBNZ | register, number of the bit, 14 bits with a sign |
//!
//! The list of any other instruction is not known.

use std::fmt;

use super::Operand;

/// `e_machine` of AArch64.
pub const E_MACHINE: u16 = 183;
/// Bytes of every instruction.
pub const LENGTH: u64 = 4;

/// A decoded instruction.
#[derive(Debug)]
pub struct Decoded(u32);

impl Decoded {
    /// The first instruction of `bytes`. `None` if there are fewer than four.
    pub fn from_bytes(bytes: &[u8]) -> Option<Decoded> {
        bytes.first_chunk().map(|word| Decoded(u32::from_le_bytes(*word)))
    }

    /// The operands. `None` if their numbers in LLVM are not known.
    pub fn operands(&self) -> Option<Vec<Operand>> {
        use Operand::{Number, Register};
        let word = self.0;
        let is = |mask: u32, bits: u32| word & mask == bits;
        let field = |low: u32, count: u32| Number(u64::from(word >> low & ((1 << count) - 1)));
        let signed = |low: u32, count: u32| {
            let up = word << (32 - low - count);
            Number(i64::from(up as i32 >> (32 - count)) as u64)
        };
        Some(match () {
            () if is(0x1f00_0000, 0x1000_0000) => {
                let bits = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
                vec![Register, Number(i64::from((bits << 11) as i32 >> 11) as u64)]
            }
            () if is(0x1f80_0000, 0x1100_0000) => {
                vec![Register, Register, field(10, 12), Number(u64::from(word >> 22 & 1) * 12)]
            }
            () if is(0x3b00_0000, 0x3900_0000) => vec![Register, Register, field(10, 12)],
            () if is(0x3b00_0000, 0x1800_0000) => vec![Register, signed(5, 19)],
            () if is(0x7f80_0000, 0x1280_0000) || is(0x7f80_0000, 0x5280_0000) => {
                vec![Register, field(5, 16), Number(u64::from(word >> 21 & 3) * 16)]
            }
            () if is(0x7f80_0000, 0x7280_0000) => {
                vec![Register, Register, field(5, 16), Number(u64::from(word >> 21 & 3) * 16)]
            }
            () if is(0x7c00_0000, 0x1400_0000) => vec![signed(0, 26)],
            () if is(0xff00_0000, 0x5400_0000) => vec![field(0, 4), signed(5, 19)],
            () if is(0x7e00_0000, 0x3400_0000) => vec![Register, signed(5, 19)],
            () if is(0x7e00_0000, 0x3600_0000) => {
                vec![Register, Number(u64::from(word >> 26 & 0x20 | word >> 19 & 0x1f)), signed(5, 14)]
            }
            () => return None,
        })
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers among the operands, with their positions.
    fn numbers(word: u32) -> Vec<(usize, i64)> {
        let operands = Decoded(word).operands().unwrap_or_default();
        let number = |(at, operand): (usize, Operand)| match operand {
            Operand::Number(value) => Some((at, value as i64)),
            Operand::Register => None,
        };
        operands.into_iter().enumerate().filter_map(number).collect()
    }

    #[test]
    fn operands_are_numbered_as_in_llvm() {
        assert_eq!(numbers(0xf0ff_ffe3), [(1, -1)], "adrp x3, -0x1000");
        assert_eq!(numbers(0x3000_0020), [(1, 5)], "adr x0, 5");
        assert_eq!(numbers(0x9108_d063), [(2, 0x234), (3, 0)], "add x3, x3, #0x234");
        assert_eq!(numbers(0xf943_fc63), [(2, 0xff)], "ldr x3, [x3, #0x7f8]");
        assert_eq!(numbers(0x3dc0_0421), [(2, 1)], "ldr q1, [x1, #16]");
        assert_eq!(numbers(0x58ff_ffe0), [(1, -1)], "ldr x0, .-4");
        assert_eq!(numbers(0xd2bf_ffe0), [(1, 0xffff), (2, 16)], "movz x0, #0xffff, lsl #16");
        assert_eq!(numbers(0xf2c0_0020), [(2, 1), (3, 32)], "movk x0, #1, lsl #32");
        assert_eq!(numbers(0x97ff_ffff), [(0, -1)], "bl .-4");
        assert_eq!(numbers(0x5400_0041), [(0, 1), (1, 2)], "b.ne .+8");
        assert_eq!(numbers(0xb4ff_ffe0), [(1, -1)], "cbz x0, .-4");
        assert_eq!(numbers(0xb60f_ffe0), [(1, 33), (2, -1)], "tbz x0, #33, .-4");
        assert_eq!(numbers(0xd65f_03c0), [], "ret");
    }
}
