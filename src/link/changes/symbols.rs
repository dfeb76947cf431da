//! Symbols: added, renamed, removed, with another scope or another definition.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::link::builder::{NewSymbol, SymbolScope};
use crate::link::change_record::{OriginalSymbol, RemovedSymbol};
use crate::link::graph::{Binding, BlockId, Definition, GraphSymbol, LinkGraph, SymbolIndex};

impl LinkGraph {
    /// Adds a definition.
    ///
    /// Other objects find a visible definition in two cases. If the unit has promised the name, and the symbol that had it is
    /// renamed or local now, they find this definition. Edges of the object itself still lead to the old symbol. If the name
    /// is new, the unit claims it after the hook [`prepare`](crate::layer::LinkHooks::prepare) of all plugins. The link fails
    /// if the definition is strong and the dylib has the name already. In a later hook, a strong definition with a new name
    /// is refused.
    ///
    /// The link is refused after the hook for a place outside of a block.
    ///
    /// ```
    /// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
    /// use std::sync::Arc;
    ///
    /// use jittison::base::SegmentKind;
    /// use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
    /// use jittison::link::{Edge, EdgeKind, LinkGraph, NewSymbol, SymbolScope};
    /// use jittison::{Error, Jit};
    ///
    /// /// Puts code in front of `add`. Other objects call that code, which jumps to the function.
    /// struct Intercept;
    ///
    /// impl LinkPlugin for Intercept {
    ///     fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
    ///         Some(Box::new(Intercept))
    ///     }
    /// }
    ///
    /// impl LinkHooks for Intercept {
    ///     fn prepare(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
    ///         let Some((add, _)) = graph.symbols().find(|(symbol, _)| graph.symbol_name(*symbol) == "add") else {
    ///             return Ok(());
    ///         };
    ///         graph.set_scope(add, SymbolScope::Local, false)?;
    ///         // nop; jmp add
    ///         let code = vec![0x90, 0xe9, 0, 0, 0, 0];
    ///         let edge = Edge { offset: 2, kind: EdgeKind::Branch32, symbol: add, addend: -4 };
    ///         let block = graph.add_block(".text.intercept", SegmentKind::Code, code, 16, &[edge]);
    ///         graph.add_symbol(NewSymbol::function("add", block, 0).with_size(6));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let jit = Jit::new()?;
    /// jit.layer().add_plugin(Arc::new(Intercept));
    /// jit.link_object(&jit.main_dylib().create_tracker()?, "add.o", ADD)?;
    /// // Safety: the function has this signature, and all that was added may run.
    /// let add = unsafe { jit.lookup::<extern "C" fn(i64, i64) -> i64>("add")? };
    /// assert_eq!(add.call(40, 2), 42);
    /// # Ok(()) }
    /// ```
    pub fn add_symbol(&mut self, symbol: NewSymbol<'_>) -> SymbolIndex {
        let NewSymbol { name, definition, size, scope, is_weak, .. } = symbol;
        let (binding, is_hidden) = (scope.binding(is_weak), scope != SymbolScope::Exported);
        self.add_new(name, definition, size, binding, is_hidden)
    }

    /// Adds a global external. The link looks it up if some edge uses it, and fails without a definition.
    pub fn add_external(&mut self, name: &str) -> SymbolIndex {
        self.add_new(name, Definition::External, 0, Binding::Global, false)
    }

    /// As [`add_external`](Self::add_external), but the address is null without a definition (a weak reference).
    pub fn add_weak_external(&mut self, name: &str) -> SymbolIndex {
        self.add_new(name, Definition::External, 0, Binding::Weak, false)
    }

