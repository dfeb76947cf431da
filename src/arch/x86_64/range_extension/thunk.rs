//! Moves one instruction into a thunk, where registers hold the 64-bit values of its far operands.
//!
//! ```text
//!   lea -128(%rsp),%rsp        keep the red zone of the function
//!   push %scratch              unless the instruction overwrites it anyway (`mov stdout(%rip),%rdi`)
//!   movabs $variable,%scratch
//!   lea (%base,%scratch),%scratch    if the operand has a base register
//!   the instruction, with (%scratch) or (%scratch,%index,4) as its memory operand, or %scratch as its immediate
//!   pop %scratch
//!   lea 128(%rsp),%rsp
//!   jmp next instruction
//! ```
//!
//! The added instructions do not touch the flags. The instruction itself reads and writes memory, as before. Operands
//! that are relative to `%rsp` or to the instruction's own address are corrected.
//!
//! # Special forms
//! - An instruction that loads an address into a register becomes one `movabs`.
//! - A push saves the scratch register in the slot of the pushed value. It loads the value and exchanges the two.
//! - A call or jump through a far variable uses `%r11`, in which no function gets arguments and which no function
//!   preserves (psABI 3.2.1).
//! - A call stays at its place, so that the return address is in the function. It calls the thunk, and the thunk
//!   jumps to the callee.
//!
//! # Refused
//! Instructions that would not mean the same in a thunk: other uses of `%rsp`, an address as an operand of less than 64
//! bits, and what the encoder cannot encode. Every function here returns the reason as a clause.
//!
//! # Limits
//! A jump through a far variable is taken for a tail call, where `%r11` is dead. A computed `goto` through a variable of
//! a library (`goto *table[n]`) compiles to the same instruction, and `%r11` may be live there: its value is lost. The
//! two cannot be told apart, and a jump that keeps all registers would need a `ret`, which shadow stacks forbid.
//! Compilers keep their own jump tables in the object, where they are in reach and need no thunk. So only source that
//! stores the addresses of its labels in a variable of another library is concerned.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic,
    OpKind, Register,
};

use crate::arch::x86_64::MAX_THUNK_SIZE;
use crate::arch::x86_64::code::TRAP;

/// The 64-bit values that the far operands of an instruction stand for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FarOperands {
    /// The value that a memory operand adds to base and index; mostly the address of a variable.
    pub(super) displacement: Option<u64>,
    pub(super) immediate: Option<u64>,
}

/// A moved instruction.
#[derive(Debug)]
pub(super) struct MovedInstruction {
    /// The code of the thunk.
    pub(super) thunk: Vec<u8>,
    /// The opcode of the call or jump to the thunk, at the old place.
    pub(super) opcode: u8,
    /// Fills the rest of the old place.
    pub(super) filler: u8,
}

/// Moves the instruction `old` from `address` to a thunk at the address `thunk`.
pub(super) fn build(old: &[u8], address: u64, far: &FarOperands, thunk: u64) -> Result<MovedInstruction, String> {
    let instruction = Decoder::with_ip(64, old, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.len() != old.len() {
        return Err("it is no instruction".to_string());
    }
    check_movable(&instruction, far)?;
    let mut writer = ThunkWriter::new(thunk);
    let (mut opcode, mut filler) = (JMP, TRAP);
    match instruction.flow_control() {
        FlowControl::IndirectCall => {
            // The callee returns to the byte after the call and runs through the filler.
            (opcode, filler) = (CALL, NOP);
            writer.write_transfer(instruction, far, Code::Jmp_rm64, 8)?;
        }
        FlowControl::IndirectBranch => writer.write_transfer(instruction, far, instruction.code(), 0)?,
        FlowControl::Next => {
            match instruction.code() {
                Code::Pushq_imm32 | Code::Push_rm64 => writer.write_push(instruction, far)?,
                Code::Mov_r32_imm32 => writer.movabs(instruction.op0_register().full_register(), far.immediate)?,
                _ => writer.write_any(instruction, far)?,
            }
            writer.encode_new(Instruction::with_branch(Code::Jmp_rel32_64, instruction.next_ip()))?;
        }
        _ => return Err("it is a branch".to_string()),
    }
    let code = writer.into_code();
    let operand_count = usize::from(far.displacement.is_some()) + usize::from(far.immediate.is_some());
    if code.len() > MAX_THUNK_SIZE * operand_count {
        return Err(format!("its thunk takes {} bytes", code.len()));
    }
    Ok(MovedInstruction { thunk: code, opcode, filler })
}

/// Refuses an instruction that would not mean the same in a thunk.
fn check_movable(instruction: &Instruction, far: &FarOperands) -> Result<(), String> {
    let refuse = |problem: &str| Err(problem.to_string());
    if far.displacement.is_some() {
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
            return refuse("it is relative to a segment");
        }
        check_address_size(instruction)?;
    }
    check_stack_use(instruction)
}

