//! [`LinearSweep`]: finds the instruction that a relocated field belongs to.
//!
//! x86 instructions cannot be decoded backwards. So the sweep decodes forwards, from the last address before the field
//! where an instruction is known to begin, or from the start of the section. Each byte is decoded at most once.
//!
//! On the way, every relocated field must be an operand of the instruction that holds it. If a field is not, the bytes
//! may be data among code, and the sweep fails rather than guess.

use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction};

/// A decoded instruction; `start` and `end` are offsets in its section.
pub(super) struct LocatedInstruction {
    pub(super) start: usize,
    pub(super) end: usize,
    constants: ConstantOffsets,
    is_ip_relative: bool,
}

/// Which operand of an instruction a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperandField {
    /// The displacement of a memory operand. A relative one counts from the end of the instruction.
    Displacement {
        is_relative: bool,
    },
    Immediate,
}

impl LocatedInstruction {
    /// Which operand the four-byte field at this offset of the section is; `None` if it is none.
    pub(super) fn operand_field(&self, offset: u32) -> Option<OperandField> {
        let (at, constants) = ((offset as usize).checked_sub(self.start)?, &self.constants);
        if constants.has_displacement() && (constants.displacement_offset(), constants.displacement_size()) == (at, 4) {
            return Some(OperandField::Displacement { is_relative: self.is_ip_relative });
        }
        let is_immediate =
            constants.has_immediate() && (constants.immediate_offset(), constants.immediate_size()) == (at, 4);
        is_immediate.then_some(OperandField::Immediate)
    }

    fn has_operand_at(&self, offset: u32) -> bool {
        let (at, constants) = (offset as usize - self.start, &self.constants);
        constants.has_displacement() && constants.displacement_offset() == at
            || constants.has_immediate() && constants.immediate_offset() == at
            || constants.has_immediate2() && constants.immediate_offset2() == at
    }
}

/// A forward walk over the instructions of one section.
pub(super) struct LinearSweep<'a> {
    decoder: Decoder<'a>,
    starts: &'a [u64],
    /// Offsets of the relocated fields, ascending.
    fields: &'a [u32],
    next_field: usize,
    /// Offset of the next instruction.
    position: usize,
}

impl<'a> LinearSweep<'a> {
    /// A sweep over the bytes of a section. `starts` and `fields` are as in [`FarCode`](crate::arch::FarCode).
    pub(super) fn new(code: &'a [u8], starts: &'a [u64], fields: &'a [u32]) -> LinearSweep<'a> {
        let decoder = Decoder::new(64, code, DecoderOptions::NONE);
        LinearSweep { decoder, starts, fields, next_field: 0, position: 0 }
    }

    /// Finds the instruction that holds the field at `offset`. Offsets must ascend from call to call, and a call must
    /// not ask for an instruction that an earlier call returned.
    ///
    /// # Errors
    /// The reason, as a clause, when bytes before the field cannot be decoded or the field is no operand.
    pub(super) fn find(&mut self, offset: u32) -> Result<LocatedInstruction, String> {
        let count = self.starts.partition_point(|start| *start <= offset.into());
        if let Some(start) = count.checked_sub(1).and_then(|last| self.starts.get(last)) {
            self.position = self.position.max(*start as usize);
        }
        while self.position <= offset as usize {
            let instruction = self.decode_next()?;
            if (offset as usize) < instruction.end {
                return Ok(instruction);
            }
        }
        Err("two instructions overlap it".to_string())
    }

    fn decode_next(&mut self) -> Result<LocatedInstruction, String> {
        let unclear = |at| format!("the bytes at {at:#x} may be no code");
        let mut instruction = Instruction::default();
        self.decoder.set_position(self.position).map_err(|_| unclear(self.position))?;
        self.decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(unclear(self.position));
        }
        let located = LocatedInstruction {
            start: self.position,
            end: self.position + instruction.len(),
            constants: self.decoder.get_constant_offsets(&instruction),
            is_ip_relative: instruction.is_ip_rel_memory_operand(),
        };
        while let Some(field) = self.fields.get(self.next_field).filter(|field| (**field as usize) < located.end) {
            if *field as usize >= located.start && !located.has_operand_at(*field) {
                return Err(unclear(located.start));
            }
            self.next_field += 1;
        }
        self.position = located.end;
        Ok(located)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_field_is_found_in_its_instruction_after_undecodable_bytes_before_the_function() {
        // A byte of data that would swallow what follows, then mov $0,%edi; cmpq $1,0(%rip).
        let code = [0x48, 0xbf, 0, 0, 0, 0, 0x48, 0x83, 0x3d, 0, 0, 0, 0, 1];
        let start = [1];
        let mut sweep = LinearSweep::new(&code, &start, &[2, 9]);
        let mov = sweep.find(2).unwrap();
        assert_eq!((mov.start, mov.end, mov.operand_field(2)), (1, 6, Some(OperandField::Immediate)));
        let cmp = sweep.find(9).unwrap();
        let displacement = OperandField::Displacement { is_relative: true };
        assert_eq!((cmp.start, cmp.end, cmp.operand_field(9)), (6, 14, Some(displacement)));
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn the_sweep_fails_at_a_relocated_field_that_is_no_operand() {
        // Read from its first byte this is one movabs, whose operand begins elsewhere.
        let code = [0x48, 0xbf, 0, 0, 0, 0, 0x90, 0x90, 0x90, 0x90];
        assert!(LinearSweep::new(&code, &[], &[3]).find(3).is_err());
        assert!(LinearSweep::new(&[0x06, 0, 0, 0, 0], &[], &[1]).find(1).is_err(), "no instruction");
        assert!(LinearSweep::new(&[0xbf, 0, 0, 0, 0, 0xbf, 0, 0], &[], &[6]).find(6).is_err(), "cut off");
    }
}
