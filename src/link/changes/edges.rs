//! Edges: replaced, or redirected to another symbol.

use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::link::edge_rules;
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, Role, SymbolIndex};

impl LinkGraph {
    /// Replaces the edges of a block.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, a field that is not in the block, an edge of a zero-filled block, and
    /// a new edge to a symbol that is not in memory.
    pub fn set_edges(&mut self, block: BlockId, edges: &[Edge]) -> Result<()> {
        let target = self.live_block(block)?;
        for edge in edges {
            if let Some(problem) = edge_rules::place_problem(self.arch, self.symbols.len(), target, edge) {
                return Err(self.edge_error(block, edge, problem));
            }
        }
        let is_new = |edge: &&Edge| self.is_to_nowhere(block, edge) && !self.edges(block).contains(edge);
        if let Some(edge) = edges.iter().find(is_new) {
            return Err(self.edge_error(block, edge, NOT_IN_MEMORY.to_string()));
        }
        self.record_block(block);
        if !self.blocks[block.index()].edges.is_empty() {
            self.use_recorder.mark_stale();
        }
        self.push_edges(block, edges);
        Ok(())
    }

    /// Makes an edge refer to another symbol. `position` is its position among the [edges](Self::edges) of the block. Kind
    /// and addend stay.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, and a symbol that is not in memory.
    ///
    /// ```
    /// use jittison::Error;
    /// use jittison::link::{LinkGraph, SymbolIndex};
    ///
    /// /// Makes all edges to `from` refer to `to`, for use in a hook.
    /// fn redirect_all(graph: &mut LinkGraph, from: SymbolIndex, to: SymbolIndex) -> Result<(), Error> {
    ///     let live = graph.blocks().filter(|(_, block)| !block.is_dropped()).map(|(id, _)| id);
    ///     for block in live.collect::<Vec<_>>() {
    ///         for position in 0..graph.edges(block).len() {
    ///             if graph.edges(block)[position].symbol == from {
    ///                 graph.redirect_edge(block, position, to)?;
    ///             }
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn redirect_edge(&mut self, block: BlockId, position: usize, symbol: SymbolIndex) -> Result<()> {
        let edge = self.edge_at(block, position)?;
        let redirected = Edge { symbol, ..edge };
        if let Some(problem) =
            edge_rules::place_problem(self.arch, self.symbols.len(), &self.blocks[block.index()], &redirected)
        {
            return Err(self.edge_error(block, &edge, problem));
        }
        if self.is_to_nowhere(block, &redirected) {
            return Err(self.edge_error(block, &redirected, NOT_IN_MEMORY.to_string()));
        }
        self.record_block(block);
        self.use_recorder.mark_stale();
        let first = self.blocks[block.index()].edges.start as usize;
        self.edges[first + position] = redirected;
        Ok(())
    }

    /// Whether an edge leads to a symbol that is not in memory, in a block that has no entries for such symbols.
    fn is_to_nowhere(&self, block: BlockId, edge: &Edge) -> bool {
        self.definition(edge.symbol) == Definition::Nowhere && !self.describes_dropped_code(block)
    }

    /// Whether a block is an unwind table or an exception table, which has entries for code that is not in memory.
    pub(super) fn describes_dropped_code(&self, block: BlockId) -> bool {
        self.blocks[block.index()].role == Role::EhFrame || self.block_name(block).starts_with(".gcc_except_table")
    }

    /// The edge at a position of a block that may be changed.
    pub(super) fn edge_at(&self, block: BlockId, position: usize) -> Result<Edge> {
        self.live_block(block)?;
        match self.edges(block).get(position) {
            Some(edge) => Ok(*edge),
            None => {
                let problem = format!("edge {position} does not exist: the block has {}", self.edges(block).len());
                self.refuse(block, 0, problem)
            }
        }
    }

    /// The error of an edge.
    #[cold]
    pub(super) fn edge_error(&self, block: BlockId, edge: &Edge, problem: String) -> Error {
        let kind = self.relocation_name(edge.kind);
        let is_known = edge.symbol.index() < self.symbols.len();
        let symbol = if is_known { self.symbol_name(edge.symbol) } else { "" };
        self.fault(LinkFault::InvalidGraph {
            block: self.block_name(block).to_string(),
            offset: edge.offset.into(),
            edge: format!("{kind} to `{symbol}`"),
            problem,
        })
    }

    /// The error of a symbol that cannot be at a place.
    #[cold]
    pub(super) fn error_at(&self, block: BlockId, offset: u64, symbol: SymbolIndex, problem: &str) -> Error {
        self.fault(self.invalid(block, offset, format!("symbol `{}` {problem}", self.symbol_name(symbol))))
    }

    /// Notes the fault of an error of this graph, for a method that does not fail.
    pub(super) fn note_error(&mut self, error: &Error) {
        if let ErrorKind::Link { fault, .. } = error.kind() {
            self.note(fault.clone());
        }
    }
}

const NOT_IN_MEMORY: &str = "the symbol is not in memory: it was removed, or its section was dropped";
