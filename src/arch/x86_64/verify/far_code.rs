//! Checks instructions that range extension moved, because a reference in them is out of reach, or differs from thread to
//! thread: at the old place there must be a jump or call to a thunk that loads the 64-bit value, or the descriptor of the
//! thread-local variable, and goes on after the instruction.
//!
//! The position of the jump tells which instruction was there. This file does not check that the thunk does with the
//! value what the instruction did. The tests of `range_extension/thunk.rs`, and tests that run thunks, check that.

use std::ops::Range;

use crate::arch::verify::{Relocation, SectionView};

/// Without the feature `range-extension` no instruction moves.
#[cfg(not(feature = "range-extension"))]
pub(crate) fn moved_instruction(_: &dyn SectionView, _: &Relocation) -> Option<Range<usize>> {
    None
}

#[cfg(feature = "range-extension")]
pub(crate) use decoded::moved_instruction;

#[cfg(feature = "range-extension")]
mod decoded {
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Register};

    use super::*;
    use crate::arch::verify::FieldValue;

    /// The range of the instruction that holds the field of a relocation, if the instruction is in a thunk now.
    pub(crate) fn moved_instruction(section: &dyn SectionView, relocation: &Relocation) -> Option<Range<usize>> {
        if !matches!(relocation.r_type, 2 | 10 | 11 | 21 | 22 | 23) {
            return None;
        }
        let end = relocation.field().start;
        (end.saturating_sub(MOST_BYTES_BEFORE_FIELD)..end)
            .rev()
            .find_map(|start| moved_from(section, relocation, start))
    }

    /// The range of the instruction that holds the field, if a jump to its thunk is at `start` now.
    fn moved_from(section: &dyn SectionView, relocation: &Relocation, start: usize) -> Option<Range<usize>> {
        let (memory, content) = (section.memory(), section.content());
        let [0xe8 | 0xe9, field @ ..] = memory.get(start..start + 5)? else { return None };
        let address = section.address().wrapping_add(start as u64);
        let thunk = address.wrapping_add(5).wrapping_add(FieldValue::of(field).signed);
        let code = section.thunk(thunk)?;
        let old = Decoder::with_ip(64, content.get(start..)?, address, DecoderOptions::NONE).decode();
        let range = start..start + old.len();
        let rest = memory.get(start + 5..range.end)?;
        if old.is_invalid() || relocation.field().end > range.end {
            return None;
        }
        let is_filled = rest.iter().all(|byte| *byte == 0xcc) || rest.iter().all(|byte| *byte == 0x90);
        if matches!(relocation.r_type, 21..=23) {
            return (is_filled && is_distance_thunk(section, relocation, code, thunk, &old)).then_some(range);
        }
        let target = section.symbol_address(relocation.symbol).wrapping_add(relocation.addend as u64);
        let target = match relocation.r_type {
            2 => target.wrapping_add((range.end - relocation.field().start) as u64),
            _ => target,
        };
        (is_filled && is_thunk_for(code, thunk, &old, target)).then_some(range)
    }

    /// Whether a thunk loads the address `target`, or `target` is in reach and the thunk need not; and whether the thunk
    /// goes on after the old instruction, or with the old instruction's branch.
    fn is_thunk_for(code: &[u8], thunk: u64, old: &Instruction, target: u64) -> bool {
        let is_near = i32::try_from(target as i64).is_ok()
            || i32::try_from(target.wrapping_sub(thunk) as i64).is_ok_and(|distance| distance.unsigned_abs() < 1 << 30);
        let mut has_address = false;
        for instruction in Decoder::with_ip(64, code, thunk, DecoderOptions::NONE).into_iter().take(MOST_INSTRUCTIONS) {
            has_address |= instruction.code() == Code::Mov_r64_imm64 && instruction.immediate64() == target;
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::UnconditionalBranch => {
                    return (has_address || is_near) && instruction.near_branch_target() == old.next_ip();
                }
                FlowControl::IndirectBranch => return has_address && old.flow_control() != FlowControl::Next,
                _ => return false,
            }
        }
        false
    }

    /// Whether a thunk asks for the distance of the relocation's variable, and goes on after the old instruction, or with
    /// the old instruction's branch.
    fn is_distance_thunk(
        section: &dyn SectionView,
        relocation: &Relocation,
        code: &[u8],
        thunk: u64,
        old: &Instruction,
    ) -> bool {
        let mut expected = vec![section.pair(relocation.symbol)];
        expected.extend((relocation.r_type == 21).then(|| section.own_block()));
        let (mut asked, mut descriptor) = (Vec::new(), None);
        let addend = if relocation.r_type == 22 { 0 } else { relocation.addend as u64 };
        let mut has_addend = false;
        for instruction in Decoder::with_ip(64, code, thunk, DecoderOptions::NONE).into_iter().take(MOST_INSTRUCTIONS) {
            match instruction.flow_control() {
                FlowControl::Next
                    if instruction.code() == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand() =>
                {
                    let address = instruction.ip_rel_memory_address();
                    descriptor = section.thunk_descriptor(address).filter(|words| words[1] == address.wrapping_add(16));
                }
                FlowControl::Next => {
                    has_addend |= instruction.code() == Code::Lea_r64_m
                        && instruction.memory_base() == Register::RAX
                        && instruction.memory_displacement64() == addend;
                }
                FlowControl::Call => {
                    let Some([function, _, module, offset]) = descriptor.take() else { return false };
                    if !section.is_thunk_function(function) || instruction.near_branch_target() != function {
                        return false;
                    }
                    asked.push(vec![module, offset]);
                }
                FlowControl::UnconditionalBranch => {
                    return has_addend && asked == expected && instruction.near_branch_target() == old.next_ip();
                }
                FlowControl::IndirectBranch => {
                    return has_addend && asked == expected && old.flow_control() != FlowControl::Next;
                }
                _ => return false,
            }
        }
        false
    }

    /// Most bytes of an instruction before a four-byte field.
    const MOST_BYTES_BEFORE_FIELD: usize = 11;
    /// Most instructions of a thunk.
    const MOST_INSTRUCTIONS: usize = 24;
}
