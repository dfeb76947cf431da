//! [`SymbolUses`]: what the edges that remain after dead-stripping use each symbol for.
//!
//! `tables.rs` asks it which symbols need a GOT slot or a stub, and the pipeline asks it which externals must be looked
//! up. The bits come from the graph's `UseRecorder`. If a block with edges was dropped, they are computed again, by a
//! walk over the edges of the remaining blocks.

use crate::arch::{KindSet, uses};
use crate::base::RecycledVec;
use crate::link::graph::{Block, Definition, GraphSymbol, LinkGraph, SymbolIndex};
use crate::link::use_recorder;

/// What the edges of a pruned graph use each symbol for.
#[derive(Default)]
pub(crate) struct SymbolUses {
    /// By symbol: the bits of `use_recorder.rs`.
    bits: RecycledVec<u32>,
    /// Every edge kind of the remaining blocks.
    pub(crate) kinds: KindSet,
}

impl SymbolUses {
    /// Takes the recorded bits out of the graph if all of them still apply, and computes them otherwise.
    pub(crate) fn collect(&mut self, graph: &mut LinkGraph) {
        let still_applies = |block: &Block| !block.is_dropped || block.edges.is_empty();
        if !graph.use_recorder.is_exact() || !graph.blocks.iter().all(still_applies) {
            return self.walk(graph);
        }
        graph.use_recorder.extend_to(graph.symbols.len());
        graph.use_recorder.move_bits_to(&mut self.bits);
        self.kinds = graph.kinds;
        debug_assert!(self.has_same_uses(&SymbolUses::of(graph)), "the recorded uses differ from the edges");
    }

    /// Clears the bits and keeps their buffer.
    pub(crate) fn reset(&mut self) {
        self.bits.reset();
    }

    fn of(graph: &LinkGraph) -> SymbolUses {
        let mut collected = SymbolUses::default();
        collected.walk(graph);
        collected
    }

    /// Compares the use bits, without the referrer bits.
    fn has_same_uses(&self, other: &SymbolUses) -> bool {
        let use_bits = |word: &u32| *word & !use_recorder::referrer_bits(u32::MAX);
        self.bits.iter().map(use_bits).eq(other.bits.iter().map(use_bits))
    }

    /// Computes the use bits from the edges of all blocks that are not dropped.
    fn walk(&mut self, graph: &LinkGraph) {
        self.kinds = KindSet::default();
        self.bits.ensure_capacity(graph.symbols.len());
        self.bits.resize(graph.symbols.len(), 0);
        for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
            for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
                self.kinds.insert(edge.kind);
                self.bits[edge.symbol.index()] |= edge.kind.uses();
            }
        }
    }

    /// The externals that some edge refers to, and those that replace a common symbol, because the link compares their
    /// alignment. Each with whether some edge needs its distance from the thread pointer.
    pub(crate) fn used_externals(&self, graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, bool)> {
        let first = graph.first_global as usize;
        let globals = self.bits.get(first..).unwrap_or_default().iter().enumerate();
        let is_lost_common = move |number| graph.is_lost_common(SymbolIndex((first + number) as u32));
        let used = globals.filter(move |(number, bits)| **bits & uses::ANY != 0 || is_lost_common(*number));
        used.map(move |(number, bits)| (SymbolIndex((first + number) as u32), bits & uses::STATIC != 0))
            .filter(|(symbol, _)| graph.definition(*symbol) == Definition::External)
    }

    /// The symbols that get a GOT slot, each with whether it also gets a stub. A stub jumps through the slot, so a
    /// symbol with a stub has both.
    pub(crate) fn with_slots(&self, graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, bool)> {
        let used =
            self.bits.iter().enumerate().filter(|(_, bits)| **bits & (uses::SLOT | uses::BRANCH | uses::NEAR) != 0);
        used.filter_map(|(number, bits)| {
            let symbol = SymbolIndex(number as u32);
            let may_need_stub = may_need_stub(*bits, graph.definition(symbol));
            (may_need_stub || bits & uses::SLOT != 0).then_some((symbol, may_need_stub))
        })
    }

    /// Whether a field that is narrower than an address refers to the symbol, and something out of reach may define it.
    /// `is_low` says that the object may be below 2 GiB, far from other objects of its dylib.
    pub(crate) fn may_be_far(&self, index: SymbolIndex, symbol: &GraphSymbol, is_low: bool) -> bool {
        self.bits[index.index()] & uses::NEAR != 0
            && symbol.definition == Definition::External
            && (!symbol.is_hidden || is_low)
    }
}

/// Whether the symbol may need a stub, because it may be out of reach. A branch may not reach a symbol outside the
/// object. Code for a small code model may not reach an external function.
fn may_need_stub(bits: u32, definition: Definition) -> bool {
    match definition {
        Definition::External => bits & (uses::BRANCH | uses::NEAR) != 0,
        Definition::Absolute(_) => bits & uses::BRANCH != 0,
        Definition::Block(..) | Definition::Nowhere => false,
    }
}
