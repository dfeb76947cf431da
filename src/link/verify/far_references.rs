//! Checks far references: those that range extension rewrote, because their target is out of reach.
//!
//! | reference | must be now |
//! |---|---|
//! | in an instruction | a jump or call to a thunk that loads the 64-bit address and goes on after the instruction |
//! | in a type table | the distance of a slot that holds the 64-bit address; the table's encoding says so |
//!
//! The position of the jump tells which instruction was there. This file does not check that the thunk does with the
//! address what the instruction did. The tests of `range_extension/thunk.rs`, and tests that run thunks, check that.

use std::ops::Range;

#[cfg(feature = "range-extension")]
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::formulas::{FieldValue, FieldVerifier};
use super::mismatch::Mismatch;
use super::object_view::Relocation;

impl FieldVerifier<'_> {
    /// The bytes that an extended reference explains; `None` for a reference that is not extended, or not correctly.
    pub(super) fn extended(&self, relocation: &Relocation) -> Option<Range<usize>> {
        match relocation.r_type {
            10 if self.leads_to_slot(relocation) => Some(relocation.field()),
            2 | 10 | 11 => {
                let end = relocation.field().start;
                (end.saturating_sub(MOST_BYTES_BEFORE_FIELD)..end)
                    .rev()
                    .find_map(|start| self.moved_instruction(relocation, start))
            }
            _ => None,
        }
    }

    /// Whether the field is the distance of a slot that holds the address.
    fn leads_to_slot(&self, relocation: &Relocation) -> bool {
        let slots = self.block(self.link.tables.range_extension.slots());
        let (Some((start, slots)), Some(field)) = (slots, self.memory.get(relocation.field())) else { return false };
        let at =
            self.address.wrapping_add(relocation.offset).wrapping_add(FieldValue::of(field).signed).wrapping_sub(start);
        let slot = usize::try_from(at).ok().and_then(|at| slots.get(at..at.checked_add(8)?));
        let target = self.symbol_address(relocation.symbol).wrapping_add(relocation.addend as u64);
        at % 8 == 0 && slot.is_some_and(|slot| FieldValue::of(slot).unsigned == target)
    }

    /// Explains the encoding bytes that range extension changed: writes them to `explained`, which holds the bytes that
    /// memory must have. A table whose entries lead to slots must have the encoding of distances.
    pub(super) fn explain_encodings(&self, explained: &mut [u8], relocations: &[Relocation]) -> Result<(), Mismatch> {
        let in_slots =
            || relocations.iter().filter(|relocation| relocation.r_type == 10 && self.leads_to_slot(relocation));
        if self.link.tables.range_extension.slots().is_none() || in_slots().next().is_none() {
            return Ok(());
        }
        let is_changed = |at: &usize| explained[*at] == 0x03 && self.memory.get(*at) == Some(&0x9b);
        let changed: Vec<usize> = (0..explained.len()).filter(is_changed).collect();
        let tables: Vec<Range<usize>> = changed.iter().map(|at| type_range(explained, *at)).collect();
        let has_encoding =
            |relocation: &&Relocation| tables.iter().any(|types| types.contains(&relocation.field().start));
        if let Some(relocation) = in_slots().find(|relocation| !has_encoding(relocation)) {
            return Err(Mismatch::new(
                relocation.offset,
                relocation.name(),
                "a distance",
                "an address, by its table's encoding",
            ));
        }
        for (at, types) in changed.iter().zip(tables) {
            if in_slots().any(|relocation| types.contains(&relocation.field().start)) {
                explained[*at] = 0x9b;
            }
        }
        Ok(())
    }

    /// Without the feature `range-extension` no instruction moves.
    #[cfg(not(feature = "range-extension"))]
    fn moved_instruction(&self, _: &Relocation, _: usize) -> Option<Range<usize>> {
        None
    }

    /// The range of the instruction that holds the field, if a jump to its thunk is at `start` now.
    #[cfg(feature = "range-extension")]
    fn moved_instruction(&self, relocation: &Relocation, start: usize) -> Option<Range<usize>> {
        let [0xe8 | 0xe9, field @ ..] = self.memory.get(start..start + 5)? else { return None };
        let address = self.address.wrapping_add(start as u64);
        let thunk = address.wrapping_add(5).wrapping_add(FieldValue::of(field).signed);
        let (thunks, code) = self.block(self.link.tables.range_extension.thunks())?;
        let code = code.get(usize::try_from(thunk.wrapping_sub(thunks)).ok()?..)?;
        let old = Decoder::with_ip(64, self.content.get(start..)?, address, DecoderOptions::NONE).decode();
        let range = start..start + old.len();
        let rest = self.memory.get(start + 5..range.end)?;
        if old.is_invalid() || relocation.field().end > range.end {
            return None;
        }
        let is_filled = rest.iter().all(|byte| *byte == 0xcc) || rest.iter().all(|byte| *byte == 0x90);
        let target = self.symbol_address(relocation.symbol).wrapping_add(relocation.addend as u64);
        let target = match relocation.r_type {
            2 => target.wrapping_add((range.end - relocation.field().start) as u64),
            _ => target,
        };
        (is_filled && is_thunk_for(code, thunk, &old, target)).then_some(range)
    }
}

/// Whether a thunk loads the address `target`, or `target` is in reach and the thunk need not; and whether the thunk
/// goes on after the old instruction, or with the old instruction's branch.
#[cfg(feature = "range-extension")]
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

/// The range of the types whose encoding is at `at`. The ULEB128 number after the encoding is the distance to their
/// end.
fn type_range(table: &[u8], at: usize) -> Range<usize> {
    let length = table[at + 1..].iter().take(9).position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    let start = at + 1 + length;
    let distance = table[at + 1..start].iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    start..start.saturating_add(distance)
}

/// Most bytes of an instruction before a four-byte field.
const MOST_BYTES_BEFORE_FIELD: usize = 11;
/// Most instructions of a thunk.
#[cfg(feature = "range-extension")]
const MOST_INSTRUCTIONS: usize = 16;
