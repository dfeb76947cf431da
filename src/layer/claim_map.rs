//! [`ClaimMap`]: which symbol of an object's graph defines each symbol that the object claims.

use crate::base::{ExecutorAddr, Name, RecycledVec, impl_recycle};
use crate::layer::hidden_names::HiddenDeclarations;
use crate::layer::section_table::Registration;
use crate::layer::symbol_set::SymbolSet;
use crate::link::{PlacedLink, Promise, SymbolIndex};
use crate::session::{ClaimedSymbol, SymbolFlags};

/// Maps the symbols that an object claims to its own symbol table. Used after the names have moved to the dylib's table.
pub(super) struct ClaimMap {
    pub(super) numbers: SymbolNumbers,
    /// Number of symbols that the object claims.
    pub(super) count: usize,
    /// Whether the object claims all its definitions.
    pub(super) is_complete: bool,
    /// Sequence number of the object in its dylib.
    pub(super) sequence: u64,
    /// In a box, because few objects have sections whose bounds may be requested.
    pub(super) sections: Option<Box<SectionClaim>>,
    /// The hidden weak names of an object.
    pub(super) hidden: Option<Box<HiddenDeclarations>>,
}

/// The claim of an object with sections whose bounds may be requested.
pub(super) struct SectionClaim {
    /// The symbol that stands for these sections.
    pub(super) anchor: Name,
    /// The registration of an object that is added.
    pub(super) registration: Option<Box<Registration>>,
}

/// How the number of a claimed symbol leads to the object's symbol table.
pub(super) enum SymbolNumbers {
    /// The number is the index in the object's symbol table.
    InSymbolTable,
    /// The number is a position in this list. The list has no entry for the symbol that stands for initialisers.
    Listed(RecycledVec<ObjectSymbol>),
}

/// A symbol in the object's symbol table.
#[derive(Clone, Copy)]
pub(super) struct ObjectSymbol {
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) index: SymbolIndex,
}

impl_recycle!(ObjectSymbol);

impl ClaimMap {
    /// The claimed symbols, by their indices in the object's symbol table. `None` if all definitions are claimed.
    pub(super) fn claimed_set(&self, symbols: &[ClaimedSymbol]) -> Option<SymbolSet> {
        if self.is_complete && symbols.len() == self.count {
            return None;
        }
        let indices = || symbols.iter().filter_map(|claimed| self.index_of(claimed));
        let mut set = SymbolSet::up_to(indices().max());
        set.insert_all(indices());
        Some(set)
    }

    /// The index of a claimed symbol in the object's symbol table. `None` for a symbol that the object does not define.
    pub(super) fn index_of(&self, claimed: &ClaimedSymbol) -> Option<SymbolIndex> {
        let number = claimed.number?;
        match &self.numbers {
            SymbolNumbers::InSymbolTable => Some(SymbolIndex(number)),
            SymbolNumbers::Listed(list) => list.get(number as usize).map(|symbol| symbol.index),
        }
    }

    /// The address of a claimed symbol that is neither the object's nor a plugin's. `None` unless it is the anchor.
    pub(super) fn anchor_address(&self, claimed: &ClaimedSymbol) -> Option<ExecutorAddr> {
        let sections = self.sections.as_ref()?;
        (sections.anchor == claimed.name).then_some(ANCHOR_ADDRESS)
    }

    /// The address of a claimed symbol in a graph that plugins have changed.
    #[cold]
    pub(super) fn address_in_changed(&self, placed: &PlacedLink, claimed: &ClaimedSymbol) -> Option<ExecutorAddr> {
        let graph = placed.graph();
        let symbol = match self.index_of(claimed) {
            Some(index) => Some(graph.fulfilment_of(index)),
            None => graph.claimed_for_plugin(claimed.name.as_str()),
        };
        symbol.map_or_else(|| self.anchor_address(claimed), |symbol| placed.definition_address(symbol))
    }

    /// The definitions that the unit has promised, without what plugins added.
    pub(super) fn promises(&self, claimed: &[ClaimedSymbol]) -> Vec<Promise> {
        let promise = |claimed: &ClaimedSymbol| {
            let is_exported = claimed.flags.contains(SymbolFlags::EXPORTED);
            Some(Promise { symbol: self.index_of(claimed)?, is_exported })
        };
        claimed.iter().filter(|claimed| claimed.has_address()).filter_map(promise).collect()
    }
}

/// The address of every anchor. Nothing is there, and nothing reads it.
const ANCHOR_ADDRESS: ExecutorAddr = ExecutorAddr::new(1);
