//! [`SymbolUses`]: what each symbol is used for by what is left.

use crate::base::RecycledVec;
use crate::link::graph::{Block, Definition, LinkGraph, Symbol, SymbolIndex};
use crate::link::use_recorder::{self, BRANCH, NEAR, SLOT, STATIC, USED};
use crate::link::x86_64::KindSet;

/// What the symbols of a graph are used for.
#[derive(Default)]
pub(crate) struct SymbolUses {
    /// By symbol.
    uses: RecycledVec<u32>,
    /// Every kind of edge that there is.
    pub(crate) kinds: KindSet,
}

impl SymbolUses {
    /// Takes what was noted when the edges were made, if all of it still counts.
    pub(crate) fn take(&mut self, graph: &mut LinkGraph) {
        let counts = |block: &Block| !block.is_dropped || block.edges.is_empty();
        if !graph.uses.are_exact() || !graph.blocks.iter().all(counts) {
            return self.walk(graph);
        }
        graph.uses.cover(graph.symbols.len());
        graph.uses.give_words(&mut self.uses);
        self.kinds = graph.kinds;
        debug_assert!(self.says_the_same_as(&SymbolUses::of(graph)), "what was noted is what there is");
    }

    /// Forgets all of it.
    pub(crate) fn empty(&mut self) {
        self.uses.empty();
    }

    fn of(graph: &LinkGraph) -> SymbolUses {
        let mut survey = SymbolUses::default();
        survey.walk(graph);
        survey
    }

    fn says_the_same_as(&self, other: &SymbolUses) -> bool {
        let what_for = |uses: &u32| *uses & !use_recorder::sources(u32::MAX);
        self.uses.iter().map(what_for).eq(other.uses.iter().map(what_for))
    }

    /// One walk over the edges of what is left.
    fn walk(&mut self, graph: &LinkGraph) {
        self.kinds = KindSet::default();
        self.uses.make_room(graph.symbols.len());
        self.uses.resize(graph.symbols.len(), 0);
        for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
            for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
                self.kinds.insert(edge.kind);
                self.uses[edge.symbol.index()] |= use_recorder::uses(edge.kind);
            }
        }
    }

    /// The externals that some edge refers to, and whether their distance from the thread pointer is asked for.
    pub(crate) fn used_externals(&self, graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, bool)> {
        let first = graph.first_global as usize;
        let globals = self.uses.get(first..).unwrap_or_default().iter().enumerate();
        let used = globals.filter(|(_, uses)| **uses & USED != 0);
        used.map(move |(number, uses)| (SymbolIndex((first + number) as u32), uses & STATIC != 0))
            .filter(|(symbol, _)| graph.definition(*symbol) == Definition::External)
    }

    /// The symbols that take a slot, and whether a stub, too: it may have to stand for them.
    pub(crate) fn with_slots(&self, graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, bool)> {
        let used = self.uses.iter().enumerate().filter(|(_, uses)| **uses & (SLOT | BRANCH | NEAR) != 0);
        used.filter_map(|(number, uses)| {
            let symbol = SymbolIndex(number as u32);
            let may_need_stub = may_need_stub(*uses, graph.definition(symbol));
            (may_need_stub || uses & SLOT != 0).then_some((symbol, may_need_stub))
        })
    }

    /// Whether code names it by less than an address, and it may be a shared library's.
    pub(crate) fn may_be_far(&self, index: SymbolIndex, symbol: &Symbol) -> bool {
        self.uses[index.index()] & NEAR != 0 && symbol.definition == Definition::External && !symbol.is_hidden
    }
}

/// Whether a stub may have to stand for it: branches to what is not the object's own may be too long. So may be references
/// to external functions by code that was compiled to stand near everything it uses.
fn may_need_stub(uses: u32, definition: Definition) -> bool {
    match definition {
        Definition::External => uses & (BRANCH | NEAR) != 0,
        Definition::Absolute(_) => uses & BRANCH != 0,
        Definition::Block(..) | Definition::Nowhere => false,
    }
}
