//! Far references in code: moves the instruction of each to a thunk. Needs the feature `range-extension`.

use super::decode_starts::DecodeStarts;
use super::extender::{RangeExtender, refusal};
use super::linear_sweep::{LinearSweep, LocatedInstruction, OperandField};
use super::thunk::{self, FarOperands};
use crate::error::Error;
use crate::link::graph::{BlockId, Edge};
use crate::link::resolved_link::ResolvedLink;
use crate::link::x86_64::EdgeKind;

impl RangeExtender {
    pub(super) fn extend_code(
        &mut self,
        link: &ResolvedLink<'_>,
        id: BlockId,
        bytes: &mut [u8],
        far: &[Edge],
    ) -> Result<(), Error> {
        let graph = link.graph;
        let starts = self.starts.get_or_insert_with(|| DecodeStarts::of(graph));
        // The object's bytes: the sweep must not see instructions that moved.
        let content = graph.content(&graph.blocks[id.index()]).unwrap_or(&[]);
        let mut sweep = LinearSweep::new(content, starts.of_block(id), graph.edges(id));
        let mut located: Vec<(LocatedInstruction, &[Edge])> = Vec::new();
        let mut remaining = far;
        while let Some(first) = remaining.first() {
            let instruction = sweep.find(first.offset).map_err(|problem| refusal(link, id, first, &[], &problem))?;
            let count = remaining.iter().take_while(|edge| (edge.offset as usize) < instruction.end).count();
            let (operands, rest) = remaining.split_at(count);
            located.push((instruction, operands));
            remaining = rest;
        }
        for (instruction, operands) in located {
            let old = &content[instruction.start..instruction.end];
            self.move_instruction(link, id, bytes, &instruction, operands)
                .map_err(|problem| refusal(link, id, &operands[0], old, &problem))?;
        }
        Ok(())
    }

    /// Moves one instruction to a thunk. `far` are all its far operands. The error is the reason, as a clause.
    fn move_instruction(
        &mut self,
        link: &ResolvedLink<'_>,
        id: BlockId,
        bytes: &mut [u8],
        instruction: &LocatedInstruction,
        far: &[Edge],
    ) -> Result<(), String> {
        let address = link.graph.block_address(id, link.addresses);
        let thunks =
            link.tables.range_extension.thunks().map(|thunks| link.graph.block_address(thunks, link.addresses));
        let thunk = thunks.ok_or("no thunk is reserved")?.offset(self.thunks.len() as u64);
        let (start, end) = (address.offset(instruction.start as u64), address.offset(instruction.end as u64));
        let mut operands = FarOperands::default();
        for edge in far {
            let value = link.address(edge.symbol).offset(edge.addend as u64);
            // A relative displacement counts from the end of the instruction, the edge from its field.
            let from_field_to_end = end.distance_from(address.offset(edge.offset.into())) as u64;
            let (operand, value) = match (instruction.operand_field(edge.offset), edge.kind) {
                (Some(OperandField::Displacement { is_relative: true }), EdgeKind::Delta32) => {
                    (&mut operands.displacement, value.offset(from_field_to_end))
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
            if operand.replace(value.value()).is_some() {
                return Err("one operand has two relocations".to_string());
            }
        }
        let old = &mut bytes[instruction.start..instruction.end];
        let moved = thunk::build(old, start.value(), &operands, thunk.value())?;
        let distance = thunk.distance_from(start.offset(JUMP_SIZE));
        let distance = i32::try_from(distance).map_err(|_| "its thunk is out of reach")?;
        old.fill(moved.filler);
        old[0] = moved.opcode;
        old[1..JUMP_SIZE as usize].copy_from_slice(&distance.to_le_bytes());
        self.thunks.extend(moved.thunk);
        Ok(())
    }
}

/// Bytes of a near jump, and of a near call. No instruction with a four-byte field is shorter.
const JUMP_SIZE: u64 = 5;
