//! Aliases and re-exports: names that stand for other symbols, of the same dylib or of another one.
//!
//! An alias has the address of its aliasee, and flags of its own. It is absolute if its aliasee is. It depends on the aliasee. So it becomes ready after
//! it, and keeps its memory, like code that refers to it. A chain of aliases that leads back to its start is an error.
//!
//! Only the aliases that are looked up are resolved: a lookup takes a part of the unit for each alias that it asks for
//! (`lookup/lazy_unit.rs`). The parts share the table of aliasees, so the cost of an alias does not depend on how many were
//! defined with it. An alias of a ready symbol of its own dylib needs no part (`lookup/ready_alias.rs`).
//!
//! The search for rings follows aliases that wait for others. In a chain that is looked up from its end, it follows one.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::generator::DefinitionGenerator;
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::core::materialization::{Aliasee, MaterializationUnit, UnitSymbol};
use crate::session::core::resource_tracker::ResourceTracker;
use crate::session::core::responsibility::MaterializationResponsibility;
use crate::session::lookup::blocking;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::sync::{Arc, thread_local};

/// A name that stands for another one (ORC: an entry of a `SymbolAliasMap`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The new name.
    pub name: Name,
    /// The symbol that the new name stands for.
    pub aliasee: Name,
    /// The flags of the new name, except for [`ABSOLUTE`](SymbolFlags::ABSOLUTE), which it has if its aliasee has it.
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
    /// As [`define`](Self::define). [`ErrorKind::ForeignSession`] when `source` is of another session.
    pub fn reexport(&self, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        source.check_session(&self.core().dylib().session)?;
        let name = format!("re-exports of {}", source.name());
        self.define(AliasUnit::new(name, source.clone(), Visibility::ExportedOnly, aliases))
    }
}

/// Re-exports the symbols of another dylib that are looked up and that a filter accepts (ORC: `ReexportsGenerator`).
pub struct ReexportsGenerator {
    source: JitDylib,
    filter: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl ReexportsGenerator {
    /// A generator that re-exports the symbols of `source` whose names `filter` accepts.
    pub fn new(source: &JitDylib, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> ReexportsGenerator {
        ReexportsGenerator { source: source.clone(), filter: Box::new(filter) }
    }
}

impl DefinitionGenerator for ReexportsGenerator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let mut wanted: Vec<_> = missing.iter().copied().filter(|request| (self.filter)(request.name)).collect();
        let _guard = RecursionGuard::enter(self, &mut wanted);
        if wanted.is_empty() {
            return Ok(());
        }
        self.source.check_session(&dylib.inner().session)?;
        // The generators of the source hear which names are required here. A required name that is not found is no
        // error yet: a later generator or dylib may define it.
        let flags = blocking::flags_if_found(&[(self.source.clone(), Visibility::ExportedOnly)], &wanted)?;
        let alias = |name, flags| Alias { name: Name::new(name), aliasee: Name::new(name), flags };
        let aliases: Vec<Alias> = wanted
            .iter()
            .zip(flags)
            .filter_map(|(request, flags)| Some(alias(request.name, flags?)))
            // Weak, because another thread may re-export the same name at the same time.
            .map(|alias| Alias { flags: alias.flags | SymbolFlags::WEAK, ..alias })
            .collect();
        if aliases.is_empty() { Ok(()) } else { dylib.default_tracker()?.reexport(&self.source, &aliases) }
    }
}

thread_local! {
    /// The names that generators of re-exports are looking up on this thread, with the address of the generator. It has no
    /// destructor, so it works in thread-local destructors of any order; [`RecursionGuard`] frees the list when it is empty.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static IN_PROGRESS: RefCell<ManuallyDrop<Vec<(usize, Name)>>> = RefCell::new(ManuallyDrop::new(Vec::new()));
}

/// Stops endless recursion between dylibs that re-export from each other: a generator that is called for a name while
/// it looks that name up adds nothing. Holds the length of the list before [`enter`](Self::enter).
struct RecursionGuard(usize);

