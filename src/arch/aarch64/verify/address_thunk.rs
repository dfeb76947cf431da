//! Checks an instruction that moved to a thunk, because it does not reach its symbol: at its place there must be a `b` to code that
//! makes the address, does the same with it in the same register, and goes on after the instruction.

use crate::arch::aarch64::verify::distance_thunk::{B, branch_target};
use crate::arch::verify::{FieldValue, Relocation, SectionView};

/// Whether the field of a relocation is that of an instruction in a thunk now. `targets` are the addresses that it may refer to,
/// `old` is the instruction in the object, `found` that in memory, and `place` its address.
pub(super) fn is_moved(
    section: &dyn SectionView,
    relocation: &Relocation,
    targets: &[i128],
    place: u64,
    old: u32,
    found: u32,
) -> bool {
    let is_page = relocation.name.contains("_PREL_PG_HI21");
    let load = match old & 0xff00_0000 {
        0x5800_0000 => Some(0xf940_0000),
        0x1800_0000 => Some(0xb940_0000),
        0x9800_0000 => Some(0xb980_0000),
        0x1c00_0000 => Some(0xbd40_0000),
        0x5c00_0000 => Some(0xfd40_0000),
        0x9c00_0000 => Some(0x3dc0_0000),
        _ => None,
    };
    let opcode = if is_page { 0x9000_0000 } else { 0x1000_0000 };
    let thunk = branch_target(found, B, place).filter(|_| load.is_some() || old & 0x9f00_0000 == opcode);
    let Some((thunk, code)) = thunk.and_then(|thunk| Some((thunk, section.thunk(thunk)?))) else { return false };
    let is_vector = load.is_some_and(|load| load & 0x0400_0000 != 0);
    let base = if is_vector { 16 } else { old & 0x1f };
    // What the thunk does around the moves that make the address.
    let (mut before, mut after): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    after.extend(load.map(|load| load | base << 5 | old & 0x1f));
    if is_vector {
        before.push(0xf81f_0ff0);
        after.push(0xf841_07f0);
    }
    let (words, _) = code.as_chunks::<4>();
    let words: Vec<u32> =
        words.iter().take(MOST_INSTRUCTIONS).map(|word| FieldValue::of(word).unsigned as u32).collect();
    let Some(rest) = words.strip_prefix(&before[..]) else { return false };
    let is_move = |word: &&u32| matches!(*word & 0xff80_001f, opcode if opcode == 0xd280_0000 | base || opcode == 0xf280_0000 | base);
    let moves = rest.iter().take_while(is_move).count();
    let (moves, rest) = rest.split_at(moves);
    // One movz, then movk of other parts.
    let are_moves = moves.iter().enumerate().all(|(index, word)| (word & 0x2000_0000 == 0) == (index == 0));
    let made = moves.iter().fold(0, |made, word| made | u64::from(word >> 5 & 0xffff) << (16 * (word >> 21 & 3)));
    let is_target = targets.iter().any(|target| made == if is_page { *target as u64 & !0xfff } else { *target as u64 });
    let Some((branch, _)) = rest.strip_prefix(&after[..]).and_then(|rest| rest.split_first()) else { return false };
    let at = thunk.wrapping_add(4 * (before.len() + moves.len() + after.len()) as u64);
    are_moves && is_target && branch_target(*branch, B, at) == Some(place.wrapping_add(4))
}

/// Most instructions of a thunk.
const MOST_INSTRUCTIONS: usize = 8;
