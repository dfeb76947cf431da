//! References that were redirected, because what they name is out of reach: a jump stands for the instruction, and the thunk
//! that it leads to holds the whole address; an entry of an exception table leads to a slot that does.
//!
//! Which instruction it was is seen from where the jump stands. That the thunk does with the address what the instruction did
//! is not judged here; the tests of `thunk.rs`, and running it, are for that.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::Finding;
use super::formulas::{Judge, Value};
use super::reread::Reference;

impl Judge<'_> {
    /// The bytes that a redirected reference accounts for; `None` for one that is not, or not as it must be.
    pub(super) fn redirected(&self, reference: &Reference) -> Option<Range<usize>> {
        match reference.r_type {
            10 if self.leads_to_slot(reference) => Some(reference.field()),
            2 | 10 | 11 => {
                let end = reference.field().start;
                (end.saturating_sub(LONGEST)..end).rev().find_map(|start| self.moved_instruction(reference, start))
            }
            _ => None,
        }
    }

    /// Whether it is the distance of a slot that holds the address.
    fn leads_to_slot(&self, reference: &Reference) -> bool {
        let slots = self.block(self.fixup.tables.far.slots());
        let (Some((start, slots)), Some(field)) = (slots, self.memory.get(reference.field())) else { return false };
        let at = self.address.wrapping_add(reference.offset).wrapping_add(Value::of(field).signed).wrapping_sub(start);
        let slot = usize::try_from(at).ok().and_then(|at| slots.get(at..at.checked_add(8)?));
        let target = self.symbol_address(reference.symbol).wrapping_add(reference.addend as u64);
        at % 8 == 0 && slot.is_some_and(|slot| Value::of(slot).unsigned == target)
    }

    /// Tables whose entries lead to slots say so: the byte ahead of them is another than the object's.
    pub(super) fn explain_encodings(&self, explained: &mut [u8], references: &[Reference]) -> Result<(), Finding> {
        let in_slots = || references.iter().filter(|reference| reference.r_type == 10 && self.leads_to_slot(reference));
        if self.fixup.tables.far.slots().is_none() || in_slots().next().is_none() {
            return Ok(());
        }
        let is_changed = |at: &usize| explained[*at] == 0x03 && self.memory.get(*at) == Some(&0x9b);
        let changed: Vec<usize> = (0..explained.len()).filter(is_changed).collect();
        let tables: Vec<Range<usize>> = changed.iter().map(|at| types_of(explained, *at)).collect();
        let is_told = |reference: &&Reference| tables.iter().any(|types| types.contains(&reference.field().start));
        if let Some(reference) = in_slots().find(|reference| !is_told(reference)) {
            return Err(Finding::new(reference.offset, reference.name(), "a distance", "an address, by its table"));
        }
        for (at, types) in changed.iter().zip(tables) {
            if in_slots().any(|reference| types.contains(&reference.field().start)) {
                explained[*at] = 0x9b;
            }
        }
        Ok(())
    }

    /// Where a jump to a thunk stands at `start`, in place of an instruction with this field.
    fn moved_instruction(&self, reference: &Reference, start: usize) -> Option<Range<usize>> {
        let [0xe8 | 0xe9, field @ ..] = self.memory.get(start..start + 5)? else { return None };
        let address = self.address.wrapping_add(start as u64);
        let thunk = address.wrapping_add(5).wrapping_add(Value::of(field).signed);
        let (thunks, code) = self.block(self.fixup.tables.far.thunks())?;
        let code = code.get(usize::try_from(thunk.wrapping_sub(thunks)).ok()?..)?;
        let old = Decoder::with_ip(64, self.content.get(start..)?, address, DecoderOptions::NONE).decode();
        let range = start..start + old.len();
        let rest = self.memory.get(start + 5..range.end)?;
        if old.is_invalid() || reference.field().end > range.end {
            return None;
        }
        let is_filled = rest.iter().all(|byte| *byte == 0xcc) || rest.iter().all(|byte| *byte == 0x90);
        let target = self.symbol_address(reference.symbol).wrapping_add(reference.addend as u64);
        let target = match reference.r_type {
            2 => target.wrapping_add((range.end - reference.field().start) as u64),
            _ => target,
        };
        (is_filled && self.leads_back(code, thunk, &old, target)).then_some(range)
    }

    /// Whether the thunk has the address, or had no need of it, and goes on behind the instruction or where that went.
    fn leads_back(&self, code: &[u8], thunk: u64, old: &Instruction, target: u64) -> bool {
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
}

/// Where the types stand whose encoding is at `at`: what follows it says how far away they end.
fn types_of(table: &[u8], at: usize) -> Range<usize> {
    let length = table[at + 1..].iter().take(9).position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    let start = at + 1 + length;
    let distance = table[at + 1..start].iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    start..start.saturating_add(distance)
}

/// Bytes of an instruction ahead of a field.
const LONGEST: usize = 11;
const MOST_INSTRUCTIONS: usize = 16;
