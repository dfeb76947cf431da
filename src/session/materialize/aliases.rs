//! Aliases and re-exports: names that stand for other symbols, of the same dylib or of another.
//!
//! Only what is asked for is looked up: the unit hands each requested alias on to a responsibility of its own and gives
//! the others back. An alias has its aliasee's address, flags of its own, and depends on the aliasee, so it becomes ready
//! and keeps memory like any code that refers to it. A chain that leads back to its start is an error.

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::generator::DefinitionGenerator;
use crate::session::core::jit_dylib::{DylibInner, JitDylib, Visibility};
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::resource_tracker::ResourceTracker;
use crate::session::lookup::blocking::{self, RequiredState, SymbolRequest};
use crate::session::materialize::responsibility::MaterializationResponsibility;
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::sync::{Arc, thread_local};

/// One name that stands for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The new name.
    pub name: Name,
    /// What it stands for.
    pub aliasee: Name,
    /// Flags of the new name.
    pub flags: SymbolFlags,
}

impl ResourceTracker {
    /// Defines names that stand for symbols of the same dylib, hidden ones included (ORC: `symbolAliases`).
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn define_aliases(&self, aliases: &[Alias]) -> Result<()> {
        self.define(AliasUnit::new("aliases".to_string(), self.dylib(), Visibility::All, aliases))
    }

    /// Defines names that stand for exported symbols of `source` (ORC: `reexports`).
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn reexport(&self, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        let name = format!("re-exports of {}", source.name());
        self.define(AliasUnit::new(name, source.clone(), Visibility::ExportedOnly, aliases))
    }
}

/// Re-exports every symbol of another dylib that is asked for and that a filter lets pass (ORC: `ReexportsGenerator`).
pub struct ReexportsGenerator {
    source: JitDylib,
    filter: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ReexportsGenerator {
    /// A generator of re-exports of `source`.
    pub fn new(source: &JitDylib, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> ReexportsGenerator {
        ReexportsGenerator { source: source.clone(), filter: Box::new(filter) }
    }
}

impl DefinitionGenerator for ReexportsGenerator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let mut wanted: Vec<_> = missing.iter().copied().filter(|request| (self.filter)(request.name)).collect();
        let _asking = RecursionGuard::start(self, &mut wanted);
        if wanted.is_empty() {
            return Ok(());
        }
        // The source's generators are told what is required here, and nothing fails for want of it.
        let flags = blocking::flags_of_those_found(&[(self.source.clone(), Visibility::ExportedOnly)], &wanted)?;
        let alias = |name, flags| Alias { name: Name::new(name), aliasee: Name::new(name), flags };
        let aliases: Vec<Alias> = wanted
            .iter()
            .zip(flags)
            .filter_map(|(request, flags)| Some(alias(request.name, flags?)))
            // Weak, because another thread may be re-exporting the same name now.
            .map(|alias| Alias { flags: alias.flags | SymbolFlags::WEAK, ..alias })
            .collect();
        if aliases.is_empty() { Ok(()) } else { dylib.default_tracker()?.reexport(&self.source, &aliases) }
    }
}

thread_local! {
    /// What this thread is asking generators of re-exports for now, by the generator's address.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static ASKING: RefCell<Vec<(usize, Name)>> = RefCell::new(Vec::new());
}

/// Dylibs may re-export from each other: a generator that is asked for a name while it asks for it has nothing to add.
struct RecursionGuard(usize);

impl RecursionGuard {
    /// Notes that `generator` asks for `wanted`, except for those that it asks for already, which it drops.
    fn start(generator: &ReexportsGenerator, wanted: &mut Vec<SymbolRequest<'_>>) -> RecursionGuard {
        let generator = std::ptr::from_ref(generator).addr();
        ASKING.with(|asking| {
            let mut asking = asking.borrow_mut();
            let before = asking.len();
            let is_asked = |name: &str, (other, asked): &(usize, Name)| *other == generator && asked.as_str() == name;
            wanted.retain(|request| !asking.iter().any(|asked| is_asked(request.name, asked)));
            asking.extend(wanted.iter().map(|request| (generator, Name::new(request.name))));
            RecursionGuard(before)
        })
    }
}

impl Drop for RecursionGuard {
    fn drop(&mut self) {
        ASKING.with(|asking| asking.borrow_mut().truncate(self.0));
    }
}

