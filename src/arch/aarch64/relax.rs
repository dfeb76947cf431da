//! Relaxation: instructions that make an address or a distance without a slot, in place of others (AAELF64, "Relocation
//! optimization"; lld does the same).
//!
//! ```text
//!   adrp x0, page of the slot; ldr x0, [x0, slot]        →   adrp x0, page of the symbol; add x0, x0, symbol
//!   adrp x0, page of the symbol; add x0, x0, symbol      →   nop; adr x0, symbol
//!   adrp x0, page of the slot; ldr x0, [x0, slot]        →   movz x0, distance [31:16]; movk x0, distance [15:0]
//!   adrp x0, descriptor; ldr x1, [x0, descriptor];           movz x0, distance [31:16]; movk x0, distance [15:0];
//!     add x0, x0, descriptor; blr x1                     →     nop; nop
//! ```
//!
//! The third has a slot of initial exec, and the fourth a descriptor: both become local exec, where the distance of the variable is
//! the same in every thread. The instructions follow one another, and use one register. The caller checks that no other code uses
//! what the first of them makes (`link/relaxable.rs`).

use crate::arch::Sequence;
use crate::arch::aarch64::field::Field;
use crate::arch::aarch64::relocation::Aarch64Relocation;

/// The sequence that a relocation is part of, and the position of its instruction.
pub(crate) fn part_of_sequence(relocation: Aarch64Relocation) -> Option<(Sequence, usize)> {
    use Aarch64Relocation::*;
    match relocation {
        AdrGotPage => Some((Sequence::GotLoad, 0)),
        Ld64GotLo12Nc => Some((Sequence::GotLoad, 1)),
        AdrPrelPgHi21 | AdrPrelPgHi21Nc => Some((Sequence::Address, 0)),
        AddAbsLo12Nc => Some((Sequence::Address, 1)),
        TlsieAdrGottprelPage21 => Some((Sequence::StaticLoad, 0)),
        TlsieLd64GottprelLo12Nc => Some((Sequence::StaticLoad, 1)),
        TlsdescAdrPage21 => Some((Sequence::Descriptor, 0)),
        TlsdescLd64Lo12 => Some((Sequence::Descriptor, 1)),
        TlsdescAddLo12 => Some((Sequence::Descriptor, 2)),
        _ => None,
    }
}

/// The instructions that stand for those of a sequence at an address, which make the address or the distance `value`. `None` if
/// the instructions are others, or if the value does not fit.
pub(crate) fn relax_sequence(sequence: Sequence, code: [u32; 4], place: u64, value: u64) -> Option<[u32; 4]> {
    let [first, second, third, fourth] = code;
    let with_rest = |[first, second]: [u32; 2]| [first, second, third, fourth];
    match sequence {
        Sequence::GotLoad => relax_got_pair([first, second], place, value).map(with_rest),
        Sequence::Address => relax_address([first, second], place, value).map(with_rest),
        Sequence::StaticLoad => {
            let register = register_of_pair([first, second], LDR)?;
            distance(register, value).map(with_rest)
        }
        Sequence::Descriptor => {
            let function = second & 0x1f;
            let is_descriptor = is_page(first)
                && first & 0x1f == 0
                && second & 0xffc0_03e0 == LDR
                && function != 0
                && function != ZERO_REGISTER
                && third & 0xffc0_03ff == ADD
                && fourth == BLR | function << 5;
            let [first, second] = distance(0, value).filter(|_| is_descriptor)?;
            Some([first, second, NOP, NOP])
        }
    }
}

/// Moves that make a distance of 32 bits.
fn distance(register: u32, value: u64) -> Option<[u32; 2]> {
    let value = u32::try_from(value).ok()?;
    Some([MOVZ_HIGH | value >> 16 << 5 | register, MOVK | (value & 0xffff) << 5 | register])
}

/// `nop` and ADR, which make the address `target` in place of ADRP and ADD.
fn relax_address(pair: [u32; 2], place: u64, target: u64) -> Option<[u32; 2]> {
    let register = register_of_pair(pair, ADD)?;
    let distance = i128::from(target) - i128::from(place.wrapping_add(4));
    let mut code = (ADR | register).to_le_bytes();
    Field::Adr.store(&mut code, distance);
    (-(1 << 20)..1 << 20).contains(&distance).then_some([NOP, u32::from_le_bytes(code)])
}

