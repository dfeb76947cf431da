//! [`Decoded`]: one x86-64 instruction, with the operands that LLVM's `MCInst` lists. Rules count these operands.
//!
//! The order is that of Intel's syntax: the destination first, then the sources.
//!
//! | in the instruction | in the list |
//! |---|---|
//! | register that the encoding names | a register; twice if it is the first operand and is both read and written |
//! | register that the opcode implies (`%al`, `%cl`, …) | nothing |
//! | memory | base, scale, index, displacement, segment: register, number, register, number, register |
//! | immediate | a number, as wide as in LLVM |
//! | branch target | a number: the displacement as encoded |
//! | condition of `jcc`, `cmovcc`, `setcc` | a number, last |
//!
//! # Limits
//! LLVM follows other rules for some instructions: with lock or repeat prefixes, exchanges, strings, x87 arithmetic,
//! gathers, AVX-512, direct jumps with prefixes. For these there is no list, and the rule is an error.

use std::fmt;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpCodeOperandKind, OpKind, Register,
};

use super::Operand;

/// A decoded instruction.
#[derive(Debug)]
pub struct Decoded {
    instruction: Instruction,
}

impl Decoded {
    /// Decodes the first instruction of `bytes`. `None` if there is none, or if it is not complete.
    pub fn from_bytes(bytes: &[u8]) -> Option<Decoded> {
        // The address is 0, so a relative value minus the length of the instruction is the value as encoded.
        let instruction = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(Decoded { instruction })
    }

    /// The length in bytes. `None` if LLVM decodes the prefix as a separate instruction.
    pub fn length(&self) -> Option<u64> {
        (!self.has_separate_prefix()).then(|| self.end())
    }

    /// The operands. `None` if LLVM follows another rule for this instruction.
    pub fn operands(&self) -> Option<Vec<Operand>> {
        if self.has_other_rule() {
            return None;
        }
        let mut list = Vec::new();
        for index in 0..self.instruction.op_count() {
            self.list(index, &mut list)?;
        }
        if self.has_condition_operand() {
            list.push(Operand::Number(condition_number(self.instruction.condition_code())));
        }
        Some(list)
    }

    fn list(&self, index: u32, list: &mut Vec<Operand>) -> Option<()> {
        if is_implied(self.instruction.op_code().op_kind(index)) {
            return Some(());
        }
        match self.instruction.op_kind(index) {
            OpKind::Register => {
                list.push(Operand::Register);
                if index == 0 && self.is_first_read_and_written() {
                    list.push(Operand::Register);
                }
            }
            OpKind::Memory if self.is_offset_only(index) => {
                list.extend([Operand::Number(self.instruction.memory_displacement64()), Operand::Register]);
            }
            OpKind::Memory => list.extend([
                Operand::Register,
                Operand::Number(self.instruction.memory_index_scale().into()),
                Operand::Register,
                Operand::Number(self.displacement()),
                Operand::Register,
            ]),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                list.push(Operand::Number(self.instruction.near_branch64().wrapping_sub(self.end())));
            }
            kind => list.push(Operand::Number(self.immediate(index, kind)?)),
        }
        Some(())
    }

    /// The address of the next instruction.
    fn end(&self) -> u64 {
        self.instruction.len() as u64
    }

    /// `mov` between an accumulator and a 64-bit address, which has no base register.
    fn is_offset_only(&self, index: u32) -> bool {
        self.instruction.op_code().op_kind(index) == OpCodeOperandKind::mem_offs
    }

    fn is_first_read_and_written(&self) -> bool {
        let mut instruction = self.instruction;
        // `xor %eax, %eax` does not read the register, but LLVM lists it as any other `xor`.
        if instruction.op_count() == 2 && instruction.op0_register() == instruction.op1_register() {
            instruction.set_op1_register(Register::None);
        }
        let options = InstructionInfoOptions::NO_MEMORY_USAGE | InstructionInfoOptions::NO_REGISTER_USAGE;
        match InstructionInfoFactory::new().info_options(&instruction, options).op0_access() {
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => true,
            OpAccess::CondWrite => self.has_condition_operand(),
            _ => false,
        }
    }

    /// The displacement of a memory operand as encoded, sign-extended.
    fn displacement(&self) -> u64 {
        let instruction = &self.instruction;
        let low_half = |value: u64| i64::from(value as u32 as i32) as u64;
        match (instruction.memory_base(), instruction.memory_index()) {
            (Register::RIP, _) => instruction.memory_displacement64().wrapping_sub(self.end()),
            (Register::EIP, _) => low_half(instruction.memory_displacement64().wrapping_sub(self.end())),
            (base, index) if base.is_gpr32() || index.is_gpr32() => low_half(instruction.memory_displacement64()),
            _ if instruction.memory_displ_size() == 4 => low_half(instruction.memory_displacement64()),
            _ => instruction.memory_displacement64(),
        }
    }

    /// An immediate as encoded. A byte is signed in arithmetic, and unsigned where it is a count or selects lanes.
    fn immediate(&self, index: u32, kind: OpKind) -> Option<u64> {
        use Mnemonic::*;
        let value = self.instruction.try_immediate(index).ok()?;
        let is_arithmetic =
            matches!(self.instruction.mnemonic(), Adc | Add | And | Cmp | Mov | Or | Sbb | Sub | Test | Xor);
        Some(match kind {
            OpKind::Immediate8 if is_arithmetic => i64::from(value as u8 as i8) as u64,
            _ => value,
        })
    }

    fn has_condition_operand(&self) -> bool {
        self.instruction.condition_code() != ConditionCode::None && !self.instruction.is_loopcc()
    }

    /// Whether LLVM decodes a prefix as a separate instruction.
    fn has_separate_prefix(&self) -> bool {
        let instruction = &self.instruction;
        instruction.has_lock_prefix() || instruction.has_rep_prefix() || instruction.has_repne_prefix()
    }

    fn has_other_rule(&self) -> bool {
        use Mnemonic::*;
        let instruction = &self.instruction;
        let is_vex = instruction.encoding() == EncodingKind::VEX;
        self.has_separate_prefix()
            || !is_vex && instruction.encoding() != EncodingKind::Legacy
            || is_vex && (instruction.is_vsib() || self.has_condition_operand())
            || instruction.is_string_instruction()
            || instruction.op_code().op_kinds().contains(&OpCodeOperandKind::sti_opcode)
            || self.is_padded_jump()
            || matches!(instruction.mnemonic(), Ret | Retf) && instruction.op_count() > 0
            || matches!(
                instruction.mnemonic(),
                Cmpxchg | Enter | Extrq | Insertq | Rdsspd | Rdsspq | Reservednop | Ud0 | Xadd | Xchg | Xlatb
            )
    }

    /// Whether a jump has prefixes that some processors ignore, and that change the operand width on others.
    fn is_padded_jump(&self) -> bool {
        let instruction = &self.instruction;
        instruction.is_jmp_near() && self.end() > 5 || instruction.is_jcc_near() && self.end() > 6
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{:?}", self.instruction.mnemonic()).to_lowercase())
    }
}

/// Whether an operand is written in assembly but has no bits in the encoding.
fn is_implied(kind: OpCodeOperandKind) -> bool {
    use OpCodeOperandKind::*;
    matches!(kind, al | cl | ax | dx | eax | rax | st0 | es | cs | ss | ds | fs | gs | imm8_const_1)
}

/// The number of a condition in the low bits of the opcode: overflow is 0, "below" is 2.
fn condition_number(condition: ConditionCode) -> u64 {
    condition as u64 - ConditionCode::o as u64
}

#[cfg(test)]
mod tests;
