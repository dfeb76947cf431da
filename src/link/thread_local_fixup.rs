//! Fix-up of thread-local references: where a variable is, and the GOT entries of variables.
//!
//! # A variable without a fixed distance
//! A distance from the thread pointer, or from one block to another, is fixed if the C library gave the blocks static
//! TLS offsets. If it did not, the instruction moves to a thunk (`thread_local_thunks.rs`). What has no thunk, such as a
//! field of eight bytes, is refused.

use crate::arch::{EdgeKind, ThreadLocalEntry};
use crate::base::{ExecutorAddr, SegmentKind, TlsIndex};
use crate::error::{Error, LinkFault};
use crate::link::graph::{BlockId, Definition, Edge, Role, SymbolIndex};
use crate::link::resolved_link::ResolvedLink;
use crate::link::tables::SLOT_SIZE;
use crate::link::thread_locals;
use crate::memory::InFlight;

/// Where a thread-local variable is.
pub(super) struct ThreadLocalLocation {
    pub(super) index: TlsIndex,
    /// Distance from the thread pointer in bytes, if it is the same in every thread.
    pub(super) static_offset: Option<i64>,
}

impl ResolvedLink<'_> {
    /// Refuses an ordinary edge to a thread-local variable, and a thread-local edge to anything else.
    pub(super) fn check_thread_local_use(&self, id: BlockId, edge: &Edge) -> Result<(), Error> {
        let is_variable = match self.graph.definition(edge.symbol) {
            Definition::Block(block, _) => self.graph.blocks[block.index()].role == Role::ThreadLocal,
            Definition::External => self.found(edge.symbol).is_some_and(|found| found.thread_local.is_some()),
            Definition::Absolute(_) | Definition::Nowhere => false,
        };
        let is_for_block = edge.kind.general() == EdgeKind::ThreadLocalBlock32;
        if is_variable == edge.kind.is_thread_local() && !is_for_block
            || is_for_block && self.local_dynamic_block.is_some()
        {
            return Ok(());
        }
        let is_undefined = self.found(edge.symbol).is_some_and(|found| found.address == ExecutorAddr::NULL);
        Err(match is_undefined && edge.kind.is_thread_local() {
            true => thread_locals::undefined_weak(self.graph, id, edge),
            false => thread_locals::wrong_kind(self.graph, id, edge, is_variable),
        })
    }

    /// Whether the value of an edge differs from thread to thread, so that a thunk has to compute it.
    ///
    /// # Errors
    /// The symbol is no thread-local variable; no thunk can compute the value.
    pub(crate) fn needs_thunk(&self, id: BlockId, edge: &Edge) -> Result<bool, Error> {
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            return Ok(false);
        }
        self.check_thread_local_use(id, edge)?;
        let is_fixed = match edge.kind.is_block_offset() {
            true => self.offset_in_local_dynamic_block(edge.symbol).is_some(),
            false => self.thread_local_location(edge.symbol).static_offset.is_some(),
        };
        if is_fixed || edge.kind.is_page_of_distance() {
            return Ok(false);
        }
        let is_code = self.graph.blocks[id.index()].pool == SegmentKind::Code;
        if is_code && edge.kind.may_be_computed() { Ok(true) } else { Err(self.not_static(id, edge)) }
    }

    pub(super) fn thread_local_location(&self, symbol: SymbolIndex) -> ThreadLocalLocation {
        let own = self.addresses.thread_locals.as_ref();
        match self.graph.definition(symbol) {
            Definition::Block(block, offset) => {
                // The image, which may hold the offset, is written before the module number is known.
                let offset = self.graph.blocks[block.index()].offset + offset;
                let index = TlsIndex { module: own.map_or(0, |own| own.module), offset: offset as u32 };
                let start = own.and_then(|own| own.static_offset);
                ThreadLocalLocation { index, static_offset: start.map(|start| start + offset as i64) }
            }
            _ => {
                let found = self.found(symbol).copied().unwrap_or_default();
                let index = TlsIndex::from_address(found.address);
                ThreadLocalLocation { index, static_offset: found.thread_local.flatten() }
            }
        }
    }

    /// A variable's distance from the start of the local-dynamic block; `None` for a variable of another block, unless
    /// both blocks have a static offset.
    pub(super) fn offset_in_local_dynamic_block(&self, symbol: SymbolIndex) -> Option<i64> {
        let variable = self.thread_local_location(symbol);
        match self.local_dynamic_block {
            Some(block) if block.module != variable.index.module => {
                Some(variable.static_offset? - block.static_offset?)
            }
            _ => Some(variable.index.offset.into()),
        }
    }

    pub(super) fn not_static(&self, id: BlockId, edge: &Edge) -> Error {
        thread_locals::not_static(self.graph, id, edge)
    }

    /// Writes the entries of thread-local variables in the GOT.
    pub(super) fn write_thread_local_entries(&self, memory: &mut dyn InFlight) -> Result<(), Error> {
        let mut entries = self.tables.thread_locals().peekable();
        let (Some(block), Some(_)) = (self.tables.got(), entries.peek()) else { return Ok(()) };
        let got = self.graph.block_address(block, self.addresses);
        let bytes = &mut memory.working(SegmentKind::ReadOnly)[self.graph.blocks[block.index()].offset as usize..];
        for (symbol, entry, offset) in entries {
            let at = offset as usize;
            let mut set_word = |index: usize, word: u64| {
                bytes[at + index * SLOT_SIZE..at + (index + 1) * SLOT_SIZE].copy_from_slice(&word.to_le_bytes());
            };
            let variable = self.thread_local_location(symbol);
            match entry {
                ThreadLocalEntry::Pair => {
                    set_word(0, variable.index.module.into());
                    set_word(1, variable.index.offset.into());
                }
                ThreadLocalEntry::Block => {
                    set_word(0, self.local_dynamic_block.map_or(0, |block| block.module.into()));
                    set_word(1, 0);
                }
                // With thunks, no instruction reads the slot of a variable without a static offset.
                ThreadLocalEntry::StaticOffset if self.thunks.is_some() => {
                    set_word(0, variable.static_offset.unwrap_or(0) as u64);
                }
                ThreadLocalEntry::StaticOffset => {
                    set_word(0, variable.static_offset.ok_or_else(|| self.not_static_slot(symbol))? as u64);
                }
                ThreadLocalEntry::Descriptor => {
                    let function =
                        self.graph.descriptor_function.map_or(ExecutorAddr::NULL, |function| self.address(function));
                    set_word(0, function.value());
                    set_word(1, got.offset(offset + 2 * SLOT_SIZE as u64).value());
                    set_word(2, variable.index.module.into());
                    set_word(3, variable.index.offset.into());
                }
            }
        }
        Ok(())
    }

    /// The error for a slot of a variable without a static TLS offset, with the place of the first edge that needs the
    /// slot.
    fn not_static_slot(&self, symbol: SymbolIndex) -> Error {
        let refers_to_it = |edge: &&Edge| edge.symbol == symbol && edge.kind.general() == EdgeKind::StaticLoad32;
        let place = self.graph.blocks().find_map(|(id, _)| Some((id, self.graph.edges(id).iter().find(refers_to_it)?)));
        match place {
            Some((id, edge)) => self.not_static(id, edge),
            None => self.graph.fault(LinkFault::Malformed("a GOT entry that no relocation refers to".to_string())),
        }
    }
}
