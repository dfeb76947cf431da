//! [`Survey`]: one walk over the edges of what is left, which says what each symbol is used for.

use crate::base::Kept;
use crate::link::graph::{Definition, LinkGraph, Symbol, SymbolIndex};
use crate::link::x86_64::{EdgeKind, KindSet};

/// What the symbols of a graph are used for.
pub(crate) struct Survey {
    /// By symbol.
    uses: Kept<u8>,
    /// Every kind of edge that there is.
    pub(crate) kinds: KindSet,
}

impl Survey {
    pub(crate) fn of(graph: &LinkGraph) -> Survey {
        let mut survey = Survey { uses: Kept::repeat(0, graph.symbols.len()), kinds: KindSet::default() };
        for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
            for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
                survey.kinds.insert(edge.kind);
                survey.uses[edge.symbol.index()] |= uses(edge.kind);
            }
        }
        survey
    }

    /// Whether some edge refers to it.
    pub(crate) fn is_used(&self, symbol: SymbolIndex) -> bool {
        self.uses[symbol.index()] & USED != 0
    }

    /// Whether some edge reads its GOT slot.
    pub(crate) fn needs_slot(&self, symbol: SymbolIndex) -> bool {
        self.uses[symbol.index()] & SLOT != 0
    }

    /// Whether a stub may have to stand for it: branches to what is not the object's own may be too long. So may be
    /// references to external functions by code that was compiled to stand near everything it uses.
    pub(crate) fn may_need_stub(&self, symbol: SymbolIndex, definition: Definition) -> bool {
        let uses = self.uses[symbol.index()];
        match definition {
            Definition::External => uses & (BRANCH | NEAR) != 0,
            Definition::Absolute(_) => uses & BRANCH != 0,
            Definition::Block(..) | Definition::Nowhere => false,
        }
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

const USED: u8 = 1;
const SLOT: u8 = 2;
const BRANCH: u8 = 4;
const NEAR: u8 = 8;
const STATIC: u8 = 16;

fn uses(kind: EdgeKind) -> u8 {
    use EdgeKind::*;
    USED | match kind {
        Branch32 => BRANCH,
        _ if KindSet::NEAR.contains(kind) => NEAR,
        _ if kind.needs_got_slot() => SLOT,
        _ if kind.needs_static_place() || kind.is_block_offset() => STATIC,
        _ => 0,
    }
}
