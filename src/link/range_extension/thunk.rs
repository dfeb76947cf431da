//! Moves one instruction into a thunk, where its far operands are registers that hold 64 bits.
//!
//! ```text
//!   lea -128(%rsp),%rsp        the red zone, which is the function's own
//!   push %scratch              unless the instruction overwrites it anyhow (`mov stdout(%rip),%rdi`)
//!   movabs $variable,%scratch
//!   lea (%base,%scratch),%scratch    if the operand has a base register
//!   the instruction, with (%scratch) or (%scratch,%index,4) for its memory operand, or %scratch for its immediate
//!   pop %scratch
//!   lea 128(%rsp),%rsp
//!   jmp behind
//! ```
//!
//! None of what is added touches the flags, and memory is read and written by the instruction itself, as ever. Operands that
//! are relative to `%rsp` or to the instruction's own place are corrected. Four forms are special: an address that is put
//! into a register is one `movabs`; a push cannot have its scratch register below what it pushes; a call or jump through a far
//! variable takes `%r11`, which belongs to nobody there (psABI 3.2.1), and a call is made from where it was, so that the
//! return address is the function's own.
//!
//! Refused, as they would not mean the same elsewhere: instructions that use `%rsp` in other ways, an address as an operand of
//! less than 64 bits, and whatever cannot be encoded.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic,
    OpKind, Register,
};

/// The far operands of an instruction, as they are meant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Far {
    /// What is added to base and index: the address of a variable, usually.
    pub(super) displacement: Option<u64>,
    pub(super) immediate: Option<u64>,
}

/// A moved instruction.
#[derive(Debug)]
pub(super) struct Moved {
    /// The thunk.
    pub(super) code: Vec<u8>,
    /// Of what leads there.
    pub(super) opcode: u8,
    /// What the rest of the old place becomes.
    pub(super) filler: u8,
}

/// Bytes of a thunk, at most, for each far operand: adjusting the stack 13, keeping and loading a register 14,
/// adding its base 8, an instruction 15, a jump 5.
pub(super) const ROOM: usize = 56;

