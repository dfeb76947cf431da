//! [`Survey`]: what each symbol is used for by what is left.

use crate::base::Kept;
use crate::link::graph::{Definition, LinkGraph, Symbol, SymbolIndex};
use crate::link::uses::{self, BRANCH, NEAR, SLOT, STATIC, USED};
use crate::link::x86_64::KindSet;

/// What the symbols of a graph are used for.
pub(crate) struct Survey {
    /// By symbol.
    uses: Kept<u32>,
    /// Every kind of edge that there is.
    pub(crate) kinds: KindSet,
}

impl Survey {
    /// Takes what was noted when the edges were made, if all of it still counts.
    pub(crate) fn of(graph: &mut LinkGraph) -> Survey {
        let mut noted = std::mem::take(&mut graph.uses);
        if noted.are_exact() && !graph.blocks.iter().any(|block| block.is_dropped && !block.edges.is_empty()) {
            noted.cover(graph.symbols.len());
            let noted = Survey { uses: noted.into_words(), kinds: graph.kinds };
            debug_assert!(noted.says_the_same_as(&Survey::walk(graph)), "what was noted is what there is");
            return noted;
        }
        Survey::walk(graph)
    }

    fn says_the_same_as(&self, other: &Survey) -> bool {
        let what_for = |uses: &u32| *uses & !uses::sources(u32::MAX);
        self.uses.iter().map(what_for).eq(other.uses.iter().map(what_for))
    }

    /// One walk over the edges of what is left.
    fn walk(graph: &LinkGraph) -> Survey {
        let mut survey = Survey { uses: Kept::repeat(0, graph.symbols.len()), kinds: KindSet::default() };
        for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
            for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
                survey.kinds.insert(edge.kind);
                survey.uses[edge.symbol.index()] |= uses::uses(edge.kind);
            }
        }
        survey
    }

    /// Whether some edge refers to it.
    pub(crate) fn is_used(&self, symbol: SymbolIndex) -> bool {
        self.uses[symbol.index()] & USED != 0
    }

    /// The symbols that take a slot, and whether a stub, too: it may have to stand for them.
    pub(crate) fn with_slots(&self, graph: &LinkGraph) -> impl Iterator<Item = (SymbolIndex, bool)> {
        let symbols = graph.symbols.iter().zip(&self.uses).enumerate();
        symbols.filter(|(_, (_, uses))| **uses & (SLOT | BRANCH | NEAR) != 0).filter_map(|(index, (symbol, uses))| {
            let may_need_stub = may_need_stub(*uses, symbol.definition);
            (may_need_stub || uses & SLOT != 0).then_some((SymbolIndex(index as u32), may_need_stub))
        })
    }

    /// Whether code names it by less than an address, and it may be a shared library's.
    pub(crate) fn may_be_far(&self, index: SymbolIndex, symbol: &Symbol) -> bool {
        self.uses[index.index()] & NEAR != 0 && symbol.definition == Definition::External && !symbol.is_hidden
    }

    /// Whether its distance from the thread pointer is asked for.
    pub(crate) fn needs_static_place(&self, symbol: SymbolIndex) -> bool {
        self.uses[symbol.index()] & STATIC != 0
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