struct AliasUnit {
    name: String,
    source: JitDylib,
    visibility: Visibility,
    symbols: Vec<(Name, SymbolFlags)>,
    aliasees: Arc<FxHashMap<Name, Name>>,
}

impl AliasUnit {
    fn new(name: String, source: JitDylib, visibility: Visibility, aliases: &[Alias]) -> AliasUnit {
        AliasUnit {
            name,
            source,
            visibility,
            symbols: aliases.iter().map(|alias| (alias.name.clone(), alias.flags)).collect(),
            aliasees: Arc::new(aliases.iter().map(|alias| (alias.name.clone(), alias.aliasee.clone())).collect()),
        }
    }

    /// What is left when `taken` are gone.
    fn without(&self, taken: &[Name], owed: &FxHashSet<&Name>) -> AliasUnit {
        let taken: FxHashSet<&Name> = taken.iter().collect();
        let is_left = |name: &Name| owed.contains(name) && !taken.contains(name);
        AliasUnit {
            name: self.name.clone(),
            source: self.source.clone(),
            visibility: self.visibility,
            symbols: self.symbols.iter().filter(|(name, _)| is_left(name)).cloned().collect(),
            aliasees: self.aliasees.clone(),
        }
    }

    fn resolve(&self, responsibility: MaterializationResponsibility, alias: &Name) {
        let Some(aliasee) = self.aliasees.get(alias) else { return };
        if let Err(error) = responsibility.mark_alias(alias, self.source.inner(), aliasee) {
            return responsibility.fail(error);
        }
        let order = [(self.source.clone(), self.visibility)];
        let requests = [SymbolRequest::required(aliasee)];
        responsibility.lookup_in(&order, &requests, RequiredState::Resolved, |responsibility, found| {
            let emitted = found.and_then(|mut found| {
                let found = found.pop().ok_or_else(|| Error::other("a lookup lost its only result"))?;
                responsibility.notify_resolved(|_| Some(found.address)).map(|()| found.symbol)
            });
            match emitted {
                Ok(aliasee) => drop(responsibility.notify_emitted(aliasee.into_iter().collect())),
                Err(error) => responsibility.fail(error),
            }
        });
    }
}

impl MaterializationUnit for AliasUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, mut responsibility: MaterializationResponsibility) {
        let requested = responsibility.requested_symbols();
        let owed = responsibility.symbols().iter().map(|owed| &owed.name).collect();
        let rest = self.without(&requested, &owed);
        if !rest.symbols.is_empty()
            && let Err(error) = responsibility.replace(rest)
        {
            return responsibility.fail(error);
        }
        for alias in requested {
            // Owed, as it was requested of this very responsibility.
            if let Ok(part) = responsibility.delegate(&[&alias]) {
                self.resolve(part, &alias);
            }
        }
    }
}

impl MaterializationResponsibility {
    /// Notes what an alias stands for, unless that leads back to it.
    fn mark_alias(&self, alias: &Name, source: &Arc<DylibInner>, aliasee: &Name) -> Result<()> {
        if let Some(owed) = self.symbol(alias) {
            let mut state = self.core.dylib().state.lock();
            state.table.set_alias(owed.id, (Arc::downgrade(source), aliasee.clone()));
        }
        // Every alias on the way was marked before its own walk, so of those that close a ring one sees all of it.
        let (mut dylib, mut name) = (source.clone(), aliasee.clone());
        let mut seen = FxHashSet::default();
        loop {
            let is_start = Arc::ptr_eq(&dylib, self.core.dylib()) && name == *alias;
            if is_start || !seen.insert((dylib.id, name.clone())) {
                return Err(ErrorKind::AliasCycle {
                    dylib: self.core.dylib().name.to_string(),
                    symbol: alias.to_string(),
                }
                .into());
            }
            let next = {
                let state = dylib.state.lock();
                let symbol = state.table.find(&name).and_then(|id| state.table.symbol(id));
                // What has an address waits for nothing any more, whatever it stood for.
                let waits = symbol.filter(|symbol| symbol.state < SymbolState::Resolved);
                waits.and_then(|symbol| state.table.alias_of(symbol).cloned())
            };
            let Some((next_dylib, next_name)) = next else { return Ok(()) };
            let Some(next_dylib) = next_dylib.upgrade() else { return Ok(()) };
            (dylib, name) = (next_dylib, next_name);
        }
    }
}
