//! Emission: the code of a responsibility is in place, and its symbols become ready as soon as their dependencies are.
//!
//! Every dependency is checked:
//! - if it is gone, the emission fails;
//! - if it exists, its tracker is pinned;
//! - if it is not ready, the symbols enter the waiting graph (`core/waiting.rs`).
//!
//! The graph is not touched if every dependency is ready and no other group waits for the symbols.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{Name, sort_by_order};
use crate::error::{ErrorKind, Result};
use crate::session::core::deferred_notifications::DeferredNotifications;
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::query::complete;
use crate::session::core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::core::symbol_ref::{DependencyRef, NameOf, SymbolRef};
use crate::session::core::waiting;
use crate::session::lookup::ready_lookup::ReadyLookup;
use crate::session::materialize::materialization_wait::MaterializationWait;
use crate::session::pins::pinned::Pinned;
use crate::session::symbols::symbol_table::Symbol;
use crate::session::types::ids::DylibId;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, seeded_bug};

/// Symbols that are emitted together, and their dependencies (ORC: `SymbolDependenceGroup`).
#[derive(Debug, Clone, Default)]
pub struct DependencyGroup {
    /// The names of the symbols. The responsibility has to define them.
    pub symbols: Vec<Name>,
    /// The definitions that they refer to: from lookups, or, for symbols of the same responsibility, from
    /// [`symbol`](MaterializationResponsibility::symbol).
    pub dependencies: Vec<SymbolRef>,
}

impl MaterializationResponsibility {
    /// The code is in place, and refers to `dependencies`, which [lookups](Self::lookup) have found (ORC:
    /// `notifyEmitted`). The tracker pins the trackers of the dependencies. The symbols become ready as soon as all
    /// dependencies are ready.
    ///
    /// # Errors
    /// When the tracker or a dependency was removed, a dependency is of another session, or a symbol has no address. The
    /// symbols have failed then.
    pub fn notify_emitted(self, dependencies: Vec<SymbolRef>) -> Result<()> {
        self.emit_with(|responsibility, own, notifications| responsibility.emit(own, dependencies, notifications))
    }

    /// As [`notify_emitted`](Self::notify_emitted), with dependencies from [`try_lookup`](Self::try_lookup).
    /// `is_unresolved` says that the symbols are [located](Self::locate) but not resolved yet; then this resolves them
    /// too. Returns a wait if the caller gets the outcome and the symbols are not ready yet.
    pub(crate) fn notify_emitted_with_lookup(
        self,
        found: &ReadyLookup,
        name_of: &NameOf<'_>,
        is_unresolved: bool,
    ) -> Result<Option<MaterializationWait>> {
        self.emit_with(|responsibility, own, notifications| {
            let mut borrowed = SmallVec::new();
            found.dependencies(responsibility.core.dylib(), name_of, &mut borrowed);
            if responsibility.pin_dependencies(own, &borrowed)?
                && responsibility.try_make_ready(own, is_unresolved, notifications)?
            {
                return Ok(None);
            }
            if is_unresolved {
                responsibility.resolve_located(own)?;
            } else {
                responsibility.check_resolved(own)?;
            }
            let wait = responsibility.prepare_wait(own)?;
            let dependencies = distinct(
                borrowed.into_iter().map(DependencyRef::to_ref).collect(),
                responsibility.core.dylib().id,
                own,
            );
            responsibility.emit_to_graph(own, &dependencies, notifications)?;
            Ok(wait)
        })
    }

    /// Runs `emit` for all symbols of the responsibility, and delivers its notifications. If it fails, fails the
    /// symbols.
    fn emit_with<R>(
        mut self,
        emit: impl FnOnce(&Self, &[ClaimedSymbol], &mut DeferredNotifications) -> Result<R>,
    ) -> Result<R> {
        let own = std::mem::take(&mut self.claimed);
        let mut notifications = DeferredNotifications::new(self.observers());
        let outcome = emit(&self, &own, &mut notifications).map_err(|error| self.with_cause_of(&own, error));
        let completions = notifications.call_observers(self.observers());
        match &outcome {
            Ok(_) => complete(&self.session().error_reporter, completions),
            // Also fails the symbols of groups that were emitted before the error, and wait. They fail before a callback
            // runs: the callback may look them up, and this thread is the only one that fails them.
            Err(error) => self.fail_symbols(&own, error, completions),
        }
        outcome
    }

    /// As [`notify_emitted`](Self::notify_emitted), with dependencies for each group of symbols. A symbol does not wait
    /// for a dependency that only another group has. Symbols in no group have no dependencies.
    ///
    /// # Errors
    /// As [`notify_emitted`](Self::notify_emitted), and [`ErrorKind::NotResponsible`] when a symbol is in two groups, or is
    /// not a symbol of this responsibility. The symbols that are not ready by then have failed.
    pub fn notify_emitted_groups(self, groups: Vec<DependencyGroup>) -> Result<()> {
        self.emit_with(|responsibility, own, notifications| responsibility.emit_groups(own, groups, notifications))
    }

