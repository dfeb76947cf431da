//! Fix-up of edges whose field is bits of an instruction, and that only one architecture has.
//!
//! The kind of such an edge has a [`Formula`], and `arch` stores the value. Sequences of instructions may be rewritten to
//! cheaper ones (`relaxable.rs`).

use crate::arch::{Base, Formula, Frame, Sequence, ThreadLocalEntry, page_of};
use crate::base::ExecutorAddr;
use crate::error::{Error, LinkFault};
use crate::link::fixup::wide;
use crate::link::graph::{BlockId, Definition, Edge};
use crate::link::relaxable::is_sequence;
use crate::link::resolved_link::ResolvedLink;

impl ResolvedLink<'_> {
    /// The value of an edge at `place` by its formula.
    ///
    /// # Errors
    /// [`LinkFault::Unsupported`] for an addend to an entry of the GOT, and for a variable at no fixed distance.
    pub(super) fn formula_value(
        &self,
        id: BlockId,
        edge: &Edge,
        formula: Formula,
        place: ExecutorAddr,
    ) -> Result<i128, Error> {
        if formula.base.is_entry() && edge.addend != 0 {
            let name = self.graph.relocation_name(edge.kind);
            return Err(self.unsupported(id, edge, format!("addend of {name}: the GOT has entries of symbols only")));
        }
        let target = self.address(edge.symbol);
        let got = || self.tables.got().map_or(0, |got| wide(self.graph.block_address(got, self.addresses)));
        // The tables were built from these edges, so an entry that an edge needs is there.
        let entry =
            |entry: ThreadLocalEntry| got() + i128::from(self.tables.thread_local(edge.symbol, entry).unwrap_or(0));
        let fixed = |distance: Option<i64>| distance.ok_or_else(|| self.not_static(id, edge));
        let base = match formula.base {
            Base::Symbol | Base::Branch if formula.frame == Frame::Unsigned => {
                i128::from(target.value().wrapping_add_signed(edge.addend))
            }
            // An address of the upper half of the address space is a negative number.
            Base::Symbol | Base::Branch => i128::from(target.value() as i64) + i128::from(edge.addend),
            Base::Slot => got() + i128::from(self.tables.slot(edge.symbol).unwrap_or(0)),
            Base::Pair => entry(ThreadLocalEntry::Pair),
            Base::Block => entry(ThreadLocalEntry::Block),
            Base::StaticSlot => entry(ThreadLocalEntry::StaticOffset),
            Base::Descriptor => entry(ThreadLocalEntry::Descriptor),
            Base::BlockOffset => {
                i128::from(fixed(self.offset_in_local_dynamic_block(edge.symbol))?) + i128::from(edge.addend)
            }
            Base::StaticOffset => {
                let distance = self.thread_local_location(edge.symbol).static_offset;
                i128::from(fixed(distance)?) + i128::from(edge.addend)
            }
        };
        Ok(match formula.frame {
            Frame::Absolute | Frame::Unsigned => base,
            Frame::Place => base - wide(place),
            Frame::Page => page_of(base) - page_of(wide(place)),
            Frame::Got => base - got(),
            Frame::GotPage => base - page_of(got()),
        })
    }

    /// What the operand of a far reference stands for: the address of the symbol or of its entry in the GOT, plus the addend.
    ///
    /// # Errors
    /// As [`formula_value`](Self::formula_value).
    pub(super) fn far_address(&self, id: BlockId, edge: &Edge) -> Result<ExecutorAddr, Error> {
        let Some(formula) = edge.kind.formula() else {
            return Ok(self.address(edge.symbol).offset(edge.addend as u64));
        };
        let formula = Formula { frame: Frame::Unsigned, ..formula };
        self.formula_value(id, edge, formula, ExecutorAddr::NULL).map(|address| ExecutorAddr::new(address as u64))
    }

    /// The error for a value that is no multiple of what the field counts in.
    #[cold]
    pub(super) fn misaligned(&self, id: BlockId, edge: &Edge, value: i128, multiple: u64) -> Error {
        self.graph.fault(LinkFault::Misaligned {
            section: self.graph.block_name(id).to_string(),
            offset: edge.offset.into(),
            kind: self.graph.relocation_name(edge.kind).to_string(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
            target: self.address(edge.symbol).value(),
            value,
            multiple,
        })
    }

    /// Rewrites the instructions of the first edges to cheaper ones, if they are a sequence for which that is possible. Returns how
    /// many edges these are. Writes nothing, and returns zero, otherwise.
    #[cold]
    pub(super) fn relax_sequence(&self, id: BlockId, edges: &[Edge], start: ExecutorAddr, bytes: &mut [u8]) -> usize {
        self.relaxed(id, edges, start, bytes).unwrap_or(0)
    }

    fn relaxed(&self, id: BlockId, edges: &[Edge], start: ExecutorAddr, bytes: &mut [u8]) -> Option<usize> {
        let first = edges.first()?;
        let sequence = self.relaxable.at(id, first.offset)?;
        // Other edges may be between those of a sequence in an object that no assembler wrote.
        let edges = edges.get(..sequence.edges()).filter(|edges| is_sequence(self.graph, edges, sequence))?;
        let value = match sequence {
            Sequence::GotLoad | Sequence::Address => {
                self.targets.plain(first.symbol)?.value().wrapping_add_signed(first.addend)
            }
            Sequence::StaticLoad | Sequence::Descriptor => self.known_distance(id, first)?,
        };
        let code = bytes.get_mut(first.offset as usize..)?.get_mut(..4 * sequence.instructions())?;
        let (words, _) = code.as_chunks_mut::<4>();
        let mut instructions = [0; Sequence::MOST_INSTRUCTIONS];
        instructions.iter_mut().zip(&*words).for_each(|(instruction, word)| *instruction = u32::from_le_bytes(*word));
        let place = start.offset(first.offset.into()).value();
        let relaxed = self.graph.arch.relax_sequence(sequence, instructions, place, value)?;
        words.iter_mut().zip(relaxed).for_each(|(word, instruction)| *word = instruction.to_le_bytes());
        Some(edges.len())
    }

    /// The distance of an edge's variable from the thread pointer, if it is the same in every thread.
    fn known_distance(&self, id: BlockId, edge: &Edge) -> Option<u64> {
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            return None;
        }
        self.check_thread_local_use(id, edge).ok()?;
        self.thread_local_location(edge.symbol).static_offset.map(|distance| distance as u64)
    }
}