/// Refuses an instruction whose memory operand has an address of 32 bits.
pub(super) fn check_address_size(instruction: &Instruction) -> Result<(), String> {
    let base = instruction.memory_base();
    let has_short_register = base == Register::EIP || base.is_gpr32() || instruction.memory_index().is_gpr32();
    // An operand without registers shows its address size only in the prefix.
    if has_short_register || instruction.memory_displ_size() != 8 {
        return Err("it computes an address of 32 bits".to_string());
    }
    Ok(())
}

/// Refuses an instruction that uses the stack or the stack pointer, except pushes and calls.
pub(super) fn check_stack_use(instruction: &Instruction) -> Result<(), String> {
    let refuse = |problem: &str| Err(problem.to_string());
    let is_known = matches!(instruction.code(), Code::Pushq_imm32 | Code::Push_rm64 | Code::Call_rm64);
    if instruction.is_stack_instruction() && !is_known {
        return refuse("it uses the stack");
    }
    let is_stack_pointer = |register: Register| register.full_register() == Register::RSP;
    let mut operands = (0..instruction.op_count()).filter(|operand| instruction.op_kind(*operand) == OpKind::Register);
    if operands.any(|operand| is_stack_pointer(instruction.op_register(operand))) {
        return refuse("it uses the stack pointer");
    }
    Ok(())
}

/// Replaces the sign-extended immediate of an instruction, its last operand, by a 64-bit register.
pub(super) fn replace_immediate(instruction: &mut Instruction, register: Register) -> Result<(), String> {
    let code = with_register(instruction.code()).ok_or("it has no form with 64 bits")?;
    let last = instruction.op_count() - 1;
    instruction.set_code(code);
    instruction.set_op_kind(last, OpKind::Register);
    instruction.set_op_register(last, register);
    Ok(())
}

/// The form of an instruction that takes a 64-bit register in place of its sign-extended immediate, the last operand.
fn with_register(code: Code) -> Option<Code> {
    Some(match code {
        Code::Mov_rm64_imm32 => Code::Mov_rm64_r64,
        Code::Cmp_rm64_imm32 | Code::Cmp_RAX_imm32 => Code::Cmp_rm64_r64,
        Code::Test_rm64_imm32 | Code::Test_RAX_imm32 => Code::Test_rm64_r64,
        Code::Add_rm64_imm32 | Code::Add_RAX_imm32 => Code::Add_rm64_r64,
        Code::Sub_rm64_imm32 | Code::Sub_RAX_imm32 => Code::Sub_rm64_r64,
        Code::Adc_rm64_imm32 | Code::Adc_RAX_imm32 => Code::Adc_rm64_r64,
        Code::Sbb_rm64_imm32 | Code::Sbb_RAX_imm32 => Code::Sbb_rm64_r64,
        Code::And_rm64_imm32 | Code::And_RAX_imm32 => Code::And_rm64_r64,
        Code::Or_rm64_imm32 | Code::Or_RAX_imm32 => Code::Or_rm64_r64,
        Code::Xor_rm64_imm32 | Code::Xor_RAX_imm32 => Code::Xor_rm64_r64,
        _ => return None,
    })
}

/// The register that the instruction overwrites in full and does not read, if there is one.
fn overwritten_register(instruction: &Instruction) -> Option<Register> {
    use Mnemonic::{Lea, Mov, Movsx, Movsxd, Movzx};
    let is_plain = matches!(instruction.mnemonic(), Mov | Lea | Movzx | Movsx | Movsxd);
    let register = instruction.op0_register();
    let is_full = instruction.op0_kind() == OpKind::Register && (register.is_gpr32() || register.is_gpr64());
    let register = register.full_register();
    let is_read = [instruction.memory_base(), instruction.memory_index()].contains(&register);
    (is_plain && is_full && !is_read).then_some(register)
}

/// Registers that the instruction neither reads nor writes, those with short encodings first.
pub(super) fn unused_registers(instruction: &Instruction) -> impl Iterator<Item = Register> + use<> {
    use Register::*;
    let mut factory = InstructionInfoFactory::new();
    let used: Vec<Register> =
        factory.info(instruction).used_registers().iter().map(|used| used.register().full_register()).collect();
    let all = [RAX, RCX, RDX, RBX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15];
    all.into_iter().filter(move |register| !used.contains(register))
}

