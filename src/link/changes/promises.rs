//! What the unit of a link has promised to its dylib, and whether a changed graph still keeps it (ORC: a
//! `MaterializationResponsibility` must define exactly its symbols).
//!
//! | after a hook | what follows |
//! |---|---|
//! | a promised symbol keeps its name and is visible | its new place counts |
//! | it has another name, is local, or is gone, and another visible definition has its name | that one counts |
//! | the same, and no definition has its name | refused |
//! | what has its name is hidden, no code, smaller data, or differs in being thread-local | refused |
//! | a visible definition whose name is not promised, in `prepare` | the layer claims the name after this phase |
//! | the same, strong, in `pruned` | refused, because other objects would not find it |
//!
//! The promise of a name that the layer claimed is kept like the others.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{SegmentKind, pair, sort_by_number};
use crate::error::Result;
use crate::link::change_record::{ChangeRecord, ClaimedDefinition, OriginalSymbol, Promise};
use crate::link::claim::is_private;
use crate::link::graph::{Binding, Definition, GraphSymbol, LinkGraph, Role, SymbolIndex};

/// A visible definition that plugins added and that the unit has not promised.
pub(crate) struct AddedDefinition {
    pub(crate) symbol: SymbolIndex,
    pub(crate) is_weak: bool,
    pub(crate) is_exported: bool,
    pub(crate) is_code: bool,
    pub(crate) is_thread_local: bool,
}

/// What a visible definition whose name is not promised is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpromised {
    /// The layer can still claim the name.
    Claimed,
    /// The layer claims no name after this hook, so a strong definition is refused.
    Refused,
}

impl LinkGraph {
    /// The symbol that keeps a promise.
    #[inline]
    pub(crate) fn fulfilment_of(&self, promised: SymbolIndex) -> SymbolIndex {
        let changes = self.changes.as_ref();
        changes.and_then(|changes| changes.fulfilled.get(&promised)).copied().unwrap_or(promised)
    }

    /// The symbol of a name that the layer has claimed for a plugin.
    pub(crate) fn claimed_for_plugin(&self, name: &str) -> Option<SymbolIndex> {
        Some(self.changes.as_ref()?.claimed.get(name)?.fulfilled)
    }

    /// Says that the unit has promised a definition which a plugin added.
    pub(crate) fn promise_added(&mut self, added: &AddedDefinition) {
        let AddedDefinition { symbol, is_exported, .. } = *added;
        let (name, original) = (Box::from(self.symbol_name(symbol)), self.original(symbol));
        let promise = Promise { symbol, is_exported };
        self.record().claimed.insert(name, ClaimedDefinition { promise, original, fulfilled: symbol });
    }

    /// The visible definitions that plugins added and that the unit has not promised.
    pub(crate) fn added_definitions(&self) -> Vec<AddedDefinition> {
        let Some(changes) = &self.changes else { return Vec::new() };
        let claimed = changes.claimed.values().map(|claimed| claimed.fulfilled);
        let fulfilments: FxHashSet<SymbolIndex> = changes.fulfilled.values().copied().chain(claimed).collect();
        let is_added = |index: &SymbolIndex| {
            let is_new = changes.symbols.get(index).is_some_and(|original| !self.is_as_before(*index, original));
            is_new && !fulfilments.contains(index) && self.is_visible_definition(*index)
        };
        let mut added: Vec<SymbolIndex> = changes.symbols.keys().copied().filter(is_added).collect();
        sort_by_number(&mut added, SymbolIndex::number);
        added.into_iter().map(|symbol| self.added_definition(symbol)).collect()
    }

