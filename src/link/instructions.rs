//! Fix-up of edges whose field is bits of an instruction, and that only one architecture has.
//!
//! The kind of such an edge has a [`Formula`], and `arch` stores the value. A pair of instructions that loads a GOT slot may be
//! rewritten to make the symbol's address without the slot (`got_pairs.rs`).

use crate::arch::{Base, Formula, Frame, ThreadLocalEntry, page_of};
use crate::base::ExecutorAddr;
use crate::error::{Error, LinkFault};
use crate::link::fixup::wide;
use crate::link::got_pairs::is_pair;
use crate::link::graph::{BlockId, Edge};
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

    /// Rewrites the pair of the first two edges to make the address of its symbol, if they are a pair and the address is in
    /// reach. Returns false, and writes nothing, otherwise.
    #[cold]
    pub(super) fn relax_got_pair(&self, id: BlockId, edges: &[Edge], start: ExecutorAddr, bytes: &mut [u8]) -> bool {
        let [first, second, ..] = edges else { return false };
        // Other edges may be between the two in an object that no assembler wrote.
        if !self.got_pairs.contains(id, first.offset) || !is_pair(self.graph, first, second) {
            return false;
        }
        let Some(target) = self.targets.plain(first.symbol) else { return false };
        let at = first.offset as usize;
        let Some(pair) = bytes.get_mut(at..at + 8) else { return false };
        let word = |at: usize| pair[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let place = start.offset(first.offset.into()).value();
        let relaxed = self.graph.arch.relax_got_pair([word(0), word(4)], place, target.value());
        let Some([first, second]) = relaxed else { return false };
        pair[..4].copy_from_slice(&first.to_le_bytes());
        pair[4..].copy_from_slice(&second.to_le_bytes());
        true
    }
}
