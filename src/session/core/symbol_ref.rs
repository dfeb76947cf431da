//! [`SymbolRef`]: a reference to one definition, not to a name. [`LookupResult`]: what a lookup found.
//! [`DependencyRef`]: a borrowed `SymbolRef`, for emission.

use std::fmt;

use crate::base::{ExecutorAddr, Name};
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::symbols::symbol_table::Found;
use crate::session::types::ids::DylibId;
use crate::session::types::symbol::{SymbolFlags, SymbolId};
use crate::sync::Arc;

/// A reference to one definition of a name. If the symbol is removed and its name is defined again, this still refers
/// to the old definition.
#[derive(Clone)]
pub struct SymbolRef {
    pub(crate) dylib: Arc<DylibInner>,
    pub(crate) id: SymbolId,
    /// For errors; the table entry may be gone.
    pub(crate) name: Name,
}

impl SymbolRef {
    /// The dylib of the definition.
    pub(crate) fn dylib(&self) -> JitDylib {
        JitDylib::from_inner(self.dylib.clone())
    }

    /// The size of the definition in bytes. Zero if it is unknown, or if the symbol was removed.
    pub(crate) fn size(&self) -> u64 {
        let state = self.dylib.state.lock();
        state.table.symbol(self.id).map_or(0, |symbol| state.table.size(symbol))
    }

    /// Orders definitions by identity: first the dylib, then the entry.
    pub(crate) fn sort_key(&self) -> (DylibId, SymbolId) {
        (self.dylib.id, self.id)
    }
}

impl fmt::Debug for SymbolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of `{}`", self.name, self.dylib.name)
    }
}

/// The result of a lookup for one name.
#[derive(Debug, Clone)]
pub struct LookupResult {
    /// The address; null when the symbol is optional and was not found.
    pub address: ExecutorAddr,
    /// The symbol's flags.
    pub flags: SymbolFlags,
    /// The definition, for the dependencies of
    /// [`notify_emitted`](crate::session::MaterializationResponsibility::notify_emitted). `None` for an absolute
    /// symbol, and for one that was not found.
    pub symbol: Option<SymbolRef>,
}

impl LookupResult {
    pub(crate) const MISSING: LookupResult =
        LookupResult { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, symbol: None };
}

pub(crate) type LookupResults = Vec<LookupResult>;

impl Found<'_> {
    pub(crate) fn result(&self, dylib: &Arc<DylibInner>) -> LookupResult {
        self.result_in(Some(dylib))
    }

    /// The result with the definition only if `dylib` is given.
    pub(crate) fn result_in(&self, dylib: Option<&Arc<DylibInner>>) -> LookupResult {
        // An absolute symbol has no memory that a removal could reclaim, so code need not depend on it.
        let dylib = dylib.filter(|_| !self.flags.contains(SymbolFlags::ABSOLUTE));
        let symbol = dylib.map(|dylib| SymbolRef { dylib: dylib.clone(), id: self.id, name: self.name.to_name() });
        LookupResult { address: self.address, flags: self.flags, symbol }
    }
}

/// A definition that emitted code depends on, borrowed from a lookup.
#[derive(Clone, Copy)]
pub(crate) struct DependencyRef<'a> {
    pub(crate) dylib: &'a Arc<DylibInner>,
    pub(crate) id: SymbolId,
    /// For errors.
    name: DependencyName<'a>,
    /// Groups the dependencies of one link by dylib: the position of the dylib in the link's search order.
    pub(crate) dylib_index: u32,
}

#[derive(Clone, Copy)]
enum DependencyName<'a> {
    Known(&'a Name),
    /// The name at this position of the lookup.
    ByPosition(&'a NameOf<'a>, u32),
}

/// Maps a position of the lookup to its name.
pub(crate) type NameOf<'a> = dyn Fn(usize) -> Name + 'a;

impl<'a> DependencyRef<'a> {
    /// A definition in `dylib`, named by its position in the lookup.
    #[inline(always)]
    pub(crate) fn by_position(
        dylib: &'a Arc<DylibInner>,
        id: SymbolId,
        name_of: &'a NameOf<'a>,
        position: u32,
        dylib_index: u32,
    ) -> DependencyRef<'a> {
        DependencyRef { dylib, id, name: DependencyName::ByPosition(name_of, position), dylib_index }
    }

    pub(crate) fn of(symbol: &'a SymbolRef) -> DependencyRef<'a> {
        DependencyRef { dylib: &symbol.dylib, id: symbol.id, name: DependencyName::Known(&symbol.name), dylib_index: 0 }
    }

    pub(crate) fn name(self) -> Name {
        match self.name {
            DependencyName::Known(name) => name.clone(),
            DependencyName::ByPosition(name_of, position) => name_of(position as usize),
        }
    }

    pub(crate) fn to_ref(self) -> SymbolRef {
        SymbolRef { dylib: self.dylib.clone(), id: self.id, name: self.name() }
    }
}
