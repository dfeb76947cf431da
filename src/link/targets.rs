//! [`Targets`]: where every symbol of a link is, worked out once for all who ask: whoever makes its definitions known, and
//! every edge that refers to it.

use crate::base::{ExecutorAddr, Kept, keep};
use crate::link::fixup::FoundExternal;
use crate::link::graph::{BlockId, Definition, LinkGraph, Places, Role, SymbolIndex};

/// By symbol.
#[derive(Default)]
pub(crate) struct Targets(Kept<Target>);

keep!(Target);

/// Where a symbol is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    address: u64,
    /// One more than the position among the externals; zero for the object's own.
    external: u32,
    /// Whether the address is all there is to it: it is somewhere, in the lower part of the address space
    /// ([`is_near_zero`]), and no thread-local variable.
    is_plain: bool,
}

impl Targets {
    /// Enters the object's own definitions. Externals are nowhere yet.
    #[inline(never)] // a loop that has the registers to itself
    pub(crate) fn enter_own(&mut self, graph: &LinkGraph, places: &Places) {
        self.0.make_room(graph.symbols.len());
        self.0.push_copies(graph.symbols.len(), &NOWHERE);
        // Symbols that follow each other are mostly in the same block.
        let mut last = Place { block: BlockId(u32::MAX), start: 0, is_variable: false };
        for (target, symbol) in self.0.iter_mut().zip(&graph.symbols) {
            match symbol.definition {
                Definition::Block(block, offset) => {
                    if last.block != block {
                        last = find(graph, places, block);
                    }
                    *target = Target::own(last.start.wrapping_add(offset), last.is_variable);
                }
                Definition::Absolute(value) => *target = Target::own(value, false),
                Definition::External | Definition::Nowhere => {}
            }
        }
    }

    /// Forgets all of them.
    pub(crate) fn empty(&mut self) {
        self.0.empty();
    }

    /// Enters what was found for `externals`, in order; those that are not there are null.
    pub(crate) fn bind(&mut self, externals: impl Iterator<Item = SymbolIndex>, found: &[FoundExternal]) {
        for (number, (symbol, found)) in externals.zip(found).enumerate() {
            let address = found.address.value();
            let is_plain = found.thread_local.is_none() && is_near_zero(address);
            self.0[symbol.index()] = Target { address, external: number as u32 + 1, is_plain };
        }
    }

    /// The address of a symbol if that is all there is to it.
    #[inline]
    pub(crate) fn plain(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        self.0.get(symbol.index())?.plain().map(ExecutorAddr::new)
    }

    /// By symbol.
    pub(crate) fn all(&self) -> &[Target] {
        &self.0
    }

    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.0.get(symbol.index()).map_or(ExecutorAddr::NULL, |target| ExecutorAddr::new(target.address))
    }

    /// Which of the externals it is.
    pub(crate) fn external(&self, symbol: SymbolIndex) -> Option<usize> {
        Some(self.0.get(symbol.index())?.external.checked_sub(1)? as usize)
    }
}

/// Whether it is in the lowest quarter of the address space, and user space well within. The distance between two such, and
/// any addend, cannot wrap around and come out short.
pub(crate) fn is_near_zero(address: u64) -> bool {
    address >> 62 == 0
}

impl Target {
    /// The address if that is all there is to it.
    #[inline]
    pub(crate) fn plain(&self) -> Option<u64> {
        self.is_plain.then_some(self.address)
    }

    #[inline]
    fn own(address: u64, is_variable: bool) -> Target {
        Target { address, external: 0, is_plain: !is_variable && is_near_zero(address) }
    }
}

/// What is not entered yet.
static NOWHERE: [Target; 64] = [Target { address: 0, external: 0, is_plain: false }; 64];

/// Where a block is.
struct Place {
    block: BlockId,
    start: u64,
    is_variable: bool,
}

#[inline(never)]
fn find(graph: &LinkGraph, places: &Places, block: BlockId) -> Place {
    let start = graph.block_address(block, places).value();
    Place { block, start, is_variable: graph.blocks[block.index()].role == Role::ThreadLocal }
}
