//! Checks an instruction that moved to a thunk, because it does not reach its symbol: at its place there must be a `b` to code that
//! makes the address, does the same with it in the same register, and goes on after the instruction.

use crate::arch::aarch64::verify::distance_thunk::{B, branch_target};
use crate::arch::verify::{FieldValue, Relocation, SectionView};

/// Whether the field of a relocation is that of an instruction in a thunk now. `old` is the instruction in the object, `found` that
/// in memory, and `place` its address.
pub(super) fn is_moved(section: &dyn SectionView, relocation: &Relocation, place: u64, old: u32, found: u32) -> bool {
    let (register, target) =
        (old & 0x1f, section.symbol_address(relocation.symbol).wrapping_add_signed(relocation.addend));
    let (value, load) = match (relocation.name, old & 0xff00_0000) {
        ("R_AARCH64_ADR_PREL_PG_HI21" | "R_AARCH64_ADR_PREL_PG_HI21_NC", _) => (target & !0xfff, None),
        ("R_AARCH64_ADR_PREL_LO21", _) => (target, None),
        ("R_AARCH64_LD_PREL_LO19", 0x5800_0000) => (target, Some(0xf940_0000)),
        ("R_AARCH64_LD_PREL_LO19", 0x1800_0000) => (target, Some(0xb940_0000)),
        ("R_AARCH64_LD_PREL_LO19", 0x9800_0000) => (target, Some(0xb980_0000)),
        _ => return false,
    };
    let thunk = branch_target(found, B, place);
    let Some((thunk, code)) = thunk.and_then(|thunk| Some((thunk, section.thunk(thunk)?))) else { return false };
    let (words, _) = code.as_chunks::<4>();
    let mut load = load.map(|load| load | register << 5 | register);
    let mut made = None;
    for (number, word) in (0..MOST_INSTRUCTIONS).zip(words) {
        let (instruction, at) = (FieldValue::of(word).unsigned as u32, thunk.wrapping_add(4 * number));
        let part = u64::from(instruction >> 5 & 0xffff) << (16 * (instruction >> 21 & 3));
        if let Some(next) = branch_target(instruction, B, at) {
            return made == Some(value) && load.is_none() && next == place.wrapping_add(4);
        } else if Some(instruction) == load && made == Some(value) {
            load = None;
        } else {
            // movz, then movk of other parts
            made = match (instruction & 0xff80_001f, made) {
                (opcode, None) if opcode == 0xd280_0000 | register => Some(part),
                (opcode, Some(made)) if opcode == 0xf280_0000 | register => Some(made | part),
                _ => return false,
            };
        }
    }
    false
}

/// Most instructions of a thunk.
const MOST_INSTRUCTIONS: u64 = 6;
