//! Emission: code is in place, and its symbols become ready as soon as what they refer to is.
//!
//! Every dependency is looked at: one that is gone fails the emission, one that is ready pins its tracker, one that is
//! not makes the symbols wait in the waiting graph. Symbols that wait for nothing, and that nobody waits for, never
//! touch that graph.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::Name;
use crate::error::{ErrorKind, Result};
use crate::session::core::deferred_notifications::DeferredNotifications;
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::waiting;
use crate::session::lookup::ready_lookup::{DependencyRef, NameOf, ReadyLookup};
use crate::session::materialize::materialization_wait::MaterializationWait;
use crate::session::materialize::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::symbols::symbol_table::Symbol;
use crate::session::types::symbol::{SymbolFlags, SymbolRef, SymbolState};
use crate::sync::{Arc, seeded_bug};

/// Symbols that were emitted together, and what they refer to (ORC: `SymbolDependenceGroup`).
#[derive(Debug, Clone, Default)]
pub struct DependencyGroup {
    /// Names of owed symbols.
    pub symbols: Vec<Name>,
    /// What they refer to: from lookups, or from
    /// [`symbol`](MaterializationResponsibility::symbol) for others of the same responsibility.
    pub dependencies: Vec<SymbolRef>,
}

impl MaterializationResponsibility {
    /// The code is in place, and refers to `dependencies` (from [`lookup`](Self::lookup)). The symbols are ready as soon
    /// as all of those are, and the tracker pins the trackers of those.
    ///
    /// # Errors
    /// When the tracker or a dependency was removed; the symbols have failed then.
    pub fn notify_emitted(self, dependencies: Vec<SymbolRef>) -> Result<()> {
        self.end(|responsibility, own, aftermath| responsibility.emit(own, dependencies, aftermath))
    }

    /// As [`notify_emitted`](Self::notify_emitted), of what was [found at once](Self::lookup_now). If `is_untold`,
    /// nobody knows yet where the owed symbols are [located](Self::locate). Whoever is to be told of the end, and has to wait for
    /// it, gets what to wait for.
    pub(crate) fn notify_emitted_now(
        self,
        found: &ReadyLookup,
        name_of: &NameOf<'_>,
        is_untold: bool,
    ) -> Result<Option<MaterializationWait>> {
        self.end(|responsibility, own, aftermath| {
            let mut needs = SmallVec::new();
            found.needs(responsibility.core.dylib(), name_of, &mut needs);
            if responsibility.pin_dependencies(own, &needs)?
                && responsibility.ready_at_once(own, is_untold, aftermath)?
            {
                return Ok(None);
            }
            if is_untold {
                responsibility.resolve_located(own)?;
            } else {
                responsibility.check_resolved(own)?;
            }
            let awaited = responsibility.await_end(own)?;
            let dependencies = waiting::distinct(
                needs.into_iter().map(DependencyRef::to_ref).collect(),
                responsibility.core.dylib().id,
                own,
            );
            responsibility.wait_for(own, &dependencies, aftermath)?;
            Ok(awaited)
        })
    }

    fn end<R>(
        mut self,
        emit: impl FnOnce(&Self, &[ClaimedSymbol], &mut DeferredNotifications) -> Result<R>,
    ) -> Result<R> {
        let own = std::mem::take(&mut self.owed);
        let mut aftermath = DeferredNotifications::new(self.observers());
        let outcome = emit(&self, &own, &mut aftermath);
        aftermath.settle(self.observers());
        if let Err(error) = &outcome {
            // Those too that were emitted and wait.
            self.fail_symbols(&own, error);
        }
        outcome
    }

    /// As [`notify_emitted`](Self::notify_emitted), with dependencies by group of symbols, so that one does not wait for
    /// what only another refers to. Symbols in no group depend on nothing.
    ///
    /// # Errors
    /// As [`notify_emitted`](Self::notify_emitted), and [`ErrorKind::NotOwed`] when a symbol stands in two groups or is
    /// not owed; those symbols have failed then that had not become ready.
    pub fn notify_emitted_groups(self, groups: Vec<DependencyGroup>) -> Result<()> {
        self.end(|responsibility, own, aftermath| responsibility.emit_groups(own, groups, aftermath))
    }

