//! Range extension of code: moves the instruction of each far reference to a thunk, where a register holds the 64-bit
//! value, or the distance of a thread-local variable in the thread that runs. Needs the feature `range-extension`.
//!
//! ```text
//!   mov stdout(%rip), %rdi      →   jmp thunk; traps          thunk: movabs $stdout, %rdi
//!                                                                    mov (%rdi), %rdi
//!                                                                    jmp next instruction
//! ```
//!
//! | step | file |
//! |---|---|
//! | find the instruction that a reference belongs to | `linear_sweep.rs` |
//! | move it | `thunk.rs`; for a thread-local variable, `distance_thunk.rs` |

mod distance_thunk;
mod linear_sweep;
mod thunk;

use crate::arch::edge_kind::EdgeKind;
use crate::arch::far_code::{FarCode, FarCodeFault, FarReference, FarValue};
use distance_thunk::DistanceOperand;
use linear_sweep::{LinearSweep, LocatedInstruction, OperandField};
use thunk::{FarOperands, MovedInstruction};

/// Moves the instruction of each far reference to a thunk. Changes `bytes`, which is the section in memory with all its
/// other edges applied, and appends to `thunks`.
///
/// # Errors
/// The first reference that cannot be extended exactly.
pub(crate) fn extend_code(code: &FarCode<'_>, bytes: &mut [u8], thunks: &mut Vec<u8>) -> Result<(), FarCodeFault> {
    // The object's bytes: the sweep must not see instructions that moved.
    let mut sweep = LinearSweep::new(code.content, code.starts, code.fields);
    let mut located: Vec<(usize, LocatedInstruction, &[FarReference])> = Vec::new();
    let (mut remaining, mut first) = (code.references, 0);
    while let Some(reference) = remaining.first() {
        let instruction = sweep.find(reference.offset).map_err(|problem| FarCodeFault {
            reference: first,
            instruction: 0..0,
            problem,
        })?;
        let count = remaining.iter().take_while(|reference| (reference.offset as usize) < instruction.end).count();
        let (operands, rest) = remaining.split_at(count);
        located.push((first, instruction, operands));
        (remaining, first) = (rest, first + count);
    }
    let first_thunk = code.thunks;
    for (reference, instruction, operands) in located {
        let thunk = first_thunk.map(|first| first + thunks.len() as u64);
        let moved = move_instruction(code.address, thunk, bytes, &instruction, operands);
        let range = instruction.start..instruction.end;
        thunks.extend(moved.map_err(|problem| FarCodeFault { reference, instruction: range, problem })?);
    }
    Ok(())
}

/// Moves one instruction to `thunk` and returns the thunk's code. `far` are all its far operands. The error is the
/// reason, as a clause.
fn move_instruction(
    section: u64,
    thunk: Option<u64>,
    bytes: &mut [u8],
    instruction: &LocatedInstruction,
    far: &[FarReference],
) -> Result<Vec<u8>, String> {
    let thunk = thunk.ok_or("no thunk is reserved")?;
    let start = section + instruction.start as u64;
    let old = &mut bytes[instruction.start..instruction.end];
    let moved = match far {
        [reference @ FarReference { value: FarValue::Distance(_), .. }] => {
            move_distance(start, thunk, old, instruction, reference)?
        }
        _ => thunk::build(old, start, &far_operands(instruction, far)?, thunk)?,
    };
    let distance = thunk.wrapping_sub(start + JUMP_SIZE) as i64;
    let distance = i32::try_from(distance).map_err(|_| "its thunk is out of reach")?;
    old.fill(moved.filler);
    old[0] = moved.opcode;
    old[1..JUMP_SIZE as usize].copy_from_slice(&distance.to_le_bytes());
    Ok(moved.thunk)
}

/// The far operands of an instruction, all of them addresses.
fn far_operands(instruction: &LocatedInstruction, far: &[FarReference]) -> Result<FarOperands, String> {
    let mut operands = FarOperands::default();
    for reference in far {
        let FarValue::Address(value) = reference.value else {
            return Err("it has a thread-local operand and another far operand".to_string());
        };
        // A relative displacement counts from the end of the instruction, the reference from its field.
        let from_field_to_end = (instruction.end - reference.offset as usize) as u64;
        let (operand, value) = match (instruction.operand_field(reference.offset), reference.kind) {
            (Some(OperandField::Displacement { is_relative: true }), EdgeKind::Delta32) => {
                (&mut operands.displacement, value.wrapping_add(from_field_to_end))
            }
            (
                Some(OperandField::Displacement { is_relative: false }),
                EdgeKind::Pointer32 | EdgeKind::Pointer32Signed,
            ) => (&mut operands.displacement, value),
            (Some(OperandField::Immediate), EdgeKind::Pointer32 | EdgeKind::Pointer32Signed) => {
                (&mut operands.immediate, value)
            }
            _ => return Err("it is no operand of such an instruction".to_string()),
        };
        if operand.replace(value).is_some() {
            return Err("one operand has two relocations".to_string());
        }
    }
    Ok(operands)
}

/// Moves an instruction whose one far operand is a distance of a thread-local variable.
fn move_distance(
    address: u64,
    thunk: u64,
    old: &[u8],
    instruction: &LocatedInstruction,
    reference: &FarReference,
) -> Result<MovedInstruction, String> {
    let FarValue::Distance(mut distance) = reference.value else {
        return Err("it is no operand of such an instruction".to_string());
    };
    let operand = match (instruction.operand_field(reference.offset), reference.kind) {
        (
            Some(OperandField::Displacement { is_relative: false }),
            EdgeKind::StaticOffset32 | EdgeKind::ThreadLocalOffset32,
        ) => DistanceOperand::Displacement,
        (Some(OperandField::Immediate), EdgeKind::StaticOffset32 | EdgeKind::ThreadLocalOffset32) => {
            DistanceOperand::Immediate
        }
        (Some(OperandField::Displacement { is_relative: true }), EdgeKind::StaticLoad32) => {
            // The addend counts from the field, the displacement from the end of the instruction.
            distance.addend += (instruction.end - reference.offset as usize) as i64;
            if distance.addend != 0 {
                return Err("it reads beside the slot of the variable".to_string());
            }
            DistanceOperand::Slot
        }
        _ => return Err("it is no operand of such an instruction".to_string()),
    };
    distance_thunk::build(old, address, operand, &distance, thunk)
}

/// Bytes of a near jump, and of a near call. No instruction with a four-byte field is shorter.
const JUMP_SIZE: u64 = 5;
