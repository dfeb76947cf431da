//! The GOT and the stubs of one object: made before layout, for every edge that may need them.
//!
//! Whether a branch or a load can do without its slot is known only when addresses are (by displacement, in
//! `fixup.rs`); the room for it must be there before. A symbol has one slot and one stub, however many edges use it.
//! Branches to the object's own code always reach, so they get no stub.

use crate::base::Pool;
use crate::link::graph::{BlockId, Content, Definition, LinkGraph, SymbolIndex, Text};
use crate::link::x86_64::{EdgeKind, STUB};
use crate::sync::Arc;

/// Where slots and stubs stand.
pub(crate) struct Tables {
    got: Option<BlockId>,
    stubs: Option<BlockId>,
    /// By symbol: number of its slot.
    slot_of: Vec<u32>,
    /// By symbol: number of its stub.
    stub_of: Vec<u32>,
    /// By slot: the symbol.
    pub(crate) slots: Vec<SymbolIndex>,
    /// By stub: the symbol.
    pub(crate) stub_targets: Vec<SymbolIndex>,
}

impl Tables {
    pub(crate) fn build(graph: &mut LinkGraph) -> Tables {
        let count = graph.symbols.len();
        let mut tables = Tables {
            got: None,
            stubs: None,
            slot_of: vec![NONE; count],
            stub_of: vec![NONE; count],
            slots: Vec::new(),
            stub_targets: Vec::new(),
        };
        let mut needs_got = false;
        for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
            for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
                needs_got |= edge.kind.needs_got();
                if edge.kind.needs_got_slot() {
                    tables.want_slot(edge.symbol);
                } else if edge.kind == EdgeKind::Branch32 && may_be_far(graph.definition(edge.symbol)) {
                    tables.want_slot(edge.symbol);
                    if tables.stub_of[edge.symbol.0 as usize] == NONE {
                        tables.stub_of[edge.symbol.0 as usize] = tables.stub_targets.len() as u32;
                        tables.stub_targets.push(edge.symbol);
                    }
                }
            }
        }
        if needs_got || !tables.slots.is_empty() {
            let content = Content::Made(vec![0; tables.slots.len() * SLOT]);
            let size = (tables.slots.len() * SLOT) as u64;
            tables.got =
                Some(graph.push_block(Text::Made(Arc::from(".got")), Pool::ReadOnly, content, size, SLOT as u64, 0..0));
        }
        // An object's own GOT goes by this name, whatever kind of edge refers to it.
        if let (true, Some(got), Some(symbol)) = (needs_got, tables.got, graph.find_external("_GLOBAL_OFFSET_TABLE_")) {
            graph.define(symbol, Definition::Block(got, 0));
        }
        if !tables.stub_targets.is_empty() {
            let code = STUB.repeat(tables.stub_targets.len());
            let size = code.len() as u64;
            tables.stubs =
                Some(graph.push_block(Text::Made(Arc::from(".plt")), Pool::Code, Content::Made(code), size, 16, 0..0));
        }
        tables
    }

    /// The GOT, if any edge refers to it.
    pub(crate) fn got(&self) -> Option<BlockId> {
        self.got
    }

    /// The block of stubs, if there are any.
    pub(crate) fn stubs(&self) -> Option<BlockId> {
        self.stubs
    }

    /// Offset of a symbol's slot in the GOT.
    pub(crate) fn slot(&self, symbol: SymbolIndex) -> Option<u64> {
        self.slot_of.get(symbol.0 as usize).filter(|slot| **slot != NONE).map(|slot| u64::from(*slot) * SLOT as u64)
    }

    /// Offset of a symbol's stub in the block of stubs.
    pub(crate) fn stub(&self, symbol: SymbolIndex) -> Option<u64> {
        self.stub_of
            .get(symbol.0 as usize)
            .filter(|stub| **stub != NONE)
            .map(|stub| u64::from(*stub) * STUB.len() as u64)
    }

    fn want_slot(&mut self, symbol: SymbolIndex) {
        if self.slot_of[symbol.0 as usize] == NONE {
            self.slot_of[symbol.0 as usize] = self.slots.len() as u32;
            self.slots.push(symbol);
        }
    }
}

fn may_be_far(definition: Definition) -> bool {
    matches!(definition, Definition::External | Definition::Absolute(_))
}

const NONE: u32 = u32::MAX;
pub(crate) const SLOT: usize = 8;
