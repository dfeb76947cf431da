//! Which instruction a relocated field belongs to.
//!
//! x86 instructions cannot be told apart backwards, so they are decoded from where one is known to begin: at the last function
//! or its end ahead of the field, as the object's symbols and unwind tables have them, or the section's start. On the way, every relocated
//! field has to be an operand of the instruction that it is found in; where that fails (data among code), nothing is guessed.
//! Each byte is decoded once.

use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction};

use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, Role};

/// Places in blocks, sorted, at which something that can be read begins: a function, an exception table.
pub(super) struct Starts(Vec<(BlockId, u64)>);

impl Starts {
    pub(super) fn of(graph: &LinkGraph) -> Starts {
        // What has a size is a function where code is, or data, behind which code goes on; labels may stand anywhere.
        let sized = graph.symbols().filter(|(_, symbol)| symbol.size > 0);
        let ends = sized.flat_map(|(_, symbol)| [0, symbol.size].map(|offset| (symbol.definition, offset)));
        let mut starts: Vec<_> =
            ends.filter_map(|(definition, offset)| place(definition, i64::try_from(offset).ok()?)).collect();
        let frames = graph.blocks().filter(|(_, block)| block.role == Role::EhFrame && !block.is_dropped);
        for edge in frames.flat_map(|(id, _)| graph.edges(id)) {
            starts.extend(place(graph.definition(edge.symbol), edge.addend));
        }
        starts.sort_unstable();
        starts.dedup();
        Starts(starts)
    }

    /// Those of one block.
    pub(super) fn in_block(&self, id: BlockId) -> &[(BlockId, u64)] {
        let first = self.0.partition_point(|(block, _)| *block < id);
        let end = self.0.partition_point(|(block, _)| *block <= id);
        &self.0[first..end]
    }
}

fn place(definition: Definition, addend: i64) -> Option<(BlockId, u64)> {
    match definition {
        Definition::Block(block, offset) => Some((block, offset.checked_add_signed(addend)?)),
        _ => None,
    }
}

/// An instruction: offsets in its section.
pub(super) struct Site {
    pub(super) start: usize,
    pub(super) end: usize,
    constants: ConstantOffsets,
    is_relative: bool,
}

/// What a field is to its instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Of a memory operand; relative to the instruction's end, or not.
    Displacement {
        is_relative: bool,
    },
    Immediate,
}

impl Site {
    /// What the field of four bytes at this offset of the section is.
    pub(super) fn field(&self, offset: u32) -> Option<Field> {
        let (at, constants) = ((offset as usize).checked_sub(self.start)?, &self.constants);
        if constants.has_displacement() && (constants.displacement_offset(), constants.displacement_size()) == (at, 4) {
            return Some(Field::Displacement { is_relative: self.is_relative });
        }
        let is_immediate =
            constants.has_immediate() && (constants.immediate_offset(), constants.immediate_size()) == (at, 4);
        is_immediate.then_some(Field::Immediate)
    }

    fn has_operand_at(&self, offset: u32) -> bool {
        let (at, constants) = (offset as usize - self.start, &self.constants);
        constants.has_displacement() && constants.displacement_offset() == at
            || constants.has_immediate() && constants.immediate_offset() == at
            || constants.has_immediate2() && constants.immediate_offset2() == at
    }
}

/// Walks over a section's instructions, forwards only.
pub(super) struct Sweep<'a> {
    decoder: Decoder<'a>,
    starts: &'a [(BlockId, u64)],
    /// Relocated fields, ascending.
    fields: Vec<u32>,
    next_field: usize,
    at: usize,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(code: &'a [u8], starts: &'a [(BlockId, u64)], edges: &[Edge]) -> Sweep<'a> {
        let mut fields: Vec<u32> = edges.iter().map(|edge| edge.offset).collect();
        fields.sort_unstable();
        let decoder = Decoder::new(64, code, DecoderOptions::NONE);
        Sweep { decoder, starts, fields, next_field: 0, at: 0 }
    }

    /// The instruction that the field at `offset` is in: behind those that were asked for before.
    pub(super) fn find(&mut self, offset: u32) -> Result<Site, String> {
        let count = self.starts.partition_point(|(_, start)| *start <= offset.into());
        if let Some((_, start)) = count.checked_sub(1).and_then(|last| self.starts.get(last)) {
            self.at = self.at.max(*start as usize);
        }
        while self.at <= offset as usize {
            let site = self.next()?;
            if (offset as usize) < site.end {
                return Ok(site);
            }
        }
        Err("it is in two instructions at once".to_string())
    }

    fn next(&mut self) -> Result<Site, String> {
        let unclear = |at| format!("what is at {at:#x} cannot be told to be code");
        let mut instruction = Instruction::default();
        self.decoder.set_position(self.at).map_err(|_| unclear(self.at))?;
        self.decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(unclear(self.at));
        }
        let constants = self.decoder.get_constant_offsets(&instruction);
        let is_relative = instruction.is_ip_rel_memory_operand();
        let site = Site { start: self.at, end: self.at + instruction.len(), constants, is_relative };
        while let Some(field) = self.fields.get(self.next_field).filter(|field| (**field as usize) < site.end) {
            if *field as usize >= site.start && !site.has_operand_at(*field) {
                return Err(unclear(site.start));
            }
            self.next_field += 1;
        }
        self.at = site.end;
        Ok(site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::graph::SymbolIndex;
    use crate::link::x86_64::EdgeKind;

    fn edge(offset: u32) -> Edge {
        Edge { offset, kind: EdgeKind::Pointer32, symbol: SymbolIndex(0), addend: 0 }
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn a_field_is_found_in_its_instruction_whatever_stands_before_its_function() {
        // A byte of data that would swallow what follows, then mov $0,%edi; cmpq $1,0(%rip).
        let code = [0x48, 0xbf, 0, 0, 0, 0, 0x48, 0x83, 0x3d, 0, 0, 0, 0, 1];
        let start = [(BlockId(0), 1)];
        let mut sweep = Sweep::new(&code, &start, &[edge(2), edge(9)]);
        let site = sweep.find(2).unwrap();
        assert_eq!((site.start, site.end, site.field(2)), (1, 6, Some(Field::Immediate)));
        let site = sweep.find(9).unwrap();
        assert_eq!((site.start, site.end, site.field(9)), (6, 14, Some(Field::Displacement { is_relative: true })));
    }

    #[cfg_attr(miri, ignore = "takes minutes: the decoder of instructions unpacks its tables")]
    #[test]
    fn where_a_relocated_field_is_no_operand_nothing_is_guessed() {
        // Read from its first byte this is one movabs, whose operand begins elsewhere.
        let code = [0x48, 0xbf, 0, 0, 0, 0, 0x90, 0x90, 0x90, 0x90];
        assert!(Sweep::new(&code, &[], &[edge(3)]).find(3).is_err());
        assert!(Sweep::new(&[0x06, 0, 0, 0, 0], &[], &[edge(1)]).find(1).is_err(), "no instruction");
        assert!(Sweep::new(&[0xbf, 0, 0, 0, 0, 0xbf, 0, 0], &[], &[edge(6)]).find(6).is_err(), "cut off");
    }
}