impl RecursionGuard {
    /// Removes from `wanted` the names that `generator` is already looking up, and records the others.
    fn enter(generator: &ReexportsGenerator, wanted: &mut Vec<SymbolRequest<'_>>) -> RecursionGuard {
        let generator = std::ptr::from_ref(generator).addr();
        IN_PROGRESS.with(|in_progress| {
            let mut in_progress = in_progress.borrow_mut();
            let old_len = in_progress.len();
            let is_same = |name: &str, (other, entry): &(usize, Name)| *other == generator && entry.as_str() == name;
            wanted.retain(|request| !in_progress.iter().any(|entry| is_same(request.name, entry)));
            in_progress.extend(wanted.iter().map(|request| (generator, Name::new(request.name))));
            RecursionGuard(old_len)
        })
    }
}

impl Drop for RecursionGuard {
    fn drop(&mut self) {
        IN_PROGRESS.with(|in_progress| {
            let mut in_progress = in_progress.borrow_mut();
            in_progress.truncate(self.0);
            if self.0 == 0 {
                drop(std::mem::take(&mut **in_progress));
            }
        });
    }
}

/// The lazy unit of some aliases of one source, or a part of it.
struct AliasUnit {
    set: Arc<AliasSet>,
    /// Empty for a part.
    symbols: Vec<(Name, SymbolFlags)>,
}

/// What the parts of a unit share.
struct AliasSet {
    unit_name: String,
    source: JitDylib,
    visibility: Visibility,
    aliasees: FxHashMap<Name, Name>,
}

impl AliasUnit {
    fn new(unit_name: String, source: JitDylib, visibility: Visibility, aliases: &[Alias]) -> AliasUnit {
        let symbols = aliases.iter().map(|alias| (alias.name.clone(), alias.flags)).collect();
        let aliasees = aliases.iter().map(|alias| (alias.name.clone(), alias.aliasee.clone())).collect();
        AliasUnit { set: Arc::new(AliasSet { unit_name, source, visibility, aliasees }), symbols }
    }
}

