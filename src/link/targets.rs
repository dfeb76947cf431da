//! [`Targets`]: the address of every symbol of one link, computed once.
//!
//! The link fills the table in two steps: with the object's own definitions when memory is allocated, and with the
//! externals when they are found. After that, the definitions that the link publishes and every edge read their address
//! here.
//!
//! A target is *plain* if its address alone says where it is: it has an address, the address is [near
//! zero](is_near_zero), and the symbol is no thread-local variable. The quick loop of `fixup.rs` takes plain targets
//! only.

use crate::base::{ExecutorAddr, RecycledVec, impl_recycle};
use crate::link::found_external::FoundExternal;
use crate::link::graph::{Block, BlockAddresses, Definition, LinkGraph, Role, SymbolIndex};

/// The address of every symbol of a link.
#[derive(Default)]
pub(crate) struct Targets {
    /// By symbol.
    by_symbol: RecycledVec<Target>,
    /// By block.
    by_block: RecycledVec<BlockStart>,
}

impl_recycle!(Target, BlockStart);

/// Where a symbol is. The default is a symbol without an address.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    address: u64,
    /// One more than the symbol's position among the externals; zero for a definition of the object.
    external: u32,
    /// See the module's documentation.
    is_plain: bool,
}

/// Where a block begins.
#[derive(Clone, Copy)]
struct BlockStart {
    address: u64,
    is_thread_local: bool,
}

impl Targets {
    /// Enters the object's own definitions. Externals have no address yet.
    #[inline(never)] // a loop that has the registers to itself
    pub(crate) fn insert_definitions(&mut self, graph: &LinkGraph, places: &BlockAddresses) {
        let Targets { by_symbol, by_block } = self;
        by_block.ensure_capacity(graph.blocks.len());
        by_block.extend(graph.blocks.iter().map(|block| BlockStart::of(block, places)));
        by_symbol.ensure_capacity(graph.symbols.len());
        by_symbol.extend(graph.symbols.iter().map(|symbol| match symbol.definition {
            Definition::Block(block, offset) => {
                let BlockStart { address, is_thread_local } = by_block[block.index()];
                Target::of_definition(address.wrapping_add(offset), is_thread_local)
            }
            Definition::Absolute(value) => Target::of_definition(value, false),
            Definition::External | Definition::Nowhere => Target::default(),
        }));
    }

    /// Removes all entries and keeps the buffers, within limits.
    pub(crate) fn reset(&mut self) {
        self.by_symbol.reset();
        self.by_block.reset();
    }

    /// Enters what was found for `externals`, which are in the same order. An external that was not found has a null
    /// address.
    pub(crate) fn insert_externals(&mut self, externals: impl Iterator<Item = SymbolIndex>, found: &[FoundExternal]) {
        for (number, (symbol, found)) in externals.zip(found).enumerate() {
            let address = found.address.value();
            let is_plain = found.thread_local.is_none() && is_near_zero(address);
            self.by_symbol[symbol.index()] = Target { address, external: number as u32 + 1, is_plain };
        }
    }

    /// The address of a symbol whose target is plain.
    #[inline]
    pub(crate) fn plain(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        self.by_symbol.get(symbol.index())?.plain().map(ExecutorAddr::new)
    }

    /// All targets, by symbol.
    pub(crate) fn all(&self) -> &[Target] {
        &self.by_symbol
    }

    /// The address of a symbol; null for a symbol without one.
    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.by_symbol.get(symbol.index()).map_or(ExecutorAddr::NULL, |target| ExecutorAddr::new(target.address))
    }

    /// A symbol's position among the externals; `None` for a definition of the object.
    pub(crate) fn external(&self, symbol: SymbolIndex) -> Option<usize> {
        Some(self.by_symbol.get(symbol.index())?.external.checked_sub(1)? as usize)
    }
}

/// Whether an address is in the lowest quarter of the address space. User space is well within that quarter.
///
/// The distance between two such addresses, plus any addend, cannot wrap around to a value that fits into four bytes.
pub(crate) fn is_near_zero(address: u64) -> bool {
    address >> 62 == 0
}

impl Target {
    /// The address, if the target is plain.
    #[inline]
    pub(crate) fn plain(&self) -> Option<u64> {
        self.is_plain.then_some(self.address)
    }

    #[inline]
    fn of_definition(address: u64, is_thread_local: bool) -> Target {
        Target { address, external: 0, is_plain: !is_thread_local && is_near_zero(address) }
    }
}

impl BlockStart {
    #[inline]
    fn of(block: &Block, places: &BlockAddresses) -> BlockStart {
        BlockStart { address: places.address(block).value(), is_thread_local: block.role == Role::ThreadLocal }
    }
}