/// Encodes the instructions of one thunk.
pub(super) struct ThunkWriter {
    encoder: Encoder,
    /// The address of the next instruction.
    ip: u64,
}

impl ThunkWriter {
    pub(super) fn new(thunk: u64) -> ThunkWriter {
        ThunkWriter { encoder: Encoder::new(64), ip: thunk }
    }

    /// The code of the thunk.
    pub(super) fn into_code(mut self) -> Vec<u8> {
        self.encoder.take_buffer()
    }

    pub(super) fn encode(&mut self, instruction: Instruction) -> Result<(), String> {
        self.ip += self.encoder.encode(&instruction, self.ip).map_err(|error| error.to_string())? as u64;
        Ok(())
    }

    /// Encodes a new instruction.
    pub(super) fn encode_new(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) -> Result<(), String> {
        self.encode(instruction.map_err(|error| error.to_string())?)
    }

    fn movabs(&mut self, register: Register, value: Option<u64>) -> Result<(), String> {
        let value = value.ok_or("it has no such operand")?;
        self.encode_new(Instruction::with2(Code::Mov_r64_imm64, register, value))
    }

    pub(super) fn move_stack(&mut self, distance: i64) -> Result<(), String> {
        let moved = MemoryOperand::with_base_displ(Register::RSP, distance);
        self.encode_new(Instruction::with2(Code::Lea_r64_m, Register::RSP, moved))
    }

    /// Loads `scratch` with displacement plus base of the memory operand, and makes `instruction` use it. The stack
    /// pointer is `depth` bytes lower than the instruction expects.
    fn load_memory_operand(
        &mut self,
        instruction: &mut Instruction,
        far: &FarOperands,
        scratch: Register,
        depth: i64,
    ) -> Result<(), String> {
        self.movabs(scratch, far.displacement)?;
        self.use_memory_operand(instruction, scratch, depth)
    }

    /// Makes `instruction` use `scratch`, which has the displacement of the memory operand, and to which the base is added.
    pub(super) fn use_memory_operand(
        &mut self,
        instruction: &mut Instruction,
        scratch: Register,
        depth: i64,
    ) -> Result<(), String> {
        let base = instruction.memory_base();
        if !matches!(base, Register::None | Register::RIP) {
            let depth = if base == Register::RSP { depth } else { 0 };
            let sum = MemoryOperand::with_base_index_scale_displ_size(base, scratch, 1, depth, 1);
            self.encode_new(Instruction::with2(Code::Lea_r64_m, scratch, sum))?;
        }
        instruction.set_memory_base(scratch);
        instruction.set_memory_displacement64(0);
        instruction.set_memory_displ_size(0);
        Ok(())
    }

    /// An instruction without a special form: saves up to two scratch registers around it.
    fn write_any(&mut self, mut instruction: Instruction, far: &FarOperands) -> Result<(), String> {
        let overwritten = overwritten_register(&instruction);
        let mut unused = unused_registers(&instruction);
        let for_memory = far.displacement.and_then(|_| overwritten.or_else(|| unused.next()));
        let for_immediate = far.immediate.and_then(|_| unused.next());
        let scratch = [for_memory, for_immediate].into_iter().flatten();
        let saved: Vec<Register> = scratch.filter(|register| Some(*register) != overwritten).collect();
        let mut depth = 0;
        if !saved.is_empty() {
            self.move_stack(-RED_ZONE)?;
            depth = RED_ZONE + 8 * saved.len() as i64;
        }
        for register in &saved {
            self.encode_new(Instruction::with1(Code::Push_r64, *register))?;
        }
        match for_memory {
            Some(scratch) => self.load_memory_operand(&mut instruction, far, scratch, depth)?,
            None => adjust_stack_operand(&mut instruction, depth)?,
        }
        if let Some(scratch) = for_immediate {
            self.movabs(scratch, far.immediate)?;
            replace_immediate(&mut instruction, scratch)?;
        }
        self.encode(instruction)?;
        for register in saved.iter().rev() {
            self.encode_new(Instruction::with1(Code::Pop_r64, *register))?;
        }
        if depth > 0 { self.move_stack(RED_ZONE) } else { Ok(()) }
    }

    /// A push: saves the scratch register in the place of the pushed value, then exchanges the two.
    fn write_push(&mut self, mut instruction: Instruction, far: &FarOperands) -> Result<(), String> {
        let scratch = unused_registers(&instruction).next().ok_or("it uses all registers")?;
        self.encode_new(Instruction::with1(Code::Push_r64, scratch))?;
        match instruction.code() {
            Code::Pushq_imm32 => self.movabs(scratch, far.immediate)?,
            _ => {
                self.load_memory_operand(&mut instruction, far, scratch, 8)?;
                self.encode_new(Instruction::with2(Code::Mov_r64_rm64, scratch, memory_operand(&instruction)))?;
            }
        }
        let top = MemoryOperand::with_base(Register::RSP);
        self.encode_new(Instruction::with2(Code::Xchg_rm64_r64, top, scratch))
    }