    /// Finds what keeps each promise after a hook. `promises` are those of the unit, without what plugins added.
    ///
    /// # Errors
    /// [`LinkFault::InvalidGraph`](crate::error::LinkFault::InvalidGraph): a promise that nothing keeps, or a definition
    /// that no other object would find.
    pub(crate) fn keep_promises(&mut self, promises: &[Promise], unpromised: Unpromised) -> Result<()> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let by_name = self.changed_definitions(changes);
        let mut fulfilled = FxHashMap::default();
        for promise in promises {
            let Some(original) = changes.symbols.get(&promise.symbol) else { continue };
            fulfilled.insert(promise.symbol, self.find_fulfilment(promise, original, &by_name)?);
        }
        let by_plugin = changes.claimed.iter().map(|(name, ClaimedDefinition { promise, original, .. })| {
            Ok((name.clone(), self.find_fulfilment(promise, original, &by_name)?))
        });
        let by_plugin = by_plugin.collect::<Result<Vec<_>>>()?;
        let changes = self.record();
        changes.fulfilled = fulfilled;
        for (name, symbol) in by_plugin {
            changes.claimed.entry(name).and_modify(|claimed| claimed.fulfilled = symbol);
        }
        if unpromised == Unpromised::Claimed {
            return Ok(());
        }
        match self.added_definitions().into_iter().find(|added| !added.is_weak) {
            Some(added) => self.refuse_symbol(
                added.symbol,
                "is visible and was not promised, so no other object would find it: add it in the hook `prepare`, or \
                 make it local",
            ),
            None => Ok(()),
        }
    }

    /// The symbol that keeps a promise.
    fn find_fulfilment(
        &self,
        promise: &Promise,
        original: &OriginalSymbol,
        by_name: &FxHashMap<&[u8], SymbolIndex>,
    ) -> Result<SymbolIndex> {
        let name = self.name_of(&original.name);
        let keeps_name = self.name_bytes(promise.symbol) == name && self.is_visible_definition(promise.symbol);
        let found = if keeps_name { Some(promise.symbol) } else { by_name.get(name).copied() };
        let Some(found) = found else {
            let name = String::from_utf8_lossy(name);
            let problem = format!(
                "was promised as `{name}`, and no visible definition has this name any more: keep it, or give the name \
                 to another definition"
            );
            return self.refuse_symbol(promise.symbol, &problem);
        };
        match self.broken_promise(promise, original, found) {
            Some(problem) => self.refuse_symbol(found, &problem),
            None => Ok(found),
        }
    }

    /// The visible definitions among the changed symbols, by name. Of several, a strong one counts, or else the first.
    fn changed_definitions(&self, changes: &ChangeRecord) -> FxHashMap<&[u8], SymbolIndex> {
        let visible = changes.symbols.keys().copied().filter(|index| self.is_visible_definition(*index));
        let mut visible: Vec<SymbolIndex> = visible.collect();
        sort_by_number(&mut visible, |index| pair(self.symbols[index.index()].binding == Binding::Weak, index.0));
        let mut by_name = FxHashMap::default();
        for index in visible {
            by_name.entry(self.name_bytes(index)).or_insert(index);
        }
        by_name
    }

    /// Why a definition does not keep a promise.
    fn broken_promise(&self, promise: &Promise, original: &OriginalSymbol, found: SymbolIndex) -> Option<String> {
        let symbol = &self.symbols[found.index()];
        let (is_code, is_thread_local) = (self.is_in_code(symbol), self.is_in_thread_local_block(symbol));
        // The visibility `STV_PROTECTED` is hidden here and exported there.
        let lost_export = promise.is_exported && symbol.is_hidden && !original.is_hidden;
        let is_moved_to_data = original.is_code && !is_code && matches!(symbol.definition, Definition::Block(..));
        let problem = match () {
            () if lost_export => "was promised to other dylibs, and is hidden now",
            () if !promise.is_exported && !symbol.is_hidden => {
                "was promised as hidden, so other dylibs would not find it: it cannot be exported"
            }
            () if original.is_thread_local != is_thread_local => {
                "was promised as a thread-local variable and is none now, or the reverse"
            }
            () if is_moved_to_data => "was promised as code, and is in a block that is none",
            () if !original.is_code && !is_code && symbol.size < original.size => {
                return Some(format!(
                    "has {:#x} bytes, and {:#x} bytes were promised, which other objects may use",
                    symbol.size, original.size
                ));
            }
            () => return None,
        };
        Some(problem.to_string())
    }

    /// What a symbol is now.
    pub(super) fn original(&self, index: SymbolIndex) -> OriginalSymbol {
        let symbol = &self.symbols[index.index()];
        OriginalSymbol {
            name: symbol.name.clone(),
            is_visible: self.is_visible_definition(index),
            is_hidden: symbol.is_hidden,
            is_code: self.is_in_code(symbol),
            is_thread_local: self.is_in_thread_local_block(symbol),
            size: symbol.size,
        }
    }

    /// Whether the object itself defines the symbol for others under this name.
    fn is_as_before(&self, index: SymbolIndex, original: &OriginalSymbol) -> bool {
        original.is_visible && self.name_bytes(index) == self.name_of(&original.name)
    }

    /// Whether other objects may see a definition.
    fn is_visible_definition(&self, index: SymbolIndex) -> bool {
        let symbol = &self.symbols[index.index()];
        symbol.binding != Binding::Local
            && matches!(symbol.definition, Definition::Block(..) | Definition::Absolute(_))
            && !is_private(self.name_bytes(index))
    }

    fn is_in_code(&self, symbol: &GraphSymbol) -> bool {
        matches!(symbol.definition, Definition::Block(block, _) if self.blocks[block.index()].pool == SegmentKind::Code)
    }

    fn is_in_thread_local_block(&self, symbol: &GraphSymbol) -> bool {
        matches!(symbol.definition, Definition::Block(block, _) if self.blocks[block.index()].role == Role::ThreadLocal)
    }

    fn added_definition(&self, symbol: SymbolIndex) -> AddedDefinition {
        let added = &self.symbols[symbol.index()];
        AddedDefinition {
            symbol,
            is_weak: added.binding == Binding::Weak,
            is_exported: !added.is_hidden,
            is_code: self.is_in_code(added),
            is_thread_local: self.is_in_thread_local_block(added),
        }
    }
}
