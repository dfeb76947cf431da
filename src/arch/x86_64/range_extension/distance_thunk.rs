//! Moves one instruction into a thunk that computes the distance of a thread-local variable in the thread that runs.
//!
//! The instruction holds a distance from the thread pointer (local exec), loads one from a slot (initial exec), or holds
//! a distance from the start of a block (local dynamic). The thunk calls the function of TLS descriptors, which keeps
//! all registers but `%rax` and the flags.
//!
//! ```text
//!   lea -128(%rsp),%rsp        keep the red zone of the function
//!   push %scratch; pushfq; push %rax
//!   lea variable(%rip),%rax; call function
//!   lea addend(%rax),%scratch
//!   lea block(%rip),%rax; call function; sub %rax,%scratch     for a distance from the start of a block
//!   pop %rax; popfq
//!   the instruction, with %scratch for the displacement, the immediate or the value of the slot
//!   pop %scratch
//!   lea 128(%rsp),%rsp
//!   jmp next instruction
//! ```
//!
//! The scratch register is none that the instruction uses, and not `%rax`. Pushes, calls and jumps through a variable
//! have the special forms of `thunk.rs`.
//!
//! # Refused
//! As in `thunk.rs`. Also an instruction that stores to the slot.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, MemoryOperand, OpKind, Register};

use super::thunk::{
    CALL, JMP, MovedInstruction, NOP, RED_ZONE, ThunkWriter, adjust_stack_operand, check_address_size, check_stack_use,
    memory_operand, replace_immediate, unused_registers,
};
use crate::arch::far_code::ThreadDistance;
use crate::arch::x86_64::MAX_DISTANCE_THUNK_SIZE;
use crate::arch::x86_64::code::TRAP;

/// The operand of an instruction that is a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DistanceOperand {
    /// The displacement of the memory operand.
    Displacement,
    Immediate,
    /// The value of the memory operand, which is a slot of the GOT.
    Slot,
}