    /// A call or jump through a far variable, as the jump `code`. The stack pointer is `depth` bytes lower than the
    /// instruction expects.
    fn write_transfer(
        &mut self,
        mut instruction: Instruction,
        far: &FarOperands,
        code: Code,
        depth: i64,
    ) -> Result<(), String> {
        let uses = [instruction.memory_base(), instruction.memory_index()];
        if !matches!(instruction.code(), Code::Call_rm64 | Code::Jmp_rm64) || uses.contains(&Register::R11) {
            return Err("it is a branch of an unknown form".to_string());
        }
        self.load_memory_operand(&mut instruction, far, Register::R11, depth)?;
        instruction.set_code(code);
        self.encode(instruction)
    }
}

/// Corrects a memory operand that is relative to `%rsp`, for a stack pointer that is `depth` bytes lower.
pub(super) fn adjust_stack_operand(instruction: &mut Instruction, depth: i64) -> Result<(), String> {
    if instruction.memory_base() != Register::RSP || depth == 0 {
        return Ok(());
    }
    let displacement = (instruction.memory_displacement64() as i64).checked_add(depth);
    let displacement = displacement.filter(|displacement| i32::try_from(*displacement).is_ok());
    instruction.set_memory_displacement64(displacement.ok_or("its operand is too far from the stack pointer")? as u64);
    instruction.set_memory_displ_size(1);
    Ok(())
}

pub(super) fn memory_operand(instruction: &Instruction) -> MemoryOperand {
    MemoryOperand::with_base_index_scale(
        instruction.memory_base(),
        instruction.memory_index(),
        instruction.memory_index_scale(),
    )
}

/// Bytes below the stack pointer that a function may use (psABI 3.2.2).
pub(super) const RED_ZONE: i64 = 128;
pub(super) const JMP: u8 = 0xe9;
pub(super) const CALL: u8 = 0xe8;
pub(super) const NOP: u8 = 0x90;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn the_longest_thunks_fit_into_the_reserved_bytes() {
        // lock addq $0x1000000, far(%rsp, %r13, 8)
        let longest = [0xf0, 0x4a, 0x81, 0x84, 0xec, 0, 0, 0, 0, 0, 0, 0, 1];
        let far = FarOperands { displacement: Some(0x7fff_1234_5678), immediate: None };
        assert!(build(&longest, 0x1000, &far, 0x2000).is_ok_and(|moved| moved.thunk.len() <= MAX_THUNK_SIZE));
        // movq $far, far(%rsp, %r13, 8)
        let both = [0x4a, 0xc7, 0x84, 0xec, 0, 0, 0, 0, 0, 0, 0, 0];
        let far = FarOperands { immediate: Some(0x7fff_8765_4321), ..far };
        assert!(build(&both, 0x1000, &far, 0x2000).is_ok_and(|moved| moved.thunk.len() <= 2 * MAX_THUNK_SIZE));
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_jump_keeps_its_notrack_prefix() {
        // notrack jmp *far(%rip); notrack call *far(%rip)
        for old in [[0x3e, 0xff, 0x25, 0, 0, 0, 0], [0x3e, 0xff, 0x15, 0, 0, 0, 0]] {
            let far = FarOperands { displacement: Some(0x7fff_1234_5678), immediate: None };
            let moved = build(&old, 0x1000, &far, 0x2000).unwrap();
            // movabs $…,%r11; notrack jmp *(%r11)
            assert_eq!(moved.thunk[10..14], [0x3e, 0x41, 0xff, 0x23], "{:02x?}", moved.thunk);
        }
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_thunk_for_an_address_in_a_register_is_a_movabs_and_a_jump_back() {
        // mov $stdout, %edi
        let far = FarOperands { displacement: None, immediate: Some(0x7fff_1234_5678) };
        let moved = build(&[0xbf, 0, 0, 0, 0], 0x1000, &far, 0x2000).unwrap();
        assert_eq!(moved.thunk[..10], [0x48, 0xbf, 0x78, 0x56, 0x34, 0x12, 0xff, 0x7f, 0, 0]);
        assert_eq!((moved.thunk[10], &moved.thunk[11..]), (0xe9, &(0x1005i32 - 0x200f).to_le_bytes()[..]));
        assert_eq!((moved.opcode, moved.filler), (JMP, TRAP));
    }
}
