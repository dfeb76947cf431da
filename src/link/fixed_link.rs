//! [`FixedLink`]: a link whose bytes are final and still writable.
//!
//! A plugin sees a `FixedLink` after all edges are applied and before the memory is sealed
//! (the `pass` of [`PlacedLink::seal`](crate::link::PlacedLink::seal)). It can read and change the bytes of
//! blocks, and ask for the addresses of symbols, GOT slots and stubs.
//!
//! The views for debuggers and profilers are implemented in their own files: `FixedLink::symbol_file` in
//! `symbol_file.rs`, `FixedLink::functions` in `functions.rs`. They are computed when they are called; a link without
//! such a plugin does no work for them.

use crate::base::ExecutorAddr;
use crate::link::graph::{Block, BlockId, LinkGraph, Role, SymbolIndex};
use crate::link::resolved_link::ResolvedLink;
use crate::memory::InFlight;

/// A link whose bytes are final, and still writable.
pub struct FixedLink<'a> {
    pub(super) resolved: ResolvedLink<'a>,
    pub(super) memory: &'a mut dyn InFlight,
}

impl FixedLink<'_> {
    /// The graph of the link.
    pub fn graph(&self) -> &LinkGraph {
        self.resolved.graph
    }

    /// The address at which a block will run. For a thread-local block, this is meaningless.
    ///
    /// # Panics
    /// If `block` is a position of another graph.
    pub fn block_address(&self, block: BlockId) -> ExecutorAddr {
        self.resolved.graph.block_address(block, self.resolved.addresses)
    }

    /// The address of a symbol: its definition, or what was found for an external. Null for a symbol without an address
    /// ([`Definition::Nowhere`](crate::link::Definition::Nowhere), or a weak external that nothing defines).
    ///
    /// # Panics
    /// If `symbol` is a position of another graph.
    pub fn symbol_address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.resolved.address(symbol)
    }

    /// The address of a symbol's GOT slot, if it has one.
    pub fn got_slot(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let (got, offset) = (self.resolved.tables.got()?, self.resolved.tables.slot(symbol)?);
        Some(self.block_address(got).offset(offset))
    }

    /// The address of a symbol's stub, if it has one.
    pub fn stub(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let (stubs, offset) = (self.resolved.tables.stubs()?, self.resolved.tables.stub(symbol)?);
        Some(self.block_address(stubs).offset(offset))
    }

    /// The bytes of a block. Empty for a block that is dropped or thread-local.
    ///
    /// # Panics
    /// If `block` is a position of another graph.
    pub fn bytes(&mut self, block: BlockId) -> &mut [u8] {
        let block = &self.resolved.graph.blocks[block.index()];
        if block.is_dropped || block.role == Role::ThreadLocal {
            return &mut [];
        }
        match block.large_index {
            Some(index) => self.memory.large_section(index as usize),
            None => bytes_of(block, self.memory),
        }
    }
}

/// The bytes of a block that is in a segment.
pub(super) fn bytes_of<'a>(block: &Block, memory: &'a mut dyn InFlight) -> &'a mut [u8] {
    &mut memory.working(block.pool)[block.offset as usize..(block.offset + block.size) as usize]
}