/// The register of an ADRP and an instruction with the opcode `second` that reads and overwrites it.
fn register_of_pair([page, other]: [u32; 2], second: u32) -> Option<u32> {
    let register = page & 0x1f;
    let is_alone = other >> 5 & 0x1f == register && other & 0x1f == register && register != ZERO_REGISTER;
    (is_page(page) && other & 0xffc0_0000 == second && is_alone).then_some(register)
}

fn is_page(instruction: u32) -> bool {
    instruction & 0x9f00_0000 == ADRP
}

/// The two instructions that make the address `target`. `place` is the address of the first one. `None` if the instructions are
/// others, or if the page of `target` is out of reach.
fn relax_got_pair([page, load]: [u32; 2], place: u64, target: u64) -> Option<[u32; 2]> {
    let register = register_of_pair([page, load], LDR)?;
    let distance = i128::from(target & !0xfff) - i128::from(place & !0xfff);
    if !(-(1 << 32)..1 << 32).contains(&distance) {
        return None;
    }
    let (mut first, mut second) = (page.to_le_bytes(), (ADD | register << 5 | register).to_le_bytes());
    Field::Adrp.store(&mut first, distance);
    Field::Add.store(&mut second, target.into());
    Some([first, second].map(u32::from_le_bytes))
}

const ADRP: u32 = 0x9000_0000;
const ADR: u32 = 0x1000_0000;
/// BLR.
const BLR: u32 = 0xd63f_0000;
const NOP: u32 = 0xd503_201f;
/// MOVZ of bits [31:16], and MOVK of bits [15:0], of 64 bits.
const MOVZ_HIGH: u32 = 0xd2a0_0000;
const MOVK: u32 = 0xf280_0000;
/// LDR (immediate, unsigned offset, 64 bits).
const LDR: u32 = 0xf940_0000;
/// ADD (immediate, 64 bits).
const ADD: u32 = 0x9100_0000;
/// In ADRP the zero register, in LDR the stack pointer.
const ZERO_REGISTER: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// `adrp x3, .; ldr x3, [x3, #0x7f8]`
    const PAIR: [u32; 2] = [0x9000_0003, 0xf943_fc63];

    #[test]
    fn a_got_pair_becomes_the_address_if_its_page_is_in_reach() {
        let relaxed = |target| relax_got_pair(PAIR, 0x1_2340_0ffc, target);
        // adrp x3, +1 page; add x3, x3, #0x234
        assert_eq!(relaxed(0x1_2340_1234), Some([0xb000_0003, 0x9108_d063]));
        assert_eq!(relaxed(0x1_2340_0000), Some([0x9000_0003, 0x9100_0063]));
        let last = 0x1_2340_0000 + (1 << 32) - 0x1000 + 0xfff;
        assert_eq!(relaxed(last), Some([0xf07f_ffe3, 0x913f_fc63]));
        assert_eq!(relaxed(last + 1), None);
        let first = 0x1_2340_0000 - (1 << 32);
        assert_eq!(relaxed(first), Some([0x9080_0003, 0x9100_0063]));
        assert_eq!(relaxed(first - 1), None);
    }

    #[test]
    fn a_pair_whose_page_outlives_the_load_stays() {
        let relaxed = |pair| relax_got_pair(pair, 0x1000, 0x1000);
        assert!(relaxed(PAIR).is_some());
        assert_eq!(relaxed([0x9000_0003, 0xf943_fc62]), None, "ldr x2, [x3]");
        assert_eq!(relaxed([0x9000_0003, 0xf943_fc43]), None, "ldr x3, [x2]");
        assert_eq!(relaxed([0x9000_0003, 0xb943_fc63]), None, "ldr w3, [x3]");
        assert_eq!(relaxed([0x1000_0003, 0xf943_fc63]), None, "adr x3");
        assert_eq!(relaxed([0x9000_001f, 0xf940_03ff]), None, "ldr xzr, [sp]");
    }

    /// `adrp x3, .; add x3, x3, #0x7f8`, and two others.
    const ADDRESS: [u32; 4] = [0x9000_0003, 0x911f_e063, 1, 2];

    #[test]
    fn an_address_in_reach_is_made_by_one_instruction() {
        let relaxed = |target| relax_sequence(Sequence::Address, ADDRESS, 0x1_2340_0ffc, target);
        // nop; adr x3, the distance from the second instruction
        assert_eq!(relaxed(0x1_2340_1000), Some([NOP, 0x1000_0003, 1, 2]));
        assert_eq!(relaxed(0x1_2340_1007), Some([NOP, 0x7000_0023, 1, 2]));
        assert_eq!(relaxed(0x1_2340_1000 + (1 << 20) - 1), Some([NOP, 0x707f_ffe3, 1, 2]));
        assert_eq!(relaxed(0x1_2340_1000 + (1 << 20)), None);
        assert_eq!(relaxed(0x1_2340_1000 - (1 << 20)), Some([NOP, 0x1080_0003, 1, 2]));
        assert_eq!(relaxed(0x1_2340_1000 - (1 << 20) - 1), None);
    }

    #[test]
    fn a_distance_of_32_bits_is_made_by_two_moves() {
        let code = [PAIR[0], PAIR[1], 1, 2];
        let relaxed = |value| relax_sequence(Sequence::StaticLoad, code, 0x1000, value);
        assert_eq!(relaxed(0x1234_5678), Some([0xd2a2_4683, 0xf28a_cf03, 1, 2]));
        assert_eq!(relaxed(u32::MAX.into()), Some([0xd2bf_ffe3, 0xf29f_ffe3, 1, 2]));
        assert_eq!(relaxed(1 << 32), None);
        assert_eq!(relaxed(-16i64 as u64), None);
    }

    /// `adrp x0, .; ldr x1, [x0]; add x0, x0, #0; blr x1`
    const DESCRIPTOR: [u32; 4] = [0x9000_0000, 0xf940_0001, 0x9100_0000, 0xd63f_0020];

    #[test]
    fn a_call_of_a_descriptor_becomes_two_moves() {
        let relaxed = |code| relax_sequence(Sequence::Descriptor, code, 0x1000, 0x1234_5678);
        let moves = [0xd2a2_4680, 0xf28a_cf00, NOP, NOP];
        assert_eq!(relaxed(DESCRIPTOR), Some(moves));
        let [page, load, add, call] = DESCRIPTOR;
        assert_eq!(relaxed([page, 0xf940_0011, add, 0xd63f_0220]), Some(moves), "by x17");
        for (code, what) in [
            ([0x9000_0002, load, add, call], "adrp x2"),
            ([0x1000_0000, load, add, call], "adr x0"),
            ([page, 0xf940_0041, add, call], "ldr x1, [x2]"),
            ([page, 0xb940_0001, add, call], "ldr w1, [x0]"),
            ([page, 0xf940_0000, add, 0xd63f_0000], "ldr x0, [x0]; blr x0"),
            ([page, 0xf940_001f, add, 0xd63f_03e0], "ldr xzr, [x0]"),
            ([page, load, 0x9100_0001, call], "add x1, x0"),
            ([page, load, 0x9100_0020, call], "add x0, x1"),
            ([page, load, add, 0xd63f_0040], "blr x2"),
            ([page, load, add, 0xd61f_0020], "br x1"),
        ] {
            assert_eq!(relaxed(code), None, "{what}");
        }
    }

    #[test]
    fn instructions_in_two_registers_stay() {
        let load = |other: u32| [0x9000_0003, other, 1, 2];
        let cases = [
            (Sequence::Address, load(0x9100_0064), "add x4, x3"),
            (Sequence::Address, load(0x9100_0083), "add x3, x4"),
            (Sequence::Address, load(0x9140_0063), "add x3, x3, lsl #12"),
            (Sequence::Address, load(0x1100_0063), "add w3, w3"),
            (Sequence::Address, [0x9000_001f, 0x9100_03ff, 1, 2], "add sp, sp"),
            (Sequence::StaticLoad, load(0xf940_0064), "ldr x4, [x3]"),
            (Sequence::StaticLoad, load(0xb940_0063), "ldr w3, [x3]"),
        ];
        for (sequence, code, what) in cases {
            assert_eq!(relax_sequence(sequence, code, 0x1000, 0x1000), None, "{what}");
        }
    }
}