    fn emit_groups(
        &self,
        own: &[ClaimedSymbol],
        groups: Vec<DependencyGroup>,
        notifications: &mut DeferredNotifications,
    ) -> Result<()> {
        let mut ungrouped: FxHashMap<&Name, &ClaimedSymbol> = own.iter().map(|symbol| (&symbol.name, symbol)).collect();
        let mut emitted = Vec::with_capacity(groups.len() + 1);
        for DependencyGroup { symbols, dependencies } in groups {
            let mut members = Vec::with_capacity(symbols.len());
            for name in symbols {
                let member = ungrouped.remove(&name).ok_or_else(|| self.not_owed("emits, in a group,", &name))?;
                members.push(member.clone());
            }
            emitted.push((members, dependencies));
        }
        let rest = own.iter().filter(|symbol| ungrouped.contains_key(&symbol.name)).cloned().collect();
        emitted.push((rest, Vec::new()));
        for (members, dependencies) in emitted.into_iter().filter(|(members, _)| !members.is_empty()) {
            self.emit(&members, dependencies, notifications)?;
        }
        Ok(())
    }

    /// Emits `own`, which are all symbols of the responsibility or one group of them.
    fn emit(
        &self,
        own: &[ClaimedSymbol],
        dependencies: Vec<SymbolRef>,
        notifications: &mut DeferredNotifications,
    ) -> Result<()> {
        let dependencies = distinct(dependencies, self.core.dylib().id, own);
        let borrowed: SmallVec<[DependencyRef<'_>; 8]> = dependencies.iter().map(DependencyRef::of).collect();
        if self.pin_dependencies(own, &borrowed)? && self.try_make_ready(own, false, notifications)? {
            return Ok(());
        }
        self.check_resolved(own)?;
        self.emit_to_graph(own, &dependencies, notifications)
    }

    /// Emits `own` through the waiting graph.
    fn emit_to_graph(
        &self,
        own: &[ClaimedSymbol],
        dependencies: &[SymbolRef],
        notifications: &mut DeferredNotifications,
    ) -> Result<()> {
        let own = own.iter().map(|symbol| self.reference_to(symbol)).collect();
        self.session().waiting.lock().emit(&self.core.current(), own, dependencies, notifications)
    }

    /// Checks that every symbol is resolved.
    fn check_resolved(&self, own: &[ClaimedSymbol]) -> Result<()> {
        let state = self.core.dylib().state.lock();
        own.iter().try_for_each(|claimed| self.resolved(&state, claimed).map(drop))
    }

    /// The entry of a resolved symbol. A symbol without an address cannot become ready: code could not use it.
    #[inline(always)]
    fn resolved<'a>(&self, state: &'a DylibState, claimed: &ClaimedSymbol) -> Result<&'a Symbol> {
        let symbol = state.table.symbol(claimed.id).ok_or_else(|| self.core.defunct())?;
        if symbol.state < SymbolState::Resolved && !symbol.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) {
            let (unit, symbol) = (self.unit_name.to_string(), claimed.name.to_string());
            return Err(ErrorKind::InterfaceMismatch { unit, problem: "emits without an address", symbol }.into());
        }
        Ok(symbol)
    }

    /// Pins the trackers that own the dependencies, which are grouped by dylib. Returns whether all dependencies are
    /// ready.
    fn pin_dependencies(&self, own: &[ClaimedSymbol], dependencies: &[DependencyRef<'_>]) -> Result<bool> {
        let mut all_ready = true;
        for group in dependencies.chunk_by(|a, b| a.dylib.id == b.dylib.id) {
            if self.pin_cached(group) {
                continue;
            }
            // S6: a tracker of another session is not in this session's pin graph.
            group[0].dylib.check_session(self.session())?;
            let state = group[0].dylib.state.lock();
            all_ready &= self.pin_owners(&state, group, own)?;
        }
        Ok(all_ready)
    }

    /// Pins the owners of definitions of another dylib without its lock, if the pin table has cached each of the
    /// definitions. A cached definition is ready.
    fn pin_cached(&self, dependencies: &[DependencyRef<'_>]) -> bool {
        let Some(dylib) = dependencies.first().map(|dependency| dependency.dylib) else { return true };
        if Arc::ptr_eq(dylib, self.core.dylib()) {
            return false;
        }
        let definitions = dependencies.iter().map(|dependency| (dylib.id.number(), dependency.id));
        self.session().pins.table_of(self.core.dylib().id.number()).add_cached(&self.core, definitions)
    }

    /// As [`pin_dependencies`](Self::pin_dependencies), for the dependencies in one dylib, whose lock is held. S2:
    /// under this lock their owners stay live, so they need no reference count until they are pinned.
    fn pin_owners(
        &self,
        state: &DylibState,
        dependencies: &[DependencyRef<'_>],
        own: &[ClaimedSymbol],
    ) -> Result<bool> {
        let (mut all_ready, mut last_owner, mut pins) = (true, &self.core, None);
        for dependency in dependencies {
            let removed = || waiting::dependency_removed(Some(state), dependency, first_name(own));
            let symbol = state.table.symbol(dependency.id).ok_or_else(removed)?;
            all_ready &= symbol.state == SymbolState::Ready;
            let owner = state.table.owner(symbol).ok_or_else(removed)?;
            // A tracker does not pin itself.
            if Arc::ptr_eq(owner, &self.core) {
                continue;
            }
            let pins = pins.get_or_insert_with(|| self.session().pins.table_of(self.core.dylib().id.number()));
            if !Arc::ptr_eq(owner, last_owner) {
                last_owner = owner;
                if !pins.add(&self.core, owner) {
                    return Err(if self.core.is_current_live() { removed() } else { self.core.current().defunct() });
                }
            }
            if symbol.state == SymbolState::Ready {
                pins.cache_definition(owner, (dependency.dylib.id.number(), dependency.id));
            }
        }
        Ok(all_ready)
    }

    /// Makes the symbols ready without the waiting graph, unless a group in the graph waits for one of them. If
    /// `is_unresolved`, also sets their located addresses.
    fn try_make_ready(
        &self,
        own: &[ClaimedSymbol],
        is_unresolved: bool,
        notifications: &mut DeferredNotifications,
    ) -> Result<bool> {
        let mut state = self.core.dylib().state.lock();
        state.check_current_live(&self.core)?;
        for claimed in own {
            let symbol = if is_unresolved {
                state.table.symbol(claimed.id).ok_or_else(|| self.core.defunct())?
            } else {
                self.resolved(&state, claimed)?
            };
            if symbol.has_dependants {
                return Ok(false);
            }
        }
        // Seeded bug: a group that begins to wait in between is never woken.
        if seeded_bug!("dependants_asked_for_under_an_earlier_lock") {
            drop(state);
            state = self.core.dylib().state.lock();
        }
        let completions = &mut notifications.completions;
        for claimed in own {
            if is_unresolved {
                state.table.finish(claimed.id, claimed.address, completions);
            } else {
                state.table.advance(claimed.id, SymbolState::Ready, completions);
            }
        }
        notifications.publish(|| {
            own.iter().filter_map(|claimed| {
                let owner = state.table.symbol(claimed.id).and_then(|found| state.table.owner(found))?;
                Some((owner.clone(), self.reference_to(claimed)))
            })
        });
        Ok(true)
    }
}

/// Sorts `dependencies` by identity, and removes duplicates and the symbols `own`, which are symbols of `dylib`.
fn distinct(mut dependencies: Vec<SymbolRef>, dylib: DylibId, own: &[ClaimedSymbol]) -> Vec<SymbolRef> {
    sort_by_order(&mut dependencies, |a, b| a.sort_key().cmp(&b.sort_key()));
    dependencies.dedup_by_key(|symbol| symbol.sort_key());
    if own.len() <= MAX_LINEAR_SEARCH {
        dependencies.retain(|symbol| symbol.dylib.id != dylib || own.iter().all(|own| own.id != symbol.id));
    } else {
        let own: FxHashSet<SymbolId> = own.iter().map(|claimed| claimed.id).collect();
        dependencies.retain(|symbol| symbol.dylib.id != dylib || !own.contains(&symbol.id));
    }
    dependencies
}

/// Up to this many entries, a linear search is no slower than a hash set.
const MAX_LINEAR_SEARCH: usize = 16;

/// The name by which an error calls the emitted code.
fn first_name(own: &[ClaimedSymbol]) -> Option<&Name> {
    own.first().map(|claimed| &claimed.name)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::base::ExecutorAddr;
    use crate::session::{ExecutionSession, JitDylib, RequiredState, SymbolRequest};

    fn resolved_symbol(dylib: &JitDylib, name: &str) -> MaterializationResponsibility {
        let tracker = dylib.create_tracker().unwrap();
        let r = tracker.define_materializing(name, [(Name::new(name), SymbolFlags::EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        std::mem::forget(tracker);
        r
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaks its trackers on purpose")]
    fn a_dependency_that_two_modules_have_is_pinned_for_a_third_without_its_dylib_lock() {
        let session = ExecutionSession::new();
        let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
        resolved_symbol(&library, "used").notify_emitted(Vec::new()).unwrap();
        let found = library.lookup(&[SymbolRequest::required("used")], RequiredState::Ready).unwrap();
        let used = found[0].symbol.clone().unwrap();
        for name in ["first", "second"] {
            resolved_symbol(&user, name).notify_emitted(vec![used.clone()]).unwrap();
        }
        let third = resolved_symbol(&user, "third");
        let tracker = third.tracker();
        let (sender, receiver) = mpsc::channel();
        let locked = library.inner().state.lock();
        let emission = thread::spawn(move || sender.send(third.notify_emitted(vec![used])).unwrap());
        let emitted = receiver.recv_timeout(Duration::from_secs(60));
        drop(locked);
        emission.join().unwrap();
        emitted.expect("the emission needs no lock of the library").unwrap();
        assert_eq!(tracker.dependencies().len(), 1);
    }
}
