//! Checks an instruction that moved to a thunk, because the distance of its thread-local variable differs from thread to thread:
//! at its place there must be a `b` to code that asks for the distance of this variable, and goes on after the instruction.
//!
//! This file does not check what the thunk does with the distance. The tests of `distance_thunk.rs`, and tests that run thunks,
//! check that.

use crate::arch::aarch64::verify::page_of_adrp;
use crate::arch::verify::{FieldValue, Relocation, SectionView};

/// Whether the field of a relocation is that of an instruction in a thunk now. `found` is the instruction in memory, and `place`
/// its address.
pub(super) fn is_moved(section: &dyn SectionView, relocation: &Relocation, name: &str, place: u64, found: u32) -> bool {
    let may_move = name.starts_with("TLSLE_")
        || name.starts_with("TLSLD_") && name.contains("DTPREL")
        || matches!(name, "TLSIE_LD64_GOTTPREL_LO12_NC" | "TLSIE_LD_GOTTPREL_PREL19");
    let thunk = branch_target(found, B, place).filter(|_| may_move);
    let Some((thunk, code)) = thunk.and_then(|thunk| Some((thunk, section.thunk(thunk)?))) else { return false };
    is_for_variable(section, relocation, name, code, thunk, place.wrapping_add(4))
}

/// Whether a thunk asks for the distance of the relocation's variable, adds the addend, and goes on at `next`.
fn is_for_variable(
    section: &dyn SectionView,
    relocation: &Relocation,
    name: &str,
    code: &[u8],
    thunk: u64,
    next: u64,
) -> bool {
    let mut expected = vec![section.pair(relocation.symbol)];
    expected.extend(name.contains("DTPREL").then(|| section.own_block()));
    let (mut asked, mut page, mut descriptor): (Vec<Vec<u64>>, Option<u64>, Option<[u64; 4]>) =
        (Vec::new(), None, None);
    let mut addend = 0;
    let (words, _) = code.as_chunks::<4>();
    for (number, word) in (0..MOST_INSTRUCTIONS).zip(words) {
        let (instruction, at) = (FieldValue::of(word).unsigned as u32, thunk.wrapping_add(4 * number));
        if number == 0 && instruction != 0xa9be_7be0 {
            return false; // stp x0, x30, [sp, #-32]!
        }
        if let Some(function) = branch_target(instruction, BL, at) {
            let Some([word, _, module, offset]) = descriptor.take() else { return false };
            if word != function || !section.is_thunk_function(function) {
                return false;
            }
            asked.push(vec![module, offset]);
        } else if let Some(target) = branch_target(instruction, B, at) {
            return asked == expected && addend == relocation.addend as u64 && target == next;
        } else if instruction & 0x1f == 0 && page_of_adrp(instruction, at).is_some() {
            page = page_of_adrp(instruction, at);
        } else if instruction & 0xffc0_03ff == 0x9100_0000 {
            // add x0, x0, the offset in the page
            let address = page.take().map(|page| page.wrapping_add((instruction >> 10 & 0xfff).into()));
            descriptor = address.and_then(|at| section.thunk_descriptor(at).filter(|words| words[1] == at + 16));
        } else if asked.len() == 1 && matches!(instruction & 0xff80_0000, 0xd280_0000 | 0xf280_0000) {
            // movz and movk: the addend
            addend |= u64::from(instruction >> 5 & 0xffff) << (16 * (instruction >> 21 & 3));
        }
    }
    false
}

/// The target of a branch with an opcode; `None` for another instruction.
pub(super) fn branch_target(instruction: u32, opcode: u32, place: u64) -> Option<u64> {
    let distance = i64::from((instruction << 6) as i32 >> 4);
    (instruction & 0xfc00_0000 == opcode).then(|| place.wrapping_add_signed(distance))
}

pub(super) const B: u32 = 0x1400_0000;
const BL: u32 = 0x9400_0000;
/// Most instructions of a thunk.
const MOST_INSTRUCTIONS: u64 = 24;
