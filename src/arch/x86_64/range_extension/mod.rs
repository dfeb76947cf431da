//! Range extension of code: moves the instruction of each far reference to a thunk, where a register holds the 64-bit
//! value. Needs the feature `range-extension`.
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
//! | move it | `thunk.rs` |

mod linear_sweep;
mod thunk;

use crate::arch::edge_kind::EdgeKind;
use crate::arch::far_code::{FarCode, FarCodeFault, FarReference};
use linear_sweep::{LinearSweep, LocatedInstruction, OperandField};
use thunk::FarOperands;

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
    let mut operands = FarOperands::default();
    for reference in far {
        // A relative displacement counts from the end of the instruction, the reference from its field.
        let from_field_to_end = (instruction.end - reference.offset as usize) as u64;
        let (operand, value) = match (instruction.operand_field(reference.offset), reference.kind) {
            (Some(OperandField::Displacement { is_relative: true }), EdgeKind::Delta32) => {
                (&mut operands.displacement, reference.value.wrapping_add(from_field_to_end))
            }
            (
                Some(OperandField::Displacement { is_relative: false }),
                EdgeKind::Pointer32 | EdgeKind::Pointer32Signed,
            ) => (&mut operands.displacement, reference.value),
            (Some(OperandField::Immediate), EdgeKind::Pointer32 | EdgeKind::Pointer32Signed) => {
                (&mut operands.immediate, reference.value)
            }
            _ => return Err("it is no operand of such an instruction".to_string()),
        };
        if operand.replace(value).is_some() {
            return Err("one operand has two relocations".to_string());
        }
    }
    let old = &mut bytes[instruction.start..instruction.end];
    let moved = thunk::build(old, start, &operands, thunk)?;
    let distance = thunk.wrapping_sub(start + JUMP_SIZE) as i64;
    let distance = i32::try_from(distance).map_err(|_| "its thunk is out of reach")?;
    old.fill(moved.filler);
    old[0] = moved.opcode;
    old[1..JUMP_SIZE as usize].copy_from_slice(&distance.to_le_bytes());
    Ok(moved.thunk)
}

/// Bytes of a near jump, and of a near call. No instruction with a four-byte field is shorter.
const JUMP_SIZE: u64 = 5;
