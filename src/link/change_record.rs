//! [`ChangeRecord`]: what plugins have changed in one graph. A graph that no plugin changed has none.
//!
//! The methods in `changes/` write it. The check after each hook reads [`Unchecked`], the object layer reads `fulfilled`
//! and `claimed`, and the verifier of debug builds reads which blocks and symbols differ from the object.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::LinkFault;
use crate::link::content::Text;
use crate::link::edge::{BlockId, SymbolIndex};

/// The changes of all plugins.
#[derive(Default)]
pub(crate) struct ChangeRecord {
    /// Blocks that a plugin added or changed.
    pub(crate) blocks: FxHashSet<BlockId>,
    /// Symbols that a plugin added or changed.
    pub(crate) symbols: FxHashMap<SymbolIndex, OriginalSymbol>,
    /// Symbols that a plugin removed, also those of removed blocks.
    pub(crate) removed: FxHashMap<SymbolIndex, RemovedSymbol>,
    /// By symbol that the unit has promised and a plugin has changed: the symbol that has its name now.
    pub(crate) fulfilled: FxHashMap<SymbolIndex, SymbolIndex>,
    /// Definitions that plugins added and the unit has promised since then, by name.
    pub(crate) claimed: FxHashMap<Box<str>, ClaimedDefinition>,
    /// Blocks that have a fixed place beside another block. Computed when it is first needed.
    pub(crate) adjacent: Option<FxHashSet<BlockId>>,
    /// The symbols of each block. Computed when it is first needed, and dropped when a definition changes.
    pub(crate) symbols_of: Option<FxHashMap<BlockId, Vec<SymbolIndex>>>,
    /// What the hook that runs now has done.
    pub(crate) unchecked: Unchecked,
}

/// A definition that the unit of a link has promised to its dylib.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) symbol: SymbolIndex,
    /// Whether other dylibs see the name.
    pub(crate) is_exported: bool,
}

/// A definition that a plugin added and the unit has promised since then.
#[derive(Debug, Clone)]
pub(crate) struct ClaimedDefinition {
    pub(crate) promise: Promise,
    /// What was promised.
    pub(crate) original: OriginalSymbol,
    /// The symbol that has the name now.
    pub(crate) fulfilled: SymbolIndex,
}

/// What a symbol was before a plugin changed it.
#[derive(Debug, Clone)]
pub(crate) struct OriginalSymbol {
    pub(crate) name: Text,
    /// Whether it was a definition that other objects see.
    pub(crate) is_visible: bool,
    pub(crate) is_hidden: bool,
    /// Whether it was in code.
    pub(crate) is_code: bool,
    pub(crate) is_thread_local: bool,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// How a symbol was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovedSymbol {
    /// With the code that it is in. Unwind and exception tables may still name it, as they name code that was pruned.
    WithCode,
    /// With a block that is no code, or by itself.
    Other,
}

/// Changes that no check has seen.
#[derive(Default)]
pub(crate) struct Unchecked {
    pub(crate) is_any: bool,
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) symbols: Vec<SymbolIndex>,
    /// Whether blocks were removed, so that their symbols have no place.
    pub(crate) has_removed_blocks: bool,
    /// Whether symbols or blocks were removed, so that edges may lead nowhere.
    pub(crate) has_removed: bool,
    /// Whether a block has another size than before, so that symbols and unwind records may be past its end.
    pub(crate) has_resized: bool,
    /// The first wrong use of a method that does not fail.
    pub(crate) fault: Option<LinkFault>,
}

impl ChangeRecord {
    pub(crate) fn add_block(&mut self, block: BlockId) {
        self.blocks.insert(block);
        self.unchecked.blocks.push(block);
        self.unchecked.is_any = true;
    }

    /// Records a symbol before it is changed, or a new one.
    pub(crate) fn add_symbol(&mut self, symbol: SymbolIndex, original: OriginalSymbol) {
        self.symbols.entry(symbol).or_insert(original);
        self.unchecked.symbols.push(symbol);
        self.unchecked.is_any = true;
        self.symbols_of = None;
    }

    pub(crate) fn note(&mut self, fault: LinkFault) {
        self.unchecked.fault.get_or_insert(fault);
        self.unchecked.is_any = true;
    }
}

impl OriginalSymbol {
    /// What a symbol that a plugin adds was.
    pub(crate) const NEW: OriginalSymbol = OriginalSymbol {
        name: Text::Fixed(""),
        is_visible: false,
        is_hidden: false,
        is_code: false,
        is_thread_local: false,
        size: 0,
    };
}
