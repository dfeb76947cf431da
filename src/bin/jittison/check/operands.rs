//! One x86-64 instruction as LLVM's `MCInst` lists its operands, because those are what rules count.
//!
//! The order is what is written, then what is read, as in Intel's syntax. Of that:
//!
//! | in the instruction | in the list |
//! |---|---|
//! | register that the encoding names | register; twice if it comes first and is read as well as written |
//! | register that the opcode implies (`%al`, `%cl`, …) | nothing |
//! | memory | base, scale, index, displacement, segment: register, number, register, number, register |
//! | immediate | number, as wide as LLVM makes it |
//! | branch target | number: the displacement as encoded |
//! | condition of `jcc`, `cmovcc`, `setcc` | number, last |
//!
//! Where LLVM follows another rule (locked, repeated and exchanging instructions, strings, x87 arithmetic, gathers,
//! AVX-512, short displacements), there is no list: an error beats a guess.

use std::fmt;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpCodeOperandKind, OpKind, Register,
};

/// One entry of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    Number(u64),
    Register,
}

/// An instruction that stands at the beginning of some bytes.
#[derive(Debug)]
pub struct Decoded {
    instruction: Instruction,
}

impl Decoded {
    /// `None` if no instruction begins there, or not all of it is there.
    pub fn from_bytes(bytes: &[u8]) -> Option<Decoded> {
        // At address 0, so that what is relative to the instruction needs no more than its length taken off.
        let instruction = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(Decoded { instruction })
    }

    /// Bytes; `None` where LLVM takes the instruction for two.
    pub fn length(&self) -> Option<u64> {
        (!self.has_prefix_apart()).then(|| self.end())
    }

    /// The list; `None` where LLVM follows another rule.
    pub fn operands(&self) -> Option<Vec<Operand>> {
        if self.is_listed_otherwise() {
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

    fn end(&self) -> u64 {
        self.instruction.len() as u64
    }

    /// `mov` between an accumulator and an address of 64 bits, which has no base.
    fn is_offset_only(&self, index: u32) -> bool {
        self.instruction.op_code().op_kind(index) == OpCodeOperandKind::mem_offs
    }

    fn is_first_read_and_written(&self) -> bool {
        let mut instruction = self.instruction;
        // `xor %eax, %eax` reads nothing, and is listed like any other `xor`.
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

    /// As encoded, sign-extended.
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

    /// As encoded; a byte is signed where it stands for a wider number or is one, and not where it counts or selects.
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

    /// LLVM lists such a prefix as an instruction of its own.
    fn has_prefix_apart(&self) -> bool {
        let instruction = &self.instruction;
        instruction.has_lock_prefix() || instruction.has_rep_prefix() || instruction.has_repne_prefix()
    }

    fn is_listed_otherwise(&self) -> bool {
        use Mnemonic::*;
        let instruction = &self.instruction;
        let is_vex = instruction.encoding() == EncodingKind::VEX;
        self.has_prefix_apart()
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

    /// A jump behind prefixes that change nothing on some processors, and its width on others.
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

/// Operands that a programmer writes and the encoding does not hold.
fn is_implied(kind: OpCodeOperandKind) -> bool {
    use OpCodeOperandKind::*;
    matches!(kind, al | cl | ax | dx | eax | rax | st0 | es | cs | ss | ds | fs | gs | imm8_const_1)
}

/// As in the low bits of the opcode: overflow is 0, "below" is 2.
fn condition_number(condition: ConditionCode) -> u64 {
    condition as u64 - ConditionCode::o as u64
}

#[cfg(test)]
#[path = "operand_tests.rs"]
mod tests;