    fn emit_groups(
        &self,
        own: &[ClaimedSymbol],
        groups: Vec<DependencyGroup>,
        aftermath: &mut DeferredNotifications,
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
        let free = own.iter().filter(|symbol| ungrouped.contains_key(&symbol.name)).cloned().collect();
        emitted.push((free, Vec::new()));
        for (members, dependencies) in emitted.into_iter().filter(|(members, _)| !members.is_empty()) {
            self.emit(&members, dependencies, aftermath)?;
        }
        Ok(())
    }

    fn emit(
        &self,
        own: &[ClaimedSymbol],
        dependencies: Vec<SymbolRef>,
        aftermath: &mut DeferredNotifications,
    ) -> Result<()> {
        let dependencies = waiting::distinct(dependencies, self.core.dylib().id, own);
        let needs: SmallVec<[DependencyRef<'_>; 8]> = dependencies.iter().map(DependencyRef::of).collect();
        if self.pin_dependencies(own, &needs)? && self.ready_at_once(own, false, aftermath)? {
            return Ok(());
        }
        self.check_resolved(own)?;
        self.wait_for(own, &dependencies, aftermath)
    }

    fn wait_for(
        &self,
        own: &[ClaimedSymbol],
        dependencies: &[SymbolRef],
        aftermath: &mut DeferredNotifications,
    ) -> Result<()> {
        let own = own.iter().map(|owed| self.reference_to(owed)).collect();
        self.session().waiting.lock().emit(&self.core.current(), own, dependencies, aftermath)
    }

    fn check_resolved(&self, own: &[ClaimedSymbol]) -> Result<()> {
        let state = self.core.dylib().state.lock();
        own.iter().try_for_each(|owed| self.resolved(&state, owed).map(drop))
    }

    /// Code without an address cannot be used, so it cannot become ready.
    #[inline(always)]
    fn resolved<'a>(&self, state: &'a DylibState, owed: &ClaimedSymbol) -> Result<&'a Symbol> {
        let symbol = state.table.symbol(owed.id).ok_or_else(|| self.core.defunct())?;
        if symbol.state < SymbolState::Resolved && !symbol.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) {
            let (unit, symbol) = (self.unit_name.to_string(), owed.name.to_string());
            return Err(ErrorKind::InterfaceMismatch { unit, problem: "emits without an address", symbol }.into());
        }
        Ok(symbol)
    }

    /// Pins the trackers that own the dependencies, which come dylib by dylib; whether all dependencies are ready.
    fn pin_dependencies(&self, own: &[ClaimedSymbol], needs: &[DependencyRef<'_>]) -> Result<bool> {
        let mut all_ready = true;
        for group in needs.chunk_by(|a, b| a.dylib.id == b.dylib.id) {
            if self.pin_known(group) {
                continue;
            }
            let state = group[0].dylib.state.lock();
            all_ready &= self.pin_owners(&state, group, own)?;
        }
        Ok(all_ready)
    }

    /// Pins the owners of definitions of another dylib, if others have come to each of them before. They are ready then.
    fn pin_known(&self, needs: &[DependencyRef<'_>]) -> bool {
        let Some(dylib) = needs.first().map(|need| need.dylib) else { return true };
        if Arc::ptr_eq(dylib, self.core.dylib()) {
            return false;
        }
        let definitions = needs.iter().map(|need| (dylib.serial, need.id));
        self.session().pins.table_of(self.core.dylib()).add_known(&self.core, definitions)
    }

    /// As `pin_dependencies`, of those that are in one dylib. Under its lock: so their owners are live, and need not be counted
    /// to be pinned afterwards.
    fn pin_owners(&self, state: &DylibState, needs: &[DependencyRef<'_>], own: &[ClaimedSymbol]) -> Result<bool> {
        let (mut all_ready, mut last_owner, mut pins) = (true, &self.core, None);
        for need in needs {
            let gone = || waiting::removed(need, first_of(own));
            let symbol = state.table.symbol(need.id).ok_or_else(gone)?;
            all_ready &= symbol.state == SymbolState::Ready;
            let owner = state.table.owner(symbol).ok_or_else(gone)?;
            // The tracker that this one was before a transfer, too, pins nothing.
            if Arc::ptr_eq(owner, &self.core) {
                continue;
            }
            let pins = pins.get_or_insert_with(|| self.session().pins.table_of(self.core.dylib()));
            if !Arc::ptr_eq(owner, last_owner) {
                last_owner = owner;
                if !pins.add(&self.core, owner) {
                    return Err(if self.core.is_now_live() { gone() } else { self.core.current().defunct() });
                }
            }
            if symbol.state == SymbolState::Ready {
                pins.know(owner, (need.dylib.serial, need.id));
            }
        }
        Ok(all_ready)
    }

    /// Makes the symbols ready without the waiting graph, unless somebody in there waits for one of them; at the addresses that
    /// nobody was told of yet, if `is_untold`.
    fn ready_at_once(
        &self,
        own: &[ClaimedSymbol],
        is_untold: bool,
        aftermath: &mut DeferredNotifications,
    ) -> Result<bool> {
        let mut state = self.core.dylib().state.lock();
        state.check_now_live(&self.core)?;
        for owed in own {
            let symbol = if is_untold {
                state.table.symbol(owed.id).ok_or_else(|| self.core.defunct())?
            } else {
                self.resolved(&state, owed)?
            };
            if symbol.has_dependants {
                return Ok(false);
            }
        }
        // Seeded bug: whoever comes to wait in between is told by nobody.
        if seeded_bug!("dependants_asked_for_under_an_earlier_lock") {
            drop(state);
            state = self.core.dylib().state.lock();
        }
        let completions = &mut aftermath.completions;
        for owed in own {
            if is_untold {
                state.table.finish(owed.id, owed.address, completions);
            } else {
                state.table.advance(owed.id, SymbolState::Ready, completions);
            }
        }
        aftermath.publish(|| {
            own.iter().filter_map(|owed| {
                let owner = state.table.symbol(owed.id).and_then(|found| state.table.owner(found))?;
                Some((owner.clone(), self.reference_to(owed)))
            })
        });
        Ok(true)
    }
}

/// What an error calls the code by.
fn first_of(own: &[ClaimedSymbol]) -> Option<&Name> {
    own.first().map(|owed| &owed.name)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::base::ExecutorAddr;
    use crate::session::{ExecutionSession, JitDylib, RequiredState, SymbolRequest};

    fn begun(dylib: &JitDylib, name: &str) -> MaterializationResponsibility {
        let tracker = dylib.create_tracker().unwrap();
        let r = tracker.define_materializing(name, [(Name::new(name), SymbolFlags::EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
        std::mem::forget(tracker);
        r
    }

    #[test]
    #[cfg_attr(miri, ignore = "forgets its trackers on purpose")]
    fn what_two_modules_refer_to_is_pinned_for_the_third_without_a_look_at_its_dylib() {
        let session = ExecutionSession::new();
        let [library, user] = ["library", "user"].map(|name| session.create_dylib(name).unwrap());
        begun(&library, "used").notify_emitted(Vec::new()).unwrap();
        let found = library.lookup(&[SymbolRequest::required("used")], RequiredState::Ready).unwrap();
        let used = found[0].symbol.clone().unwrap();
        for name in ["first", "second"] {
            begun(&user, name).notify_emitted(vec![used.clone()]).unwrap();
        }
        let third = begun(&user, "third");
        let tracker = third.tracker();
        let (tell, told) = mpsc::channel();
        let locked = library.inner().state.lock();
        let emission = thread::spawn(move || tell.send(third.notify_emitted(vec![used])).unwrap());
        let emitted = told.recv_timeout(Duration::from_secs(60));
        drop(locked);
        emission.join().unwrap();
        emitted.expect("it waits for nothing").unwrap();
        assert_eq!(tracker.dependencies().len(), 1);
    }
}
