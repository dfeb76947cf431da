//! [`Targets`]: where every symbol of a link is, worked out once for all who ask: whoever makes its definitions known, and
//! every edge that refers to it.

use crate::base::{ExecutorAddr, RecycledVec, impl_recycle};
use crate::link::fixup::FoundExternal;
use crate::link::graph::{Block, Definition, LinkGraph, Places, Role, SymbolIndex};

#[derive(Default)]
pub(crate) struct Targets {
    /// By symbol.
    all: RecycledVec<Target>,
    /// By block.
    places: RecycledVec<Place>,
}

impl_recycle!(Target, Place);

/// Where a symbol is: nowhere, to begin with.
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
        let Targets { all, places: by_block } = self;
        by_block.make_room(graph.blocks.len());
        by_block.extend(graph.blocks.iter().map(|block| Place::of(block, places)));
        all.make_room(graph.symbols.len());
        all.extend(graph.symbols.iter().map(|symbol| match symbol.definition {
            Definition::Block(block, offset) => {
                let Place { start, is_variable } = by_block[block.index()];
                Target::own(start.wrapping_add(offset), is_variable)
            }
            Definition::Absolute(value) => Target::own(value, false),
            Definition::External | Definition::Nowhere => Target::default(),
        }));
    }

    /// Forgets all of them.
    pub(crate) fn empty(&mut self) {
        self.all.empty();
        self.places.empty();
    }

    /// Enters what was found for `externals`, in order; those that are not there are null.
    pub(crate) fn bind(&mut self, externals: impl Iterator<Item = SymbolIndex>, found: &[FoundExternal]) {
        for (number, (symbol, found)) in externals.zip(found).enumerate() {
            let address = found.address.value();
            let is_plain = found.thread_local.is_none() && is_near_zero(address);
            self.all[symbol.index()] = Target { address, external: number as u32 + 1, is_plain };
        }
    }

    /// The address of a symbol if that is all there is to it.
    #[inline]
    pub(crate) fn plain(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        self.all.get(symbol.index())?.plain().map(ExecutorAddr::new)
    }

    /// By symbol.
    pub(crate) fn all(&self) -> &[Target] {
        &self.all
    }

    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.all.get(symbol.index()).map_or(ExecutorAddr::NULL, |target| ExecutorAddr::new(target.address))
    }

    /// Which of the externals it is.
    pub(crate) fn external(&self, symbol: SymbolIndex) -> Option<usize> {
        Some(self.all.get(symbol.index())?.external.checked_sub(1)? as usize)
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

/// Where a block is.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    is_variable: bool,
}

impl Place {
    #[inline]
    fn of(block: &Block, places: &Places) -> Place {
        Place { start: places.address(block).value(), is_variable: block.role == Role::TlsIndex }
    }
}
