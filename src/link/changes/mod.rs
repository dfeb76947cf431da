//! What plugins may change in a graph (ORC: the methods of `jitlink::LinkGraph`), and what is checked.
//!
//! | ORC | here | file |
//! |---|---|---|
//! | `addDefinedSymbol`, `addAnonymousSymbol` | [`LinkGraph::add_symbol`], `add_local`, `add_weak` | `symbols.rs` |
//! | `addExternalSymbol`, `addAbsoluteSymbol` | `add_external`, `add_weak_external`, `add_local_absolute` | `symbols.rs` |
//! | `Symbol::setName`, `setScope`, `setLinkage` | `rename`, `set_scope` | `symbols.rs` |
//! | `makeDefined`, `makeAbsolute`, `makeExternal`, `transferDefinedSymbol` | `define`, `redefine` | `symbols.rs` |
//! | `removeExternalSymbol`, `removeDefinedSymbol` | `remove_symbol` | `symbols.rs` |
//! | `createContentBlock`, `createZeroFillBlock`, `removeBlock` | `add_block`, `add_zero_block`, `remove_block` | `blocks.rs` |
//! | `createSection`, `mergeSections` | `add_block` with a new name, `set_section` | `blocks.rs` |
//! | `Block::setMutableContent`, `setAlignment` | `set_content`, `set_alignment` | `blocks.rs` |
//! | `splitBlock` | `split_block` | `split.rs` |
//! | `Block::addEdge`, `removeEdge`, `Edge::setTarget` | `set_edges`, `redirect_edge` | `edges.rs` |
//! | the same in a pass after allocation | [`PlacedLink::set_content`](crate::link::PlacedLink::set_content), `redirect_edge` | `placed.rs` |
//!
//! Each method writes what it changed into the graph's [`ChangeRecord`]. After each hook, the layer checks what the hook
//! did ([`check`](check::check), `unwind.rs`), and whether the unit keeps its promises (`promises.rs`). So a link without
//! changes pays one test per hook.
//!
//! # When a method refuses
//! A method that depends on what is in the object returns an error, and has changed nothing then. A method that only adds
//! never fails: it notes a wrong position, and the link is refused after the hook. A change that is wrong only together
//! with others, such as an edge to a removed symbol, is found after the hook, too.

mod blocks;
pub(crate) mod check;
mod edges;
mod placed;
pub(crate) mod promises;
mod split;
mod symbols;
mod unwind;

use crate::error::{Error, LinkFault, Result};
use crate::link::bounds;
use crate::link::change_record::ChangeRecord;
use crate::link::graph::{Block, BlockId, Content, Definition, LinkGraph, SymbolIndex, Text};

impl LinkGraph {
    /// Whether the hook that has returned last has changed the graph.
    #[inline]
    pub(crate) fn has_unchecked_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.unchecked.is_any)
    }

    /// Whether a plugin has changed the graph.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Whether a plugin added or changed a block.
    pub(crate) fn is_changed_block(&self, block: BlockId) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.blocks.contains(&block))
    }

    /// Whether a plugin added or changed a symbol.
    pub(crate) fn is_changed_symbol(&self, symbol: SymbolIndex) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.symbols.contains_key(&symbol))
    }

    fn record(&mut self) -> &mut ChangeRecord {
        self.changes.get_or_insert_default()
    }

    fn record_block(&mut self, block: BlockId) {
        self.record().add_block(block);
    }

    /// Records a symbol before it is changed.
    fn record_symbol(&mut self, symbol: SymbolIndex) {
        let original = self.original(symbol);
        self.record().add_symbol(symbol, original);
    }

    #[cold]
    fn note(&mut self, fault: LinkFault) {
        self.record().note(fault);
    }

    /// The fault of a place in a block.
    #[cold]
    fn invalid(&self, block: BlockId, offset: u64, problem: String) -> LinkFault {
        let block = if block.index() < self.blocks.len() { self.block_name(block) } else { "" };
        LinkFault::InvalidGraph { block: block.to_string(), offset, edge: String::new(), problem }
    }

    /// The error of a place in a block.
    fn refuse<T>(&self, block: BlockId, offset: u64, problem: String) -> Result<T> {
        Err(self.fault(self.invalid(block, offset, problem)))
    }

    /// The error of a symbol.
    fn refuse_symbol<T>(&self, symbol: SymbolIndex, problem: &str) -> Result<T> {
        Err(self.symbol_error(symbol, problem))
    }

    #[cold]
    fn symbol_error(&self, symbol: SymbolIndex, problem: &str) -> Error {
        let (block, offset) = match self.symbols.get(symbol.index()).map(|symbol| symbol.definition) {
            Some(Definition::Block(block, offset)) if block.index() < self.blocks.len() => (Some(block), offset),
            _ => (None, 0),
        };
        let block = block.map_or("", |block| self.block_name(block)).to_string();
        let problem = match self.symbols.get(symbol.index()) {
            Some(_) => format!("symbol `{}` {problem}", self.symbol_name(symbol)),
            None => format!("symbol {} {problem}", symbol.index()),
        };
        self.fault(LinkFault::InvalidGraph { block, offset, edge: String::new(), problem })
    }

    /// A block that may be changed: it is in the graph, has memory, and is no table of the linker.
    fn live_block(&self, id: BlockId) -> Result<&Block> {
        let Some(block) = self.blocks.get(id.index()) else {
            return self.refuse(id, 0, format!("block {} is not in this graph", id.index()));
        };
        if block.is_dropped {
            return self.refuse(id, 0, "the block was dropped, so it cannot be changed".to_string());
        }
        if matches!(block.content, Content::Table) {
            return self.refuse(id, 0, "the block is a table of the linker".to_string());
        }
        Ok(block)
    }

    /// As [`live_block`](Self::live_block), for a change of the block's place or size: nothing else fixes these. `what` is
    /// the change.
    fn movable_block(&mut self, id: BlockId, what: &str) -> Result<&Block> {
        let block = self.live_block(id)?;
        let is_named = !matches!(block.name, Text::Fixed(_)) && bounds::is_identifier(self.block_name(id));
        let problem = if is_named {
            "other objects may ask for the bounds of its section, because the name is a C identifier"
        } else if self.has_neighbours(id) {
            "the block has a fixed place beside another one"
        } else {
            return Ok(&self.blocks[id.index()]);
        };
        self.refuse(id, 0, format!("the block cannot be {what}: {problem}"))
    }

    /// Whether a block must be directly before or after another one.
    fn has_neighbours(&mut self, id: BlockId) -> bool {
        if self.changes.as_ref().is_none_or(|changes| changes.adjacent.is_none()) {
            let pairs = self.blocks().filter_map(|(id, block)| Some([id, block.followed_by?]));
            let adjacent = pairs.flatten().collect();
            self.record().adjacent = Some(adjacent);
        }
        self.changes.as_ref().and_then(|changes| changes.adjacent.as_ref()).is_some_and(|all| all.contains(&id))
    }
}
