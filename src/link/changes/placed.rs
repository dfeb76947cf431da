//! Changes after layout: bytes and targets of edges, as long as nothing that was laid out depends on them.

use crate::error::{Error, Result};
use crate::link::content::GivenContent;
use crate::link::edge_rules;
use crate::link::graph::{Block, BlockId, Definition, Edge, Role, SymbolIndex};
use crate::link::pipeline::PlacedLink;

impl PlacedLink {
    /// Gives a block other bytes, as many as it has. The edges stay, and are applied to the new bytes.
    ///
    /// # Errors
    /// For a position of another graph, and a dropped block. For another number of bytes, zero-fill, unwind tables and
    /// thread-local variables, which are laid out: change these in [`pruned`](crate::layer::LinkHooks::pruned).
    pub fn set_content(&mut self, block: BlockId, content: Vec<u8>) -> Result<()> {
        self.check_placed(block)?;
        let graph = &mut self.link.graph;
        let target = &graph.blocks[block.index()];
        if target.is_zero_fill() || target.size != content.len() as u64 {
            let problem = format!(
                "the block has {:#x} bytes of memory, and another number of bytes needs the hook `pruned`",
                if target.is_zero_fill() { 0 } else { target.size }
            );
            return graph.refuse(block, 0, problem);
        }
        graph.record_block(block);
        graph.blocks[block.index()].content = graph.synthetic.add_given(GivenContent::owned(content));
        Ok(())
    }

    /// Makes an edge refer to another symbol. `position` is its position among the edges of the block. Kind and addend
    /// stay.
    ///
    /// The symbol is a definition of the object, or one of the [externals](Self::externals) of the link. An edge that needs
    /// a GOT slot can refer to a symbol that has one.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, thread-local variables, and a symbol without what the edge needs:
    /// redirect the edge in [`pruned`](crate::layer::LinkHooks::pruned), where the linker makes it.
    pub fn redirect_edge(&mut self, block: BlockId, position: usize, symbol: SymbolIndex) -> Result<()> {
        self.check_placed(block)?;
        let edge = self.link.graph.edge_at(block, position)?;
        let redirected = Edge { symbol, ..edge };
        if let Some(problem) = self.redirect_problem(block, &redirected) {
            let problem = format!("{problem}; redirect the edge in the hook `pruned`");
            return Err(self.placed_error(block, &redirected, problem));
        }
        let graph = &mut self.link.graph;
        graph.record_block(block);
        let first = graph.blocks[block.index()].edges.start as usize;
        graph.edges[first + position] = redirected;
        Ok(())
    }

    fn redirect_problem(&self, block: BlockId, edge: &Edge) -> Option<String> {
        let graph = &self.link.graph;
        let target = &graph.blocks[block.index()];
        let known = edge_rules::place_problem(graph.arch, graph.symbols.len(), target, edge);
        if known.is_some() {
            return known;
        }
        let problem = match graph.definition(edge.symbol) {
            _ if edge.kind.is_thread_local() || edge.kind.thread_local_entry().is_some() => {
                "the edge belongs to a thread-local variable, whose entries are laid out"
            }
            Definition::Nowhere => "the symbol is not in memory",
            Definition::External if !self.is_used_external(edge.symbol) => "the symbol was not looked up",
            Definition::External if edge.kind.is_size() => "the symbol's size was not looked up",
            _ if edge.kind.needs_got_slot() && self.got_slot(edge.symbol).is_none() => "the symbol has no GOT slot",
            _ => edge_rules::use_problem(graph, edge)?,
        };
        Some(problem.to_string())
    }

    /// Refuses blocks that the linker has read when it laid them out.
    fn check_placed(&self, id: BlockId) -> Result<()> {
        let graph = &self.link.graph;
        let Block { role, .. } = *graph.live_block(id)?;
        match role {
            Role::Plain | Role::InitFragment | Role::FragmentFunction { .. } | Role::Initializers { .. } => Ok(()),
            Role::EhFrame => graph.refuse(id, 0, "the unwind table is counted already".to_string()),
            Role::ThreadLocal => graph.refuse(id, 0, "the C library has the thread-local block already".to_string()),
        }
    }

    #[cold]
    fn placed_error(&self, block: BlockId, edge: &Edge, problem: String) -> Error {
        self.link.graph.edge_error(block, edge, problem)
    }
}