/// Moves the instruction `old` from `address` to a thunk at the address `thunk`.
pub(super) fn build(
    old: &[u8],
    address: u64,
    operand: DistanceOperand,
    distance: &ThreadDistance,
    thunk: u64,
) -> Result<MovedInstruction, String> {
    let mut instruction = Decoder::with_ip(64, old, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.len() != old.len() {
        return Err("it is no instruction".to_string());
    }
    check_movable(&instruction, operand)?;
    let mut writer = ThunkWriter::new(thunk);
    let (mut opcode, mut filler) = (JMP, TRAP);
    match instruction.flow_control() {
        FlowControl::IndirectCall => {
            // The callee returns to the byte after the call and runs through the filler.
            (opcode, filler) = (CALL, NOP);
            writer.move_transfer(&mut instruction, distance, Code::Jmp_rm64, 8)?;
        }
        FlowControl::IndirectBranch => {
            let code = instruction.code();
            writer.move_transfer(&mut instruction, distance, code, 0)?;
        }
        FlowControl::Next => {
            let next = instruction.next_ip();
            match instruction.code() {
                Code::Pushq_imm32 | Code::Push_rm64 => writer.move_push(&mut instruction, operand, distance)?,
                _ => writer.move_any(&mut instruction, operand, distance)?,
            }
            writer.encode_new(Instruction::with_branch(Code::Jmp_rel32_64, next))?;
        }
        _ => return Err("it is a branch".to_string()),
    }
    let code = writer.into_code();
    if code.len() > MAX_DISTANCE_THUNK_SIZE {
        return Err(format!("its thunk takes {} bytes", code.len()));
    }
    Ok(MovedInstruction { thunk: code, opcode, filler })
}

/// Refuses an instruction that would not mean the same in a thunk.
fn check_movable(instruction: &Instruction, operand: DistanceOperand) -> Result<(), String> {
    match operand {
        DistanceOperand::Displacement => {
            if instruction.segment_prefix() == Register::GS {
                return Err("it is relative to a segment".to_string());
            }
            check_address_size(instruction)?;
        }
        DistanceOperand::Slot => {
            let is_read = instruction.op_count() == 2 && instruction.op_kind(1) == OpKind::Memory;
            if !is_read || instruction.memory_size().size() != 8 || instruction.op0_kind() != OpKind::Register {
                return Err("it is no load of eight bytes".to_string());
            }
        }
        DistanceOperand::Immediate => {}
    }
    check_stack_use(instruction)
}

impl ThunkWriter {
    /// Loads the distance into `scratch`. Changes `%rax` and the flags.
    fn load_distance(&mut self, scratch: Register, distance: &ThreadDistance) -> Result<(), String> {
        self.call_function(distance.variable, distance)?;
        let sum = MemoryOperand::with_base_displ(Register::RAX, distance.addend);
        self.encode_new(Instruction::with2(Code::Lea_r64_m, scratch, sum))?;
        if let Some(block) = distance.block {
            self.call_function(block, distance)?;
            self.encode_new(Instruction::with2(Code::Sub_rm64_r64, scratch, Register::RAX))?;
        }
        Ok(())
    }

    /// Calls the function of TLS descriptors. It returns the distance from the thread pointer in `%rax`.
    fn call_function(&mut self, descriptor: u64, distance: &ThreadDistance) -> Result<(), String> {
        let descriptor = MemoryOperand::with_base_displ(Register::RIP, descriptor as i64);
        self.encode_new(Instruction::with2(Code::Lea_r64_m, Register::RAX, descriptor))?;
        self.encode_new(Instruction::with_branch(Code::Call_rel32_64, distance.function))
    }

    fn push(&mut self, register: Register) -> Result<(), String> {
        self.encode_new(Instruction::with1(Code::Push_r64, register))
    }

    fn pop(&mut self, register: Register) -> Result<(), String> {
        self.encode_new(Instruction::with1(Code::Pop_r64, register))
    }

    /// Saves the red zone and `scratch`, loads the distance into it, and makes `instruction` use it. The stack pointer is
    /// [`DEPTH`] bytes lower afterwards.
    fn begin(
        &mut self,
        instruction: &mut Instruction,
        operand: DistanceOperand,
        distance: &ThreadDistance,
    ) -> Result<Register, String> {
        let scratch = scratch_register(instruction)?;
        self.move_stack(-RED_ZONE)?;
        self.push(scratch)?;
        self.encode(Instruction::with(Code::Pushfq))?;
        self.push(Register::RAX)?;
        self.load_distance(scratch, distance)?;
        self.pop(Register::RAX)?;
        self.encode(Instruction::with(Code::Popfq))?;
        match operand {
            DistanceOperand::Displacement => self.use_memory_operand(instruction, scratch, DEPTH)?,
            DistanceOperand::Immediate => adjust_stack_operand(instruction, DEPTH)?,
            DistanceOperand::Slot => {
                instruction.set_op1_kind(OpKind::Register);
                instruction.set_op1_register(scratch);
                instruction.set_memory_base(Register::None);
            }
        }
        Ok(scratch)
    }

    /// An instruction without a special form.
    fn move_any(
        &mut self,
        instruction: &mut Instruction,
        operand: DistanceOperand,
        distance: &ThreadDistance,
    ) -> Result<(), String> {
        let scratch = self.begin(instruction, operand, distance)?;
        if operand == DistanceOperand::Immediate {
            replace_immediate(instruction, scratch)?;
        }
        self.encode(*instruction)?;
        self.pop(scratch)?;
        self.move_stack(RED_ZONE)
    }

    /// A push: stores the value where the instruction would push it.
    fn move_push(
        &mut self,
        instruction: &mut Instruction,
        operand: DistanceOperand,
        distance: &ThreadDistance,
    ) -> Result<(), String> {
        if operand == DistanceOperand::Slot {
            return Err("it is no load of eight bytes".to_string());
        }
        let segment = instruction.segment_prefix();
        let scratch = self.begin(instruction, operand, distance)?;
        if operand == DistanceOperand::Displacement {
            let mut load = Instruction::with2(Code::Mov_r64_rm64, scratch, memory_operand(instruction))
                .map_err(|error| error.to_string())?;
            load.set_segment_prefix(segment);
            self.encode(load)?;
        }
        let pushed = MemoryOperand::with_base_displ(Register::RSP, DEPTH - 8);
        self.encode_new(Instruction::with2(Code::Mov_rm64_r64, pushed, scratch))?;
        self.pop(scratch)?;
        self.move_stack(RED_ZONE - 8)
    }

    /// A call or jump through a variable, as the jump `code`. The stack pointer is `depth` bytes lower than the
    /// instruction expects. No function has arguments in `%r11`, and the callee may use the red zone.
    fn move_transfer(
        &mut self,
        instruction: &mut Instruction,
        distance: &ThreadDistance,
        code: Code,
        depth: i64,
    ) -> Result<(), String> {
        let uses = [instruction.memory_base(), instruction.memory_index()];
        if !matches!(instruction.code(), Code::Call_rm64 | Code::Jmp_rm64) || uses.contains(&Register::R11) {
            return Err("it is a branch of an unknown form".to_string());
        }
        self.push(Register::RAX)?;
        self.load_distance(Register::R11, distance)?;
        self.pop(Register::RAX)?;
        self.use_memory_operand(instruction, Register::R11, depth)?;
        instruction.set_code(code);
        self.encode(*instruction)
    }
}

/// A register that the instruction does not use, other than `%rax`.
fn scratch_register(instruction: &Instruction) -> Result<Register, String> {
    let mut unused = unused_registers(instruction).filter(|register| *register != Register::RAX);
    unused.next().ok_or_else(|| "it uses all registers".to_string())
}

/// How much lower the stack pointer is when the instruction runs.
const DEPTH: i64 = RED_ZONE + 8;

#[cfg(test)]
mod tests {
    use super::*;

    const DISTANCE: ThreadDistance = ThreadDistance { variable: 0x9000, block: None, addend: 16, function: 0x8000 };

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn the_longest_thunk_fits_into_the_reserved_bytes() {
        // lock addq $0x1000000, %fs:far(%r12, %r13, 8)
        let longest = [0xf0, 0x64, 0x4b, 0x81, 0x84, 0xec, 0, 0, 0, 0, 0, 0, 0, 1];
        let distance = ThreadDistance { block: Some(0x9020), ..DISTANCE };
        let moved = build(&longest, 0x1000, DistanceOperand::Displacement, &distance, 0x2000);
        assert!(moved.is_ok_and(|moved| moved.thunk.len() <= MAX_DISTANCE_THUNK_SIZE));
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_thunk_keeps_the_segment_of_its_instruction() {
        // mov %fs:far, %eax
        let old = [0x64, 0x8b, 0x04, 0x25, 0, 0, 0, 0];
        let moved = build(&old, 0x1000, DistanceOperand::Displacement, &DISTANCE, 0x2000).unwrap();
        // mov %fs:(%rcx), %eax
        assert!(moved.thunk.windows(3).any(|code| code == [0x64, 0x8b, 0x01]), "{:02x?}", moved.thunk);
        // mov %gs:far, %eax
        let old = [0x65, 0x8b, 0x04, 0x25, 0, 0, 0, 0];
        assert!(build(&old, 0x1000, DistanceOperand::Displacement, &DISTANCE, 0x2000).is_err());
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn an_instruction_that_stores_to_a_slot_is_refused() {
        // add %rax, slot(%rip); mov slot(%rip), %eax
        for old in [&[0x48, 0x01, 0x05, 0, 0, 0, 0][..], &[0x8b, 0x05, 0, 0, 0, 0]] {
            assert!(build(old, 0x1000, DistanceOperand::Slot, &DISTANCE, 0x2000).is_err());
        }
    }
}