    /// Adds a local symbol at `offset` bytes in a block. The name may be empty. In a block that was dropped it has no
    /// address: see [`define`](Self::define).
    pub fn add_local(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolIndex {
        self.add_new(name, Definition::Block(block, offset), 0, Binding::Local, true)
    }

    /// Adds a local symbol with a fixed address, which need not be in this link.
    pub fn add_local_absolute(&mut self, name: &str, address: ExecutorAddr) -> SymbolIndex {
        self.add_new(name, Definition::Absolute(address.value()), 0, Binding::Local, true)
    }

    /// Adds a weak definition at `offset` bytes in a block, visible to other objects.
    ///
    /// After the hook `prepare` of all plugins, the object layer claims the name. If another definition of the name counts,
    /// the symbol becomes an external, as a weak definition of the object itself does. In a block that was dropped it has
    /// no address, and the name is not claimed: see [`define`](Self::define).
    pub fn add_weak(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolIndex {
        self.add_new(name, Definition::Block(block, offset), 0, Binding::Weak, false)
    }

    /// Defines an external for this link only. The symbol becomes local: it is not looked up, and other objects do not
    /// see it. A definition in a block that was dropped is [`Definition::Nowhere`]: the link fails if a block refers to
    /// it, and the error names the symbol.
    pub fn define(&mut self, symbol: SymbolIndex, definition: Definition) {
        if let Err(error) = self.changeable_symbol(symbol) {
            return self.note_error(&error);
        }
        if matches!(definition, Definition::External | Definition::Nowhere) {
            return self.note_error(&self.symbol_error(symbol, "has no address there, so that is no definition"));
        }
        let Some(definition) = self.noted_definition(definition) else { return };
        self.record_symbol(symbol);
        self.set_definition(symbol, definition);
    }

    /// Gives a symbol another name. A renamed external is looked up by the new name. A definition that the unit has
    /// promised keeps its name, unless another definition takes it: see [`add_symbol`](Self::add_symbol).
    ///
    /// # Errors
    /// For a position of another graph, a removed symbol, and a name that no other object could use.
    pub fn rename(&mut self, symbol: SymbolIndex, name: &str) -> Result<()> {
        self.changeable_symbol(symbol)?;
        if name.contains('\0') || name.is_empty() && self.symbols[symbol.index()].binding != Binding::Local {
            return self.refuse_symbol(symbol, &format!("cannot have the name {name:?}"));
        }
        self.record_symbol(symbol);
        self.rename_symbol(symbol, name);
        Ok(())
    }

    /// Sets who can refer to a symbol, and whether another definition may replace it. A local symbol cannot be weak.
    ///
    /// A definition that becomes visible is treated as one that is [added](Self::add_symbol). A hidden external is looked
    /// up in the dylib of the object only. The address of a weak external is null without a definition.
    ///
    /// # Errors
    /// For a position of another graph, a symbol without a definition or without a name, and a local external.
    pub fn set_scope(&mut self, symbol: SymbolIndex, scope: SymbolScope, is_weak: bool) -> Result<()> {
        self.changeable_symbol(symbol)?;
        let definition = self.definition(symbol);
        match scope {
            _ if definition == Definition::Nowhere => {
                return self.refuse_symbol(symbol, "has no definition, so it has no scope");
            }
            SymbolScope::Local if definition == Definition::External => {
                return self.refuse_symbol(symbol, "is defined elsewhere, so it cannot be local");
            }
            SymbolScope::Hidden | SymbolScope::Exported if self.symbol_name(symbol).is_empty() => {
                return self.refuse_symbol(symbol, "has no name by which others could refer to it");
            }
            _ => {}
        }
        self.record_symbol(symbol);
        let changed = &mut self.symbols[symbol.index()];
        (changed.binding, changed.is_hidden) = (scope.binding(is_weak), scope != SymbolScope::Exported);
        self.include_in_globals(symbol);
        Ok(())
    }

    /// Moves a symbol: edges that refer to it lead to the new place. The symbol keeps its name and scope. With
    /// [`Definition::External`], the link looks the name up. `size` is in bytes.
    ///
    /// # Errors
    /// For a position of another graph, a place outside of a block or in a dropped one, and [`Definition::Nowhere`].
    pub fn redefine(&mut self, symbol: SymbolIndex, definition: Definition, size: u64) -> Result<()> {
        self.changeable_symbol(symbol)?;
        match definition {
            Definition::Block(block, offset) => {
                let target = self.live_block(block)?;
                if offset.checked_add(size).is_none_or(|end| end > target.size) {
                    let problem = format!("cannot have {size} bytes there: the block has {} bytes", target.size);
                    return Err(self.error_at(block, offset, symbol, &problem));
                }
            }
            Definition::Absolute(_) => {}
            Definition::External if self.name_bytes(symbol).is_empty() => {
                return self.refuse_symbol(symbol, "has no name that could be looked up");
            }
            Definition::External => {}
            Definition::Nowhere => return self.refuse_symbol(symbol, "cannot lose its definition: remove it"),
        }
        self.record_symbol(symbol);
        if definition == Definition::External {
            self.make_external(symbol);
            self.include_in_globals(symbol);
        }
        let changed = &mut self.symbols[symbol.index()];
        (changed.definition, changed.size) = (definition, size);
        Ok(())
    }

    /// Removes a symbol. The link is refused if an edge still refers to it after the hook, or if the unit has promised it
    /// and no other definition has its name.
    ///
    /// # Errors
    /// For a position of another graph, and a symbol that is removed already.
    pub fn remove_symbol(&mut self, symbol: SymbolIndex) -> Result<()> {
        self.changeable_symbol(symbol)?;
        self.record_symbol(symbol);
        self.set_definition(symbol, Definition::Nowhere);
        let changes = self.record();
        changes.removed.insert(symbol, RemovedSymbol::Other);
        changes.unchecked.has_removed = true;
        Ok(())
    }

    fn add_new(
        &mut self,
        name: &str,
        definition: Definition,
        size: u64,
        binding: Binding,
        is_hidden: bool,
    ) -> SymbolIndex {
        if definition == Definition::External {
            self.external_prefixes.insert(name.as_bytes());
        }
        let definition = self.noted_definition(definition).map_or(Definition::Nowhere, |known| self.in_memory(known));
        let name = self.synthetic.add_name(name);
        let symbol = self.push_symbol(GraphSymbol { name, definition, size, binding, is_hidden });
        self.record().add_symbol(symbol, OriginalSymbol::NEW);
        symbol
    }

    /// A definition whose block is in the graph. Notes any other.
    fn noted_definition(&mut self, definition: Definition) -> Option<Definition> {
        let Definition::Block(block, offset) = definition else { return Some(definition) };
        let problem = match self.blocks.get(block.index()) {
            Some(target) if offset <= target.size => return Some(definition),
            Some(target) => format!("a symbol is past the end of the block, which has {:#x} bytes", target.size),
            None => format!("block {} is not in this graph", block.index()),
        };
        self.note(self.invalid(block, offset, problem));
        None
    }

    /// Refuses positions that no plugin may change.
    fn changeable_symbol(&self, symbol: SymbolIndex) -> Result<()> {
        let is_known = (1..self.symbols.len()).contains(&symbol.index());
        let is_removed = || self.changes.as_ref().is_some_and(|changes| changes.removed.contains_key(&symbol));
        match (is_known, is_known && is_removed()) {
            (false, _) => self.refuse_symbol(symbol, "is not in this graph"),
            (true, true) => self.refuse_symbol(symbol, "was removed"),
            (true, false) => Ok(()),
        }
    }

    /// Makes the searches over symbols that are not local find this one.
    fn include_in_globals(&mut self, symbol: SymbolIndex) {
        if self.symbols[symbol.index()].binding != Binding::Local {
            self.first_global = self.first_global.min(symbol.0);
        }
    }

    /// The symbols of removed blocks have no place.
    pub(super) fn remove_symbols_of_removed_blocks(&mut self) {
        let is_lost = |symbol: &GraphSymbol| match symbol.definition {
            Definition::Block(block, _) => self.blocks[block.index()].is_dropped.then_some(block),
            _ => None,
        };
        let lost: Vec<(SymbolIndex, BlockId)> =
            self.symbols().filter_map(|(index, symbol)| Some((index, is_lost(symbol)?))).collect();
        for (symbol, block) in lost {
            let how = match self.blocks[block.index()].pool {
                SegmentKind::Code => RemovedSymbol::WithCode,
                _ => RemovedSymbol::Other,
            };
            self.record_symbol(symbol);
            self.set_definition(symbol, Definition::Nowhere);
            self.record().removed.insert(symbol, how);
        }
    }
}