impl AliasSet {
    /// Looks up the aliasee, and resolves and emits the alias, which is the only symbol of `responsibility`.
    fn resolve(&self, responsibility: MaterializationResponsibility, alias: &Name) {
        let Some(aliasee) = self.aliasees.get(alias) else { return };
        if let Err(error) = responsibility.record_alias(alias, self.source.inner(), aliasee) {
            return responsibility.fail(error);
        }
        let order = [(self.source.clone(), self.visibility)];
        let requests = [SymbolRequest::required(aliasee)];
        responsibility.lookup_in(&order, &requests, RequiredState::Resolved, |responsibility, found| {
            let emitted = found.and_then(|mut found| {
                let found = found.pop().ok_or_else(|| Error::other("a lookup lost its only result"))?;
                // Only what has no definition to pin may be absolute: lookups of the alias then pin nothing either.
                if found.symbol.is_none() {
                    responsibility.set_absolute();
                }
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
        &self.set.unit_name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn part(&self, _: UnitSymbol<'_>) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(AliasUnit { set: self.set.clone(), symbols: Vec::new() }))
    }

    fn aliasee(&self, symbol: UnitSymbol<'_>) -> Option<Aliasee<'_>> {
        let name = self.set.aliasees.get(symbol.0)?;
        Some(Aliasee { source: &self.set.source, visibility: self.set.visibility, name })
    }

    /// Resolves the only symbol of `responsibility`: of several aliases, each lookup takes a part.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        if let [alias] = responsibility.symbols() {
            let alias = alias.name.clone();
            self.set.resolve(responsibility, &alias);
        }
    }
}

impl MaterializationResponsibility {
    /// Makes the symbols absolute. They have no address yet.
    fn set_absolute(&self) {
        let mut state = self.core.dylib().state.lock();
        self.claimed.iter().for_each(|claimed| state.table.set_absolute(claimed.id));
    }

    /// Records in the table what an alias stands for. Fails if the chain of aliases leads back to it.
    fn record_alias(&self, alias: &Name, source: &Arc<DylibInner>, aliasee: &Name) -> Result<()> {
        if let Some(symbol) = self.symbol(alias) {
            let mut state = self.core.dylib().state.lock();
            state.table.set_alias(symbol.id, (Arc::downgrade(source), aliasee.clone()));
        }
        // Every alias is recorded before its chain is walked. So of the aliases that close a cycle, the one that is
        // recorded last sees the entire cycle.
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
                // A symbol with an address waits for nothing, so it ends the chain.
                let waits = symbol.filter(|symbol| symbol.state < SymbolState::Resolved);
                waits.and_then(|symbol| state.table.alias_of(symbol).cloned())
            };
            let Some((next_dylib, next_name)) = next else { return Ok(()) };
            let Some(next_dylib) = next_dylib.upgrade() else { return Ok(()) };
            (dylib, name) = (next_dylib, next_name);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, sized, steps_of};
    use crate::session::ExecutionSession;

    /// Defines `a0` with an address, and `a1`, `a2`, … in one unit, each an alias of the name that `aliasee_of` gives.
    fn aliases(count: usize, aliasee_of: impl Fn(usize) -> usize) -> (ExecutionSession, JitDylib) {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let tracker = dylib.create_tracker().unwrap();
        let code = tracker.define_materializing("code", [(Name::new("a0"), SymbolFlags::EXPORTED)]).unwrap();
        code.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        code.notify_emitted(Vec::new()).unwrap();
        let name = |number| Name::new(&format!("a{number}"));
        let alias =
            |number| Alias { name: name(number), aliasee: name(aliasee_of(number)), flags: SymbolFlags::EXPORTED };
        dylib.default_tracker().unwrap().define_aliases(&(1..=count).map(alias).collect::<Vec<_>>()).unwrap();
        drop(tracker);
        (session, dylib)
    }

    /// Asserts that the steps grow by the same number for each element: `steps` is measured at four sizes.
    #[track_caller]
    fn assert_linear(most_per_element: usize, steps: impl Fn(usize) -> usize) {
        let (small, large) = (sized(100, 4), sized(1000, 8));
        let [first, second, third, fourth] = [small, small + 1, large, large + 1].map(steps);
        assert_eq!(second - first, fourth - third, "one more element costs the same among {small} and {large}");
        assert_eq!(third - first, (second - first) * (large - small), "and so do all elements in between");
        assert!(second - first <= most_per_element, "{} steps", second - first);
    }

    #[test]
    fn a_lookup_of_one_alias_takes_the_same_steps_however_many_were_defined_with_it() {
        assert_linear(2, |count| {
            let (_session, dylib) = aliases(count, |_| 0);
            steps_of(|| {
                for number in 1..=count {
                    assert_eq!(dylib.lookup_address(&format!("a{number}")).unwrap(), ExecutorAddr::new(8));
                }
            })
        });
    }

    #[test]
    fn an_alias_among_many_in_one_lookup_takes_the_same_steps_as_among_few() {
        assert_linear(2, |count| {
            let (_session, dylib) = aliases(count, |_| 0);
            let names: Vec<_> = (1..=count).map(|number| format!("a{number}")).collect();
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
            steps_of(|| {
                let found = dylib.lookup(&requests, RequiredState::Ready).unwrap();
                assert!(found.iter().all(|found| found.address == ExecutorAddr::new(8)));
            })
        });
    }

    #[test]
    fn an_alias_in_a_chain_takes_the_same_steps_however_long_the_chain_is() {
        assert_linear(6, |count| {
            let (_session, dylib) = aliases(count, |number| number - 1);
            let last = format!("a{count}");
            steps_of(|| assert_eq!(dylib.lookup_address(&last).unwrap(), ExecutorAddr::new(8)))
        });
    }

    #[test]
    fn an_alias_that_is_ready_at_once_keeps_its_aliasee() {
        let (_session, dylib) = aliases(3, |_| 0);
        let tracker = dylib.create_tracker().unwrap();
        let kept = Alias { name: Name::new("kept"), aliasee: Name::new("a0"), flags: SymbolFlags::EXPORTED };
        tracker.define_aliases(&[kept]).unwrap();
        assert!(tracker.dependencies().is_empty());
        dylib.lookup_address("kept").unwrap();
        assert_eq!(tracker.dependencies().len(), 1);
    }
}