/// Moves the instruction `old`, which stands at `address`, to `thunk`; an error in words.
pub(super) fn build(old: &[u8], address: u64, far: &Far, thunk: u64) -> Result<Moved, String> {
    let instruction = Decoder::with_ip(64, old, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.len() != old.len() {
        return Err("it is no instruction".to_string());
    }
    check(&instruction, far)?;
    let mut writer = Writer { encoder: Encoder::new(64), ip: thunk };
    let (mut opcode, mut filler) = (JMP, TRAP);
    match instruction.flow_control() {
        FlowControl::IndirectCall => {
            // Whoever returns comes back behind the call, and slides on.
            (opcode, filler) = (CALL, NOP);
            writer.transfer(instruction, far, Code::Jmp_rm64, 8)?;
        }
        FlowControl::IndirectBranch => writer.transfer(instruction, far, instruction.code(), 0)?,
        FlowControl::Next => {
            match instruction.code() {
                Code::Pushq_imm32 | Code::Push_rm64 => writer.push(instruction, far)?,
                Code::Mov_r32_imm32 => writer.movabs(instruction.op0_register().full_register(), far.immediate)?,
                _ => writer.other(instruction, far)?,
            }
            writer.put_made(Instruction::with_branch(Code::Jmp_rel32_64, instruction.next_ip()))?;
        }
        _ => return Err("it is a branch".to_string()),
    }
    let code = writer.encoder.take_buffer();
    let room = ROOM * (usize::from(far.displacement.is_some()) + usize::from(far.immediate.is_some()));
    if code.len() > room {
        return Err(format!("its thunk takes {} bytes", code.len()));
    }
    Ok(Moved { code, opcode, filler })
}

/// Refuses what would not mean the same in a thunk.
fn check(instruction: &Instruction, far: &Far) -> Result<(), String> {
    let refuse = |problem: &str| Err(problem.to_string());
    if far.displacement.is_some() {
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
            return refuse("it is relative to a segment");
        }
        let base = instruction.memory_base();
        if base == Register::EIP || base.is_gpr32() || instruction.memory_index().is_gpr32() {
            return refuse("it computes an address of 32 bits");
        }
        // A bare address has its size nowhere but in the prefix.
        if instruction.memory_displ_size() != 8 {
            return refuse("it computes an address of 32 bits");
        }
    }
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

/// With a register of 64 bits for the sign-extended immediate, which is the last operand.
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

/// A register that the instruction overwrites as a whole and does not read.
fn overwritten(instruction: &Instruction) -> Option<Register> {
    use Mnemonic::{Lea, Mov, Movsx, Movsxd, Movzx};
    let is_plain = matches!(instruction.mnemonic(), Mov | Lea | Movzx | Movsx | Movsxd);
    let register = instruction.op0_register();
    let is_whole = instruction.op0_kind() == OpKind::Register && (register.is_gpr32() || register.is_gpr64());
    let register = register.full_register();
    let is_read = [instruction.memory_base(), instruction.memory_index()].contains(&register);
    (is_plain && is_whole && !is_read).then_some(register)
}

/// Registers that the instruction has nothing to do with, those of short encodings first.
fn unused(instruction: &Instruction) -> impl Iterator<Item = Register> + use<> {
    use Register::*;
    let mut factory = InstructionInfoFactory::new();
    let used: Vec<Register> =
        factory.info(instruction).used_registers().iter().map(|used| used.register().full_register()).collect();
    let all = [RAX, RCX, RDX, RBX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15];
    all.into_iter().filter(move |register| !used.contains(register))
}

struct Writer {
    encoder: Encoder,
    ip: u64,
}

impl Writer {
    fn put(&mut self, instruction: Instruction) -> Result<(), String> {
        self.ip += self.encoder.encode(&instruction, self.ip).map_err(|error| error.to_string())? as u64;
        Ok(())
    }

    /// What comes from the encoder's own tables, which fit.
    fn put_made(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) -> Result<(), String> {
        self.put(instruction.map_err(|error| error.to_string())?)
    }

    fn movabs(&mut self, register: Register, value: Option<u64>) -> Result<(), String> {
        let value = value.ok_or("it has no such operand")?;
        self.put_made(Instruction::with2(Code::Mov_r64_imm64, register, value))
    }

    fn move_stack(&mut self, distance: i64) -> Result<(), String> {
        let place = MemoryOperand::with_base_displ(Register::RSP, distance);
        self.put_made(Instruction::with2(Code::Lea_r64_m, Register::RSP, place))
    }

    /// Has `scratch` hold the far part of the memory operand, base included, and `instruction` use it. The stack is `depth`
    /// bytes lower than the instruction expects.
    fn memory(
        &mut self,
        instruction: &mut Instruction,
        far: &Far,
        scratch: Register,
        depth: i64,
    ) -> Result<(), String> {
        self.movabs(scratch, far.displacement)?;
        let base = instruction.memory_base();
        if !matches!(base, Register::None | Register::RIP) {
            let depth = if base == Register::RSP { depth } else { 0 };
            let sum = MemoryOperand::with_base_index_scale_displ_size(base, scratch, 1, depth, 1);
            self.put_made(Instruction::with2(Code::Lea_r64_m, scratch, sum))?;
        }
        instruction.set_memory_base(scratch);
        instruction.set_memory_displacement64(0);
        instruction.set_memory_displ_size(0);
        Ok(())
    }

    fn other(&mut self, mut instruction: Instruction, far: &Far) -> Result<(), String> {
        let free = overwritten(&instruction);
        let mut unused = unused(&instruction);
        let for_memory = far.displacement.and_then(|_| free.or_else(|| unused.next()));
        let for_immediate = far.immediate.and_then(|_| unused.next());
        let scratch = [for_memory, for_immediate].into_iter().flatten();
        let saved: Vec<Register> = scratch.filter(|register| Some(*register) != free).collect();
        let mut depth = 0;
        if !saved.is_empty() {
            self.move_stack(-RED_ZONE)?;
            depth = RED_ZONE + 8 * saved.len() as i64;
        }
        for register in &saved {
            self.put_made(Instruction::with1(Code::Push_r64, *register))?;
        }
        match for_memory {
            Some(scratch) => self.memory(&mut instruction, far, scratch, depth)?,
            None => lower_stack(&mut instruction, depth)?,
        }
        if let Some(scratch) = for_immediate {
            self.movabs(scratch, far.immediate)?;
            let code = with_register(instruction.code()).ok_or("it has no form with 64 bits")?;
            let last = instruction.op_count() - 1;
            instruction.set_code(code);
            instruction.set_op_kind(last, OpKind::Register);
            instruction.set_op_register(last, scratch);
        }
        self.put(instruction)?;
        for register in saved.iter().rev() {
            self.put_made(Instruction::with1(Code::Pop_r64, *register))?;
        }
        if depth > 0 { self.move_stack(RED_ZONE) } else { Ok(()) }
    }

    /// The scratch register is kept where the value will be, and exchanged with it.
    fn push(&mut self, mut instruction: Instruction, far: &Far) -> Result<(), String> {
        let scratch = unused(&instruction).next().ok_or("it uses all registers")?;
        self.put_made(Instruction::with1(Code::Push_r64, scratch))?;
        match instruction.code() {
            Code::Pushq_imm32 => self.movabs(scratch, far.immediate)?,
            _ => {
                self.memory(&mut instruction, far, scratch, 8)?;
                self.put_made(Instruction::with2(Code::Mov_r64_rm64, scratch, operand(&instruction)))?;
            }
        }
        let top = MemoryOperand::with_base(Register::RSP);
        self.put_made(Instruction::with2(Code::Xchg_rm64_r64, top, scratch))
    }

    /// A call or jump to where a far variable points. The stack is `depth` bytes lower than the instruction expects.
    fn transfer(&mut self, mut instruction: Instruction, far: &Far, code: Code, depth: i64) -> Result<(), String> {
        let uses = [instruction.memory_base(), instruction.memory_index()];
        if !matches!(instruction.code(), Code::Call_rm64 | Code::Jmp_rm64) || uses.contains(&Register::R11) {
            return Err("it is such a branch as is not known".to_string());
        }
        self.memory(&mut instruction, far, Register::R11, depth)?;
        instruction.set_code(code);
        self.put(instruction)
    }
}

/// Operands near the stack pointer are so much farther from it.
fn lower_stack(instruction: &mut Instruction, depth: i64) -> Result<(), String> {
    if instruction.memory_base() != Register::RSP || depth == 0 {
        return Ok(());
    }
    let displacement = (instruction.memory_displacement64() as i64).checked_add(depth);
    let displacement = displacement.filter(|displacement| i32::try_from(*displacement).is_ok());
    instruction.set_memory_displacement64(displacement.ok_or("its operand is too far from the stack pointer")? as u64);
    instruction.set_memory_displ_size(1);
    Ok(())
}

fn operand(instruction: &Instruction) -> MemoryOperand {
    MemoryOperand::with_base_index_scale(
        instruction.memory_base(),
        instruction.memory_index(),
        instruction.memory_index_scale(),
    )
}

/// Bytes below the stack pointer that are the function's (psABI 3.2.2).
const RED_ZONE: i64 = 128;
const JMP: u8 = 0xe9;
const CALL: u8 = 0xe8;
const TRAP: u8 = 0xcc;
const NOP: u8 = 0x90;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn the_longest_thunks_have_room() {
        // lock addq $0x1000000, far(%rsp, %r13, 8)
        let longest = [0xf0, 0x4a, 0x81, 0x84, 0xec, 0, 0, 0, 0, 0, 0, 0, 1];
        let far = Far { displacement: Some(0x7fff_1234_5678), immediate: None };
        assert!(build(&longest, 0x1000, &far, 0x2000).is_ok_and(|moved| moved.code.len() <= ROOM));
        // movq $far, far(%rsp, %r13, 8)
        let both = [0x4a, 0xc7, 0x84, 0xec, 0, 0, 0, 0, 0, 0, 0, 0];
        let far = Far { immediate: Some(0x7fff_8765_4321), ..far };
        assert!(build(&both, 0x1000, &far, 0x2000).is_ok_and(|moved| moved.code.len() <= 2 * ROOM));
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_jump_that_is_not_tracked_stays_so() {
        // notrack jmp *far(%rip); notrack call *far(%rip)
        for old in [[0x3e, 0xff, 0x25, 0, 0, 0, 0], [0x3e, 0xff, 0x15, 0, 0, 0, 0]] {
            let far = Far { displacement: Some(0x7fff_1234_5678), immediate: None };
            let moved = build(&old, 0x1000, &far, 0x2000).unwrap();
            // movabs $…,%r11; notrack jmp *(%r11)
            assert_eq!(moved.code[10..14], [0x3e, 0x41, 0xff, 0x23], "{:02x?}", moved.code);
        }
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn an_address_that_goes_into_a_register_is_one_instruction_and_the_way_back() {
        // mov $stdout, %edi
        let far = Far { displacement: None, immediate: Some(0x7fff_1234_5678) };
        let moved = build(&[0xbf, 0, 0, 0, 0], 0x1000, &far, 0x2000).unwrap();
        assert_eq!(moved.code[..10], [0x48, 0xbf, 0x78, 0x56, 0x34, 0x12, 0xff, 0x7f, 0, 0]);
        assert_eq!((moved.code[10], &moved.code[11..]), (0xe9, &(0x1005i32 - 0x200f).to_le_bytes()[..]));
        assert_eq!((moved.opcode, moved.filler), (JMP, TRAP));
    }
}
